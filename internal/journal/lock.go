package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockSuffix ends the names of lock files.
const lockSuffix = ".lock"

func (j *Journal) lockPath(owner string) string {
	return filepath.Join(j.owners(), encode(owner)+lockSuffix)
}

// The locked range tells who holds a lock (fcntl(2), F_OFD_GETLK): an owner locks
// the whole file, a reaper its first byte. Each excludes the other.
const (
	rangeOwner = 0 // to the end of the file, wherever that is
	rangeClaim = 1
)

// holder is who holds a lock.
type holder int

const (
	nobody holder = iota
	anOwner
	aReaper
)

// takeLock opens the file, making it when it is missing, and locks length bytes of it.
func takeLock(path string, length int64) (*os.File, error) {
	const tries = 100
	for range tries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: length})
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
		releaseLock(f)
	}
	return nil, fmt.Errorf("lock %s: its name kept changing", path)
}

// releaseLock unlocks the file before it is closed: a child that is just being
// started shares the open file, and with it the lock, until its exec.
func releaseLock(f *os.File) {
	_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
	f.Close()
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// lockHolder tests the lock without taking it.
func lockHolder(path string) (holder, error) {
	// For reading, so that it can be asked on a disk that has become read-only.
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nobody, nil
	}
	if err != nil {
		return nobody, err
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return nobody, fmt.Errorf("test lock %s: %w", path, err)
	}
	switch {
	case l.Type == unix.F_UNLCK:
		return nobody, nil
	case l.Len == rangeClaim:
		return aReaper, nil
	}
	return anOwner, nil
}
