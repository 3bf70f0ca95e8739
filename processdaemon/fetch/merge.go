package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
)

// merge puts what was unpacked beside an existing directory into it, all of it or
// nothing. What is in the way is looked for before anything is changed. Then a
// directory that is new is moved whole, and a file that is replaced changes places
// with the new one, so that it can be put back until the end. A record of the steps
// lets the next daemon go on when this one is killed.
type merge struct {
	mergeRecord
	// from and to are From and Out. Every name is resolved below them, so that no link
	// in Out, which is a task's, leads elsewhere.
	from, to *os.Root
	// plainOnly is for tests: a file system that cannot exchange two files.
	plainOnly bool
}

// mergeRecord is a merge on disk.
type mergeRecord struct {
	// From and Out are absolute.
	From string `json:"from"`
	Out  string `json:"out"`
	// Marker and Mark are the marker that is written at the end.
	Marker string `json:"marker"`
	Mark   mark   `json:"mark"`
	// Ours tells that Out held exactly what was put there before.
	Ours  bool   `json:"ours,omitempty"`
	Boot  string `json:"boot"`
	Steps []step `json:"steps"`
}

// step moves one thing. Where it is shows by its inode number what was done.
type step struct {
	Name  name   `json:"name"`
	Inode uint64 `json:"inode"`
	// Replaces tells that something is there.
	Replaces bool `json:"replaces,omitempty"`
}

// name is that of a file in JSON, which need not be UTF-8.
type name string

// MarshalJSON makes a string in base64 of it.
func (n name) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(n)) }

// UnmarshalJSON takes what MarshalJSON makes.
func (n *name) UnmarshalJSON(b []byte) error {
	var raw []byte
	err := json.Unmarshal(b, &raw)
	*n = name(raw)
	return err
}

// plan finds the steps, or all that is in the way.
func (m *merge) plan(ctx context.Context) error {
	var inTheWay []string
	here, err := mountOf(m.to, ".")
	if err != nil {
		return err
	}
	err = walk(m.from, func(at string, d fs.FileInfo) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		st, err := m.to.Lstat(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && d.IsDir() {
			why := m.enterable(at, here)
			if why == "" {
				return nil
			}
			inTheWay = append(inTheWay, at+": "+why)
			return fs.SkipDir
		}
		if err == nil && st.IsDir() {
			inTheWay = append(inTheWay, at+": a directory is in the way of a file")
			return nil
		}
		m.Steps = append(m.Steps, step{Name: name(at), Inode: inode(d), Replaces: err == nil})
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil || len(inTheWay) == 0 {
		return err
	}
	return fmt.Errorf("nothing was changed in it, for something is in the way; remove it or choose another outputDir: %s", some(inTheWay))
}

// enterable says why the content of a directory cannot go into what has its name in Out.
func (m *merge) enterable(name string, mount uint64) string {
	st, err := m.to.Stat(name) // a link is followed as long as it stays below
	switch {
	case err != nil:
		return "a link that leads nowhere, or out, is in the way of a directory"
	case !st.IsDir():
		return "a file is in the way of a directory"
	}
	if there, err := mountOf(m.to, name); err != nil || there != mount {
		return "it is on another file system than the outputDir"
	}
	return ""
}

// run takes the steps. When one fails, what was done before is undone.
func (m *merge) run(ctx context.Context) error {
	for i, s := range m.Steps {
		err := context.Cause(ctx)
		if err == nil {
			err = failpoint.Inject("fetch/merge")
		}
		if err == nil {
			err = m.take(s)
		}
		if err != nil {
			return m.undo(i, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return nil
}

// undo takes back the first steps and explains that in the error.
func (m *merge) undo(steps int, err error) error {
	var left []string
	for _, s := range slices.Backward(m.Steps[:steps]) {
		if m.takeBack(s) != nil {
			left = append(left, string(s.Name))
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%w; these are new already and could not be put back: %s", err, some(left))
	}
	return fmt.Errorf("%w; it is as it was before", err)
}

// at opens the directories of a name on both sides.
func (m *merge) at(name string, do func(from, to int, base string) error) error {
	dir, base := path.Split(name)
	if dir == "" {
		dir = "."
	}
	src, err := m.from.Open(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := m.to.Open(dir)
	if err != nil {
		return err
	}
	defer dst.Close()
	return do(int(src.Fd()), int(dst.Fd()), base)
}

// kept is the name in From of what a step replaced, where the two could not change places.
func (s step) kept() string { return ".tandem-old-" + hash(string(s.Name))[:16] }

// take takes a step, unless it was taken.
func (m *merge) take(s step) error {
	if inodeOf(m.from, string(s.Name)) != s.Inode {
		return nil
	}
	return m.at(string(s.Name), func(from, to int, base string) error {
		err := m.renameat2(from, base, to, base, unix.RENAME_NOREPLACE)
		if err == nil {
			return nil
		}
		var there unix.Stat_t
		statErr := unix.Fstatat(to, base, &there, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(statErr, unix.ENOENT) && unsupported(err):
			return unix.Renameat(from, base, to, base)
		case !errors.Is(err, unix.EEXIST) && !unsupported(err):
			return err
		case statErr != nil:
			return statErr
		case !s.Replaces || there.Mode&unix.S_IFMT == unix.S_IFDIR:
			return errors.New("somebody put something there meanwhile")
		}
		if err := m.renameat2(from, base, to, base, unix.RENAME_EXCHANGE); !unsupported(err) {
			return err
		}
		top, err := m.from.Open(".")
		if err != nil {
			return err
		}
		defer top.Close()
		// One that cannot be kept, either, is lost with the next step.
		_ = unix.Linkat(to, base, int(top.Fd()), s.kept(), 0)
		return unix.Renameat(from, base, to, base)
	})
}

// takeBack undoes a step, if it was taken. What somebody else has put there meanwhile stays.
func (m *merge) takeBack(s step) error {
	switch inodeOf(m.from, string(s.Name)) {
	case s.Inode:
		return nil
	case 0:
	default:
		return m.at(string(s.Name), func(from, to int, base string) error {
			if inodeOf(m.to, string(s.Name)) != s.Inode {
				return errors.New("it was changed meanwhile")
			}
			return m.renameat2(to, base, from, base, unix.RENAME_EXCHANGE)
		})
	}
	if inodeOf(m.to, string(s.Name)) != s.Inode {
		return errors.New("it was changed meanwhile")
	}
	return m.at(string(s.Name), func(from, to int, base string) error {
		if !s.Replaces {
			return unix.Renameat(to, base, from, base)
		}
		top, err := m.from.Open(".")
		if err != nil {
			return err
		}
		defer top.Close()
		return unix.Renameat(int(top.Fd()), s.kept(), to, base)
	})
}

func (m *merge) renameat2(from int, old string, to int, name string, flags uint) error {
	if m.plainOnly {
		return unix.EINVAL
	}
	return unix.Renameat2(from, old, to, name, flags)
}

// unsupported tells that a file system does not know the flags of renameat2(2).
func unsupported(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) }

// inodeOf is the inode number of a name, not of what it links to; 0 when there is none.
func inodeOf(r *os.Root, name string) uint64 {
	st, err := r.Lstat(name)
	if err != nil {
		return 0
	}
	return inode(st)
}

// mountOf tells which mount a directory is on: things can be moved within one only.
func mountOf(r *os.Root, name string) (uint64, error) {
	d, err := r.Open(name)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var st unix.Statx_t
	if err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 { // before Linux 5.8
		return unix.Mkdev(st.Dev_major, st.Dev_minor), nil
	}
	return st.Mnt_id, nil
}

// some shows the first of many.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (r *mergeRecord) bytes() ([]byte, error) { return json.Marshal(r) }

// valid tells that a record is not torn and means what a daemon may do.
func (r *mergeRecord) valid(file string) bool {
	return filepath.IsAbs(r.Out) && filepath.IsAbs(r.From) && hash(r.Out) == file &&
		strings.HasPrefix(filepath.Base(r.From), unpackPrefix) && filepath.IsLocal(r.Marker) && !strings.Contains(r.Marker, "/") &&
		!slices.ContainsFunc(r.Steps, func(s step) bool { return !filepath.IsLocal(string(s.Name)) })
}
