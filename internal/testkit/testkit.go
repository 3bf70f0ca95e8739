// Package testkit has what the tests of several folders need beside what they
// test: directories whose paths are short, and how many tests run at a time.
package testkit

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/failpoint"
)

// SideBySide is for TestMain, before the tests run: n parallel tests of the package run
// at a time unless -parallel says otherwise. The default of go test is a test for each processor,
// which leaves them idle where tests wait for processes more than they compute. A machine with
// more processors than n keeps its default.
//
// It also lets programs that the tests start end quickly, see QuickEnd.
func SideBySide(n int) {
	QuickEnd()
	if f := flag.Lookup("test.parallel"); f != nil {
		if now, err := strconv.Atoi(f.Value.String()); err == nil && now < n {
			_ = f.Value.Set(strconv.Itoa(n)) // a number that is good
		}
	}
}

// QuickEnd spares programs with the race detector, which are started from now on, most of the second that
// it sleeps when they end, to hear of a race that is being told (atexit_sleep_ms in the runtime flags
// of ThreadSanitizer). What GORACE says already stays as it is.
func QuickEnd() {
	const option = "atexit_sleep_ms"
	now := os.Getenv(failpoint.RaceVar)
	if failpoint.RaceVar == "" || strings.Contains(now, option) {
		return
	}
	if err := os.Setenv(failpoint.RaceVar, strings.TrimSpace(now+" "+option+"=50")); err != nil {
		panic(err)
	}
}

// ShortDir makes a directory for the test, with a path that leaves room for a socket's name:
// that of a unix socket may have 107 bytes (unix(7)), and t.TempDir has the test's name in it. It is the
// caller's alone, and removed at the end of the test, which fails when it cannot be.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tdm") // not TMPDIR, which may be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// What was told to end may write a last line.
		const limit, pause = 10 * time.Second, 10 * time.Millisecond
		err := os.RemoveAll(dir)
		for end := time.Now().Add(limit); err != nil && time.Now().Before(end); err = os.RemoveAll(dir) {
			time.Sleep(pause)
		}
		if err != nil {
			t.Errorf("test directory stays: %v", err)
		}
	})
	return dir
}

// PublicDir is a ShortDir that other users may enter and read, which they may not with t.TempDir.
func PublicDir(t testing.TB) string {
	t.Helper()
	dir := ShortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// WithoutFiles calls f while this program can open no file. It is for a program that a test
// has started to be in want of them: the limit is that of all its threads.
func WithoutFiles(f func()) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	none := syscall.Rlimit{Cur: 0, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		return err
	}
	f()
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
