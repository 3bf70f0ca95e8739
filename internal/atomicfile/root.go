package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"

	"golang.org/x/sys/unix"
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
	return root.Rename(tmp, name)
}
