package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func (j *Journal) lockPath(owner string) string {
	return filepath.Join(j.owners(), encode(owner)+".lock")
}

// takeLock opens the file, making it when it is missing, and locks it.
func takeLock(path string) (*os.File, error) {
	const tries = 100
	for range tries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			f.Close()
			return nil, ErrOwned
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The last holder may have removed the name between our open and our
		// lock; then we hold a lock that nobody else will ever see.
		if sameFile(f, path) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("lock %s: its name kept changing", path)
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// lockHeld tests the lock without taking it.
func lockHeld(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, fmt.Errorf("test lock %s: %w", path, err)
	}
	return l.Type != unix.F_UNLCK, nil
}
