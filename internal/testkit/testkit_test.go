package testkit

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/failpoint"
)

func TestDirectories(t *testing.T) {
	t.Setenv("TMPDIR", "/somewhere/else/with/a/long/name")
	var made []string
	t.Run("a test whose own directory would have a name that is far too long for the socket of a program, however short the socket's is", func(t *testing.T) {
		for _, c := range []struct {
			mode os.FileMode
			make func(testing.TB) string
		}{{0o700, ShortDir}, {0o755, PublicDir}} {
			dir := c.make(t)
			made = append(made, dir)
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != c.mode {
				t.Errorf("%s: %v, %v; want %v", dir, info, err, c.mode)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o400); err != nil {
				t.Error(err)
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, strings.Repeat("s", 60))}); err != nil {
				t.Error(err)
			}
		}
	})
	for _, dir := range made {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", dir, err)
		}
	}
}

func TestSideBySide(t *testing.T) {
	f := flag.Lookup("test.parallel")
	before := f.Value.String()
	defer func() { _ = f.Value.Set(before) }()
	t.Setenv(race(), "halt_on_error=0")
	for n, want := range map[int]string{4096: "4096", 8: "4096"} {
		_ = f.Value.Set("16")
		if n == 8 {
			_ = f.Value.Set("4096")
		}
		if SideBySide(n); f.Value.String() != want {
			t.Errorf("%d: %s run at a time, want %s", n, f.Value, want)
		}
	}
	if want := "halt_on_error=0 atexit_sleep_ms=50"; failpoint.RaceVar != "" && os.Getenv(failpoint.RaceVar) != want {
		t.Errorf("%q, want %q", os.Getenv(failpoint.RaceVar), want)
	}
	t.Setenv(race(), "atexit_sleep_ms=7")
	if QuickEnd(); os.Getenv(race()) != "atexit_sleep_ms=7" {
		t.Errorf("%q", os.Getenv(race()))
	}
}

func race() string {
	if failpoint.RaceVar == "" {
		return "TANDEM_TEST_NO_RACE_DETECTOR"
	}
	return failpoint.RaceVar
}
