package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
)

// WriteIn puts data under a plain name in an opened directory, replacing what has
// the name, with the permission bits perm; own, which may be nil, gives the file to
// its owner before it gets its name. It is for directories that others may write
// to: what they put in its way is replaced or an error, and never followed. It does
// not wait for the disk.
//
// The file has no name until it is whole, where the file system can do that (O_TMPFILE
// in open(2)), and a new one gets its own at once. What a crash leaves, between the two
// last steps of a replacement or elsewhere, is one file of the name TempName, which the
// next WriteIn of the same name replaces; two at a time of one name must not be.
func WriteIn(root *os.Root, name string, data []byte, perm os.FileMode, own func(*os.File) error) error {
	return writeIn(root, name, data, perm, own, func(string) error { return nil })
}

// TempName is what an unfinished file of WriteIn is called.
func TempName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return TempPrefix + hex.EncodeToString(sum[:8])
}

// writeIn calls note before the unfinished file gets a name, and with an empty one
// once that is gone.
func writeIn(root *os.Root, name string, data []byte, perm os.FileMode, own func(*os.File) error, note func(tmp string) error) (err error) {
	tmp := TempName(name)
	if err := root.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	noted := false
	give := func() error {
		noted = true
		return note(tmp)
	}
	named := false
	defer func() {
		if err != nil && named {
			_ = root.Remove(tmp) // the next one does it
		}
		if noted {
			err = errors.Join(err, note(""))
		}
	}()
	f, err := nameless(dir)
	if err != nil {
		if err := give(); err != nil {
			return err
		}
		named = true
		if f, err = root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600); err != nil {
			return err
		}
	}
	defer f.Close()
	if _, err = f.Write(data); err == nil && own != nil {
		err = own(f)
	}
	if err == nil {
		// After the owner, whose change takes bits away.
		err = f.Chmod(perm)
	}
	if err != nil {
		return err
	}
	if err := failpoint.Inject("atomicfile/whole"); err != nil {
		return err
	}
	if !named {
		err := link(f, dir, name)
		if err == nil || !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := give(); err != nil {
			return err
		}
		if err := link(f, dir, tmp); err != nil {
			return err
		}
		named = true
	}
	if err := failpoint.Inject("atomicfile/rename"); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}

// nameless opens a file that has no name yet, in an opened directory.
func nameless(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "unfinished"), nil
}

// link gives it one that nothing has. The way over /proc needs no capability, see open(2).
func link(f, dir *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
}

// Owner is whose a file is; -1 leaves it to whoever writes it.
type Owner struct{ UID, GID int }

// Put is a file that somebody hands in.
type Put struct {
	Data []byte
	// Mode holds permission bits; 0 keeps those of the file that is replaced, and
	// is 0644 for a new one.
	Mode os.FileMode
	// Owner owns the file; nil keeps the owner of the file that is replaced.
	Owner *Owner
	// Fresh owns a file that is new, when there is no Owner.
	Fresh func() (Owner, error)
	// Note, which may be nil, is told the name of the unfinished file in the directory before it gets
	// that, and an empty one once it is gone: what a crash leaves can be removed by that.
	Note func(tmp string) error
}

// PutIn is WriteIn for such a file. What has its name and is no regular file is
// an error, but for a symbolic link, which is replaced.
func PutIn(root *os.Root, name string, p Put) error {
	mode, owner := os.FileMode(0o644), p.Owner
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case info.Mode().IsRegular():
		mode = info.Mode().Perm()
		// Others than root cannot give a file away.
		if st, ok := info.Sys().(*syscall.Stat_t); ok && owner == nil && os.Geteuid() == 0 {
			owner = &Owner{int(st.Uid), int(st.Gid)}
		}
	case info.Mode()&os.ModeSymlink == 0:
		return fmt.Errorf("what is there is no regular file (%s); name another", info.Mode())
	}
	if p.Mode != 0 {
		mode = p.Mode.Perm()
	}
	if owner == nil {
		fresh, err := p.Fresh()
		if err != nil {
			return err
		}
		owner = &fresh
	}
	note := p.Note
	if note == nil {
		note = func(string) error { return nil }
	}
	return writeIn(root, name, p.Data, mode, func(f *os.File) error {
		if owner.UID < 0 {
			return nil
		}
		return f.Chown(owner.UID, owner.GID)
	}, note)
}
