// Package atomicfile replaces and removes files so that a crash at any moment
// leaves either the old or the new state on disk, and so that what a caller
// was told is done stays done after a power cut. It is for small files: records,
// markers, address books. It must never leave a half-written file under its
// final name.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// TempPrefix starts the name of every unfinished file. A reader of a directory
// skips names that begin with it, and RemoveTemp clears those that a crash left.
const TempPrefix = ".tmp-"

// Write puts data under path with the permission bits perm (not changed by the
// umask), replacing what was there. The file is synced before it gets its
// name and the directory afterwards (fsync(2): syncing a file does not make
// its directory entry durable).
func Write(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, true)
}

// WriteVolatile is Write without waiting for the disk: a reader and a crash of
// any program see the old or the new content, but a power cut may lose the
// file or leave it empty. It is for what a reboot makes void anyway.
func WriteVolatile(path string, data []byte, perm os.FileMode) error {
	return write(path, data, perm, false)
}

func write(path string, data []byte, perm os.FileMode, durable bool) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, TempPrefix)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Chmod(perm); err != nil {
		return err
	}
	if durable {
		if err = f.Sync(); err != nil {
			return err
		}
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return SyncDir(dir)
}

// Remove deletes the file and makes the deletion durable. A file that is
// not there is no error.
func Remove(path string) error {
	err := os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Read returns the content of a regular file of at most this many bytes. Anything else
// in its place is an error: a pipe is not waited for.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("read %s: it is not a regular file", path)
	case st.Size() > most:
		return nil, fmt.Errorf("read %s: it has %d bytes, the most is %d", path, st.Size(), most)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	defer d.Close()
	return SyncOpen(d)
}

// SyncOpen is SyncDir for a directory that is open. Some file systems, such as those shared with
// a virtual machine's host, sync files alone and say EINVAL of directories (fsync(2)): they
// give no more, and that is no failure.
func SyncOpen(d *os.File) error {
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("sync directory %s: %w", d.Name(), err)
	}
	return nil
}

// MkdirAll makes a directory and its missing parents with the bits perm and
// makes their names durable.
func MkdirAll(dir string, perm os.FileMode) error {
	dir = filepath.Clean(dir)
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("make directory %s: a file is in the way; move it or choose another directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	return SyncDir(parent)
}

// SetAside moves a file that cannot be read into dir, which is made for nobody
// else's eyes when it is missing, and keeps it there for people under a name of
// its own, which it returns.
func SetAside(path, dir string) (string, error) {
	if err := MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("set aside %s: %w", path, err)
	}
	to := filepath.Join(dir, fmt.Sprintf("%d-%s", time.Now().UnixNano(), filepath.Base(path)))
	if err := os.Rename(path, to); err != nil {
		return "", fmt.Errorf("set aside %s: %w", path, err)
	}
	return to, nil
}

// RemoveTemp deletes unfinished files that a crash left in a directory. The spare of a file
// that is there stays. Call it only when nobody else writes there.
func RemoveTemp(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	here := make(map[string]bool, len(entries))
	for _, e := range entries {
		here[filepath.Base(Spare(e.Name()))] = true
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), TempPrefix) && e.Type().IsRegular() && !here[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("clear %s: %w", dir, err)
			}
		}
	}
	return nil
}
