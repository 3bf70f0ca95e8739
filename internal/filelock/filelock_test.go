package filelock

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.File.WriteString("the first"); err != nil {
		t.Fatal(err)
	}
	second, err := Try(path, 0o600)
	if !errors.Is(err, ErrHeld) {
		t.Fatalf("a held lock was given to a second holder: %v", err)
	}
	text := make([]byte, 32)
	if n, _ := second.File.Read(text); string(text[:n]) != "the first" {
		t.Errorf("the file says %q", text[:n])
	}
	second.Release()
	if third, err := Try(path, 0o600); !errors.Is(err, ErrHeld) {
		t.Errorf("the release of one that did not hold it let go of the lock: %v", err)
	} else {
		third.Release()
	}
	first.Release()
}

// A child between fork and exec has a copy of the descriptor, and the lock
// belongs to what both lead to.
func TestReleasedWhileAChildIsBeingStarted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.FcntlInt(first.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	first.Release()
	second, err := Try(path, 0o600)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	second.Release()
}
