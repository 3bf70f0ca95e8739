// Package filelock keeps a second program out of a directory, by flock(2) on a
// file in it.
package filelock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld is returned by Try when somebody else holds the lock.
var ErrHeld = errors.New("the lock is held by another")

// Lock is a held lock. The kernel lets go of it when the process ends, however
// that comes about.
type Lock struct {
	// File is the locked file, open for reading and, where that is possible, for
	// writing: a holder may write into it who it is.
	File *os.File
}

// Try opens the file, making it with this mode when it is missing, and locks it
// without waiting. When somebody holds it, the file is returned unlocked with
// ErrHeld, so that the caller can read who; it is to be released all the same. With any other
// error the lock is nil.
//
// What cannot be written to is locked all the same: a file on a read-only file system,
// and a directory in the file's place.
func Try(path string, mode os.FileMode) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EISDIR) {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return &Lock{f}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return &Lock{f}, ErrHeld
	default:
		f.Close()
		if errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("lock %s: %w: its file system has no locks; use one of this machine's own disks", path, err)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
}

// Release lets go of the lock and closes the file. Nil is allowed. Nothing can
// go wrong in it that would leave the lock held.
//
// Closing alone would not do: a child that another goroutine is just starting
// shares the open file from its fork to its exec, and with it the lock.
func (l *Lock) Release() {
	if l == nil {
		return
	}
	_ = unix.Flock(int(l.File.Fd()), unix.LOCK_UN)
	l.File.Close()
}
