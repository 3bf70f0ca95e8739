package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWriteReplacesAndLeavesNoTemp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for s, write := range map[string]func(string, []byte, os.FileMode) error{"a long first content": Write, "short": WriteVolatile} {
		if err := write(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != s {
			t.Fatalf("got %q, %v; want %q", got, err, s)
		}
	}
	st, _ := os.Stat(path)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 {
		t.Errorf("left over: %v", e)
	}
}

func TestWriteToMissingDirectory(t *testing.T) {
	t.Parallel()
	if err := Write(filepath.Join(t.TempDir(), "no", "a"), nil, 0o600); err == nil {
		t.Fatal("no error")
	}
}

func TestRemoveIsIdempotent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := MkdirAll(filepath.Join(dir, "a/b/c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(dir, "a/b/c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(dir, "f"), 0o700); err == nil {
		t.Fatal("a file in the way must be an error")
	}
}

func TestRemoveTemp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []string{TempPrefix + "1", "keep"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveTemp(dir); err != nil {
		t.Fatal(err)
	}
	if e, _ := os.ReadDir(dir); len(e) != 1 || e[0].Name() != "keep" {
		t.Errorf("left: %v", e)
	}
	if err := RemoveTemp(filepath.Join(dir, "absent")); err != nil {
		t.Error(err)
	}
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, corrupt := filepath.Join(dir, "a.json"), filepath.Join(dir, "corrupt")
	for range 2 {
		if err := os.WriteFile(path, []byte("bad"), 0o600); err != nil {
			t.Fatal(err)
		}
		to, err := SetAside(path, corrupt)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(to); err != nil || string(b) != "bad" || filepath.Dir(to) != corrupt {
			t.Errorf("%s: %q %v", to, b, err)
		}
	}
	if e, err := os.ReadDir(corrupt); err != nil || len(e) != 2 {
		t.Errorf("kept: %v %v", e, err)
	}
	if _, err := SetAside(path, corrupt); err == nil {
		t.Error("a file that is not there was set aside")
	}
}

// TestDirectoriesThatCannotBeSynced: there are file systems that sync files alone, of which
// the kernel's own are some.
func TestDirectoriesThatCannotBeSynced(t *testing.T) {
	t.Parallel()
	d, err := os.Open("/proc")
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) {
		t.Skip("its directories can be synced: ", err)
	}
	if err := SyncDir("/proc"); err != nil {
		t.Error(err)
	}
	if err := SyncDir("/no/such/directory"); err == nil {
		t.Error("what is not there was synced")
	}
}
