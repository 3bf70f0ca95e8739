package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// unpacker writes the entries of one archive below a root. os.Root holds
// every path inside, however the links in it may point; the checks here are
// about what must not even be left behind.
type unpacker struct {
	ctx  context.Context //nolint:containedctx // lives for one call
	root *os.Root
	Options

	files int
	bytes int64    // of files
	raw   int64    // of a decompressed tar stream
	links []string // to be followed at the end
	dirs  map[string]fs.FileMode
}

// clean checks an entry's name and returns it relative and slash-separated,
// "." for the root itself.
func clean(name string) (string, error) {
	const longest, deepest = 4096, 128
	switch {
	case name == "":
		return "", hostile("an entry without a name")
	case strings.ContainsRune(name, 0):
		return "", hostile("the name %q holds a zero byte", name)
	case len(name) > longest:
		return "", hostile("a name of %d bytes", len(name))
	case path.IsAbs(name):
		return "", hostile("the name %q is absolute", name)
	case strings.Contains("/"+name+"/", "/../"):
		return "", hostile("the name %q leads out by ..", name)
	}
	c := path.Clean(name)
	if strings.Count(c, "/") > deepest {
		return "", hostile("the name %.60q... has more than %d levels", c, deepest)
	}
	return c, nil
}

// count takes one entry into account.
func (u *unpacker) count() error {
	if err := u.ctx.Err(); err != nil {
		return context.Cause(u.ctx)
	}
	if u.files++; u.files > u.MaxFiles {
		return hostile("more than %d entries", u.MaxFiles)
	}
	return nil
}

// perm keeps the permission bits alone: no setuid, setgid or sticky bit
// (they would work for whoever runs the file).
func perm(m fs.FileMode) fs.FileMode { return m & 0o777 }

// special is for a file with a setuid or setgid bit: the bits are dropped or, in
// a fresh directory, the file is refused. On directories they are always dropped.
func (u *unpacker) special(name string) error {
	if u.InUse {
		return nil
	}
	return hostile("%q has a setuid or setgid bit; make the archive without them", name)
}

func (u *unpacker) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	// Each level by itself, so that each gets its owner.
	for i, c := range dir {
		if c == '/' {
			if err := u.mkdir(dir[:i]); err != nil {
				return err
			}
		}
	}
	return u.mkdir(dir)
}

func (u *unpacker) mkdir(name string) error {
	err := u.root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		st, err := u.root.Lstat(name)
		if err != nil {
			return err
		}
		isLink := st.Mode()&fs.ModeSymlink != 0
		if isLink && u.InUse {
			if st, err = u.root.Stat(name); err != nil {
				return err
			}
		} else if isLink {
			// An honest archive writes below a directory's own name. Even
			// where the link stays inside, order would decide what is overwritten.
			return hostile("%q is a link, and entries lie below it", name)
		}
		if !st.IsDir() {
			return hostile("%q is a file, and entries lie below it", name)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return u.chown(name)
}

func (u *unpacker) dir(name string, mode fs.FileMode) error {
	if name == "." {
		return nil
	}
	if err := u.parents(name); err != nil {
		return err
	}
	if err := u.mkdir(name); err != nil {
		return err
	}
	// Modes come last: one without the write bit would lock its own entries out.
	u.dirs[name] = perm(mode) | 0o700
	return nil
}

// clear makes room for an entry that comes a second time, as archives that
// were appended to have it; the last one counts. In a fresh directory it is
// refused: what is unpacked would depend on who unpacks, and on how far.
func (u *unpacker) clear(name string) error {
	if name == "." {
		return hostile("an entry in the place of the whole")
	}
	if err := u.parents(name); err != nil {
		return err
	}
	st, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.IsDir() {
		return hostile("%q is a directory and a file", name)
	}
	if !u.InUse {
		return hostile("%q comes twice", name)
	}
	return u.root.Remove(name)
}

func (u *unpacker) file(name string, mode fs.FileMode, r io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	w, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := io.Copy(w, &bounded{u, r, &u.bytes}); err != nil {
		return err
	}
	if u.Owner.UID >= 0 {
		if err := w.Chown(u.Owner.UID, u.Owner.GID); err != nil {
			return err
		}
	}
	if err := w.Chmod(perm(mode) | 0o400); err != nil {
		return err
	}
	return w.Close()
}

// bounded counts what comes out of an archive.
type bounded struct {
	u   *unpacker
	r   io.Reader
	sum *int64
}

func (b *bounded) Read(p []byte) (int, error) {
	u := b.u
	if err := u.ctx.Err(); err != nil {
		return 0, context.Cause(u.ctx)
	}
	n, err := b.r.Read(p)
	*b.sum += int64(n)
	if *b.sum > u.MaxBytes {
		return 0, hostile("more than %d bytes unpacked", u.MaxBytes)
	}
	// Real content does not shrink a thousandfold; gigabytes of zeros do.
	const bigEnough, usual = 128 << 20, 1000
	ratio := u.MaxRatio
	if ratio <= 0 {
		ratio = usual
	}
	if u.Packed > 0 && *b.sum > bigEnough && *b.sum/ratio > u.Packed {
		return 0, hostile("unpacks to more than %d times its size", ratio)
	}
	if u.Progress != nil {
		u.Progress(u.files, u.bytes)
	}
	return n, err
}

func (u *unpacker) symlink(name, target string) error {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return hostile("the link %q points to %q; only relative targets inside the archive are taken", name, target)
	}
	if to := path.Join(path.Dir(name), target); to == ".." || strings.HasPrefix(to, "../") {
		return hostile("the link %q points outside, to %q", name, target)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	if u.InUse {
		if err := u.staysInside(name, target); err != nil {
			return err
		}
	}
	if err := u.root.Symlink(target, name); err != nil {
		return err
	}
	if !u.InUse {
		u.links = append(u.links, name)
	}
	return u.chown(name)
}

// staysInside allows only what cannot lead out together with other links
// either, those that come later included: ".." only at the beginning of the
// target, no more often than the link is deep, and from a directory that is
// reached without links.
func (u *unpacker) staysInside(name, target string) error {
	refused := hostile("the link %q points to %q, which leads or may lead outside", name, target)
	climbs, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == ".." && down:
			return refused
		case part == "..":
			climbs++
		case part != "" && part != ".":
			down = true
		}
	}
	if climbs > strings.Count(name, "/") {
		return refused
	}
	for dir := path.Dir(name); climbs > 0 && dir != "."; dir = path.Dir(dir) {
		st, err := u.root.Lstat(dir)
		if err != nil {
			return err
		}
		if !st.IsDir() {
			return refused
		}
	}
	return nil
}

// hardlink links to a file of the archive. One to a symbolic link would move
// that to another depth, where it may lead out.
func (u *unpacker) hardlink(name, target string) error {
	t, err := clean(target)
	if err != nil {
		return err
	}
	if t == name {
		return nil
	}
	st, err := u.root.Lstat(t)
	if err != nil || !st.Mode().IsRegular() {
		return hostile("the hard link %q points to %q, which is no file of the archive", name, target)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Link(t, name)
}

func (u *unpacker) chown(name string) error {
	if u.Owner.UID < 0 {
		return nil
	}
	return u.root.Lchown(name, u.Owner.UID, u.Owner.GID)
}

// finish sets the directories' modes and looks at where the links really
// lead: through other links, a harmless text can lead out.
func (u *unpacker) finish() error {
	for _, l := range u.links {
		if st, err := u.root.Lstat(l); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			continue // replaced by a later entry
		}
		if _, err := u.root.Stat(l); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return hostile("the link %q leads outside: %v", l, err)
		}
	}
	for name, mode := range u.dirs {
		if err := u.chmodDir(name, mode); err != nil {
			return err
		}
	}
	return nil
}

// chmodDir goes through a handle: a change by name that does not follow links
// needs /proc before Linux 6.6, which is not there for who has changed its root.
func (u *unpacker) chmodDir(name string, mode fs.FileMode) error {
	d, err := u.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Chmod(mode)
}
