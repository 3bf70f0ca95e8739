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
// not wait for the disk. What a crash leaves is one file with TempPrefix, which
// the next WriteIn of the same name replaces; two at a time of one name must not be.
func WriteIn(root *os.Root, name string, data []byte, perm os.FileMode, own func(*os.File) error) (err error) {
	sum := sha256.Sum256([]byte(name))
	tmp := TempPrefix + hex.EncodeToString(sum[:8])
	if err := root.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(tmp) // the next one does it
		}
	}()
	_, err = f.Write(data)
	if err == nil && own != nil {
		err = own(f)
	}
	if err == nil {
		// After the owner, whose change takes bits away.
		err = f.Chmod(perm)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := failpoint.Inject("atomicfile/rename"); err != nil {
		return err
	}
	return root.Rename(tmp, name)
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
	return WriteIn(root, name, p.Data, mode, func(f *os.File) error {
		if owner.UID < 0 {
			return nil
		}
		return f.Chown(owner.UID, owner.GID)
	})
}
