package fetch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// merge moves what lies below from into the existing directory out, through
// handles on both, so that no link in out leads it elsewhere.
func merge(ctx context.Context, from *os.Root, out string, as *syscall.Credential) error {
	to, err := os.OpenRoot(out)
	if err != nil {
		return err
	}
	defer to.Close()
	return fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if name == "." {
			return nil
		}
		if !d.IsDir() {
			return moveInto(from, to, name)
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		err = to.Mkdir(name, st.Mode().Perm())
		if errors.Is(err, fs.ErrExist) {
			there, err := to.Stat(name)
			if err == nil && !there.IsDir() {
				err = fmt.Errorf("%s: a file is in the way of a directory; remove it or choose another outputDir", name)
			}
			return err
		}
		if err == nil && as != nil {
			err = to.Lchown(name, int(as.Uid), int(as.Gid))
		}
		return err
	})
}

func moveInto(from, to *os.Root, name string) error {
	dir, base := path.Split(name)
	if dir == "" {
		dir = "."
	}
	src, err := from.Open(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := to.Open(dir)
	if err != nil {
		return err
	}
	defer dst.Close()
	err = unix.Renameat(int(src.Fd()), base, int(dst.Fd()), base)
	if errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("%s: a directory is in the way of a file; remove it or choose another outputDir", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func replaceIn(dir, name string, b []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tmp := ".tandem-" + rand.Text()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}
