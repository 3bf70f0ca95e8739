package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Spare is where Swap keeps the file that it writes to next: beside path, and with
// TempPrefix, so that readers pass it over.
func Spare(path string) string {
	return filepath.Join(filepath.Dir(path), TempPrefix+"spare-"+filepath.Base(path)+"~")
}

// Swap is WriteVolatile for a file that is replaced often. It writes into the file that
// was replaced before, the spare, and lets the two exchange their names in one step
// (renameat2(2), RENAME_EXCHANGE; where that is not possible, the spare takes the name). So
// nothing is made or removed: ext4 passes over every inode that was freed in the last
// seconds, one by one, before it gives one away, which costs more than the write.
//
// After a power cut the file may hold what it held two writes ago. Two at a time of one
// path must not be. Whoever removes the file removes its Spare after it.
func Swap(path string, data []byte, perm os.FileMode) error {
	if err := swap(path, Spare(path), data, perm); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// MakeEmpty makes a file for the next Swap of a path, as its Spare, or for a WriteBy, so that
// these need not. One that is there is left alone.
func MakeEmpty(spare string, perm os.FileMode) error {
	f, err := openSpare(spare, perm)
	if err != nil {
		return fmt.Errorf("make %s: %w", spare, err)
	}
	return f.Close()
}

// WriteBy is WriteVolatile through a file of MakeEmpty on the same file system, which
// takes the name; it makes that file when it is not there. Two at a time through one must not be.
func WriteBy(spare, path string, data []byte, perm os.FileMode) error {
	err := fill(spare, data, perm)
	if err == nil {
		err = unix.Rename(spare, path)
	}
	if err != nil {
		os.Remove(spare)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func openSpare(spare string, perm os.FileMode) (*os.File, error) {
	// Not blocking also tells package os not to try whether it can be polled.
	return os.OpenFile(spare, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, perm)
}

func swap(path, spare string, data []byte, perm os.FileMode) error {
	if err := fill(spare, data, perm); err != nil {
		os.Remove(spare) // the next one makes it anew
		return err
	}
	// Other than a rename, an exchange takes the place of a directory, too.
	var old unix.Stat_t
	if unix.Lstat(path, &old) == nil && old.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%s is not a regular file; remove it", path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Rename(spare, path)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: spare, New: path, Err: err}
	}
	return nil
}

// fill makes data the content of a spare.
func fill(spare string, data []byte, perm os.FileMode) error {
	f, err := openSpare(spare, perm)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file; remove it", spare)
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if size := int64(len(data)); err == nil && st.Size() > size {
		err = f.Truncate(size)
	}
	if err == nil && st.Mode().Perm() != perm {
		err = f.Chmod(perm)
	}
	return errors.Join(err, f.Close())
}
