package processdaemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/internal/safepath"
)

// The directories of a task belong to its user, who may put symbolic links into
// them at any moment, while the daemon is root. So a file of a task is reached
// from one of the task's own directories, and each step from there is resolved
// beneath it.

// placeOf returns the directory of the task that a file is beneath, and its name
// from there; the innermost when there are several. Elsewhere it is "/".
func (t *task) placeOf(path string) (root, rel string) {
	spec := &t.rec.Spec
	dirs := []string{spec.WorkPath, spec.Sandbox, t.d.opts.Workspace}
	for i := range spec.URIs {
		dirs = append(dirs, spec.URIs[i].OutputDir)
	}
	root, rel = "/", strings.TrimPrefix(filepath.Clean(path), "/")
	for _, dir := range dirs {
		if len(dir) <= len(root) {
			continue
		}
		if r, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(r) && r != "." {
			root, rel = filepath.Clean(dir), r
		}
	}
	return root, rel
}

// openPlace opens the directory of a file of the task, for the caller to close.
// When owner is not nil, parents that are missing are made, and are the owner's. The
// error is fs.ErrNotExist when there is no such directory.
func (t *task) openPlace(path string, owner *account) (dir *os.Root, name string, err error) {
	at, rel := t.placeOf(path)
	if owner != nil && at != "/" && at == filepath.Clean(t.rec.Spec.WorkPath) {
		as, err := lookupAccount(t.rec.Spec.User)
		if err == nil {
			err = t.makeDirs(as)
		}
		if err != nil {
			return nil, "", err
		}
	}
	parent, name := filepath.Dir(rel), filepath.Base(rel)
	var root *os.Root
	if at == "/" {
		root, parent, err = safepath.Base("/" + parent)
	} else {
		root, err = safepath.OpenRoot(at, owner != nil)
	}
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	if owner != nil && parent != "." {
		for i, c := range parent + "/" {
			if c != '/' {
				continue
			}
			if err := makeIn(root, parent[:i], owner); err != nil {
				return nil, "", err
			}
		}
	}
	dir, err = root.OpenRoot(parent)
	return dir, name, err
}

// makeIn makes a directory for its owner where it is missing.
func makeIn(root *os.Root, name string, owner *account) error {
	err := root.Mkdir(name, 0o755)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	case owner.cred == nil:
		return nil
	}
	// By its handle: the name may be another's by now.
	self, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(self.Chown(owner.uid, owner.gid), self.Close())
}

// removeFiles removes the files that were put in place for the task, but for those that a
// later one was given.
func (t *task) removeFiles() error {
	if len(t.rec.Files) == 0 {
		return nil
	}
	t.d.files.mu.Lock()
	defer t.d.files.mu.Unlock()
	var errs []error
	for _, f := range t.d.files.release(t.rec.Files, t.rec.Spec.ID) {
		errs = append(errs, t.removeFile(f))
	}
	return errors.Join(errs...)
}

// removeFile removes a file of the task; one that is gone is no error.
func (t *task) removeFile(path string) error {
	dir, name, err := t.openPlace(path, nil)
	var errno syscall.Errno
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case errors.As(err, &errno) && !errors.Is(errno, unix.ELOOP):
		return err
	default:
		// Its user has put a link in the way. What is behind that is not the task's, and
		// the file, if it is anywhere, is where that user has put it.
		t.log.Warn("a file of the task is not removed, because its directory has been replaced", "file", path, "err", err)
		return nil
	}
	defer dir.Close()
	if err := dir.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	self, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncOpen(self), self.Close())
}
