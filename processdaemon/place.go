package processdaemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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
	if at == "/" {
		if rel, err = withoutLinks(rel); err != nil {
			return nil, "", err
		}
	} else if owner != nil {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, "", err
		}
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, "", err
	}
	defer root.Close()
	parent := filepath.Dir(rel)
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
	if at == "/" {
		dir, err = openWithoutLinks("/" + parent)
	} else {
		dir, err = root.OpenRoot(parent)
	}
	return dir, filepath.Base(rel), err
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

// openWithoutLinks opens a directory in whose path there is no symbolic link any more.
func openWithoutLinks(path string) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch {
	case errors.Is(err, unix.ENOSYS):
		return os.OpenRoot(path) // Linux before 5.6
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// withoutLinks resolves the symbolic links of a path from "/", whose parents need
// not exist, as far as they are root's. Those of others are refused: they could
// lead what the daemon writes, or removes, to any place.
func withoutLinks(rel string) (string, error) {
	done := "/"
	left := strings.Split(rel, "/")
	for links := 0; len(left) > 1; {
		next := filepath.Join(done, left[0])
		var st unix.Stat_t
		err := unix.Lstat(next, &st)
		switch {
		case errors.Is(err, unix.ENOENT):
			return strings.TrimPrefix(filepath.Join(done, filepath.Join(left...)), "/"), nil
		case err != nil:
			return "", &fs.PathError{Op: "lstat", Path: next, Err: err}
		case st.Mode&unix.S_IFMT != unix.S_IFLNK:
			done, left = next, left[1:]
			continue
		case st.Uid != 0:
			return "", fmt.Errorf("%s is a symbolic link of user %d; name the place that it leads to", next, st.Uid)
		}
		const most = 40
		if links++; links > most {
			return "", fmt.Errorf("%s: too many symbolic links", next)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(to) {
			done = "/"
		}
		left = append(strings.Split(strings.Trim(filepath.Clean(to), "/"), "/"), left[1:]...)
	}
	return strings.TrimPrefix(filepath.Join(done, left[0]), "/"), nil
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
	return errors.Join(self.Sync(), self.Close())
}
