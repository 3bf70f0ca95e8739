// Package safepath opens directories for a program that is root, in whose paths others
// may put symbolic links at any moment. It must never be led by such a link to a place
// that its owner could not write to anyway.
package safepath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Base opens the part of an absolute path that is root's (or the caller's own) alone, for
// the caller to close, and returns the rest, relative to it; "." when there is none. Links of
// root's are followed, those of others refused. The base ends with the first
// directory that belongs to another user, whose links lead nowhere but beneath it, for an
// os.Root resolves them, or before the first that does not exist.
func Base(path string) (base *os.Root, rest string, err error) {
	if !filepath.IsAbs(path) {
		return nil, "", fmt.Errorf("%s is not an absolute path", path)
	}
	done, left := "/", split(path)
	links := 0
	for len(left) > 0 {
		next := filepath.Join(done, left[0])
		var st unix.Stat_t
		err := unix.Lstat(next, &st)
		if errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return nil, "", &fs.PathError{Op: "lstat", Path: next, Err: err}
		}
		theirs := st.Uid != 0 && int(st.Uid) != os.Geteuid()
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			done, left = next, left[1:]
			if theirs {
				break
			}
			continue
		}
		const most = 40
		if links++; links > most {
			return nil, "", fmt.Errorf("%s: too many symbolic links", next)
		}
		if theirs {
			return nil, "", fmt.Errorf("%s is a symbolic link of user %d; name the place that it leads to", next, st.Uid)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return nil, "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(done, to)
		}
		done, left = "/", append(split(to), left[1:]...)
	}
	base, err = open(done)
	if err != nil {
		return nil, "", err
	}
	return base, filepath.Join(append([]string{"."}, left...)...), nil
}

// OpenRoot opens a directory; with create, missing ones are made, with the mode 0755.
func OpenRoot(path string, create bool) (*os.Root, error) {
	base, rest, err := Base(path)
	if err != nil || rest == "." {
		return base, err
	}
	defer base.Close()
	if create {
		if err := base.MkdirAll(rest, 0o755); err != nil {
			return nil, err
		}
	}
	return base.OpenRoot(rest)
}

func split(path string) []string {
	return strings.FieldsFunc(filepath.Clean(path), func(c rune) bool { return c == '/' })
}

// open opens a directory in whose path there is no symbolic link any more.
func open(path string) (*os.Root, error) {
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
