package fetch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/processdaemon/protocol"
)

// Provide fetches a URI and puts its content into its outputDir.
//
// A new outputDir appears whole or not at all. Into one that exists, the content
// is merged file by file, each replaced atomically, so that what else lies there
// stays: the data of a database, say, whose program is updated. A marker in the
// directory remembers what was put there; with IfNotPresent it is left alone from
// then on, with Always it is renewed when the content has changed.
func (f *Fetcher) Provide(ctx context.Context, u protocol.URI, owner Owner, progress func(string)) error {
	s, err := parse(u)
	if err != nil {
		return err
	}
	out := filepath.Clean(u.OutputDir)
	lock := f.lockOutput(out)
	lock.Lock()
	defer lock.Unlock()

	marker := ".tandem-" + s.key()[:16] + ".json"
	have := readMarker(out, marker)
	if have != "" && u.PullPolicy != Always {
		return nil
	}
	digest, err := f.Get(ctx, u, progress)
	if err != nil {
		return err
	}
	if have == digest {
		return nil
	}
	if progress != nil {
		progress("unpacking " + s.shown)
	}
	if err := f.publish(ctx, digest, s.base, out, marker, owner); err != nil {
		return fmt.Errorf("unpack %s into %s: %w", s.shown, out, err)
	}
	return nil
}

// lockOutput keeps two tasks from working in one directory at a time.
func (f *Fetcher) lockOutput(out string) *sync.Mutex {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.outputs[out]
	if l == nil {
		l = new(sync.Mutex)
		f.outputs[out] = l
	}
	return l
}

type mark struct {
	Digest string `json:"digest"`
}

func readMarker(dir, name string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	b, err := root.ReadFile(name)
	if err != nil {
		return ""
	}
	var m mark
	if json.Unmarshal(b, &m) != nil {
		return ""
	}
	return m.Digest
}

func (f *Fetcher) publish(ctx context.Context, digest, name, out, marker string, owner Owner) error {
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	// Beside the output, so that a rename suffices; named after it, so that
	// what a crash left there is cleared here.
	tmp := filepath.Join(parent, ".tandem-unpack-"+hash(out)[:16])
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unpack(ctx, f.blob(digest), name, root, owner, f.limits); err != nil {
		return err
	}
	if err := failpoint.Inject("fetch/unpacked"); err != nil {
		return err
	}
	b, err := json.Marshal(mark{Digest: digest})
	if err != nil {
		return err
	}
	if _, err := os.Lstat(out); errors.Is(err, fs.ErrNotExist) {
		if err := root.WriteFile(marker, b, 0o644); err != nil {
			return err
		}
		if err := root.Chmod(".", 0o755); err != nil {
			return err
		}
		if owner.UID >= 0 {
			if err := root.Lchown(".", owner.UID, owner.GID); err != nil {
				return err
			}
		}
		err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, out, unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("rename: %w", err)
		}
		// Somebody made it meanwhile, or the file system knows no NOREPLACE.
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		if err := root.Remove(marker); err != nil {
			return err
		}
	}
	if err := merge(ctx, root, out, owner); err != nil {
		return err
	}
	return replaceIn(out, marker, b)
}

// merge moves what lies below from into the existing directory out, through
// handles on both, so that no link in out leads it elsewhere.
func merge(ctx context.Context, from *os.Root, out string, owner Owner) error {
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
		if err == nil && owner.UID >= 0 {
			err = to.Lchown(name, owner.UID, owner.GID)
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
