package processdaemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// rotateFile moves the head of dir/name into pieces, of which the last keep stay, and
// returns how many bytes were cut off.
//
// The process has the file open for appending and goes on writing, so the file
// stays the same one: its head is copied and then cut off in one step by the kernel
// (fallocate(2), FALLOC_FL_COLLAPSE_RANGE: ext4, XFS), and not a byte is lost,
// nor is the process stopped for a moment. Where the file system cannot, the file is
// truncated right after it was copied, and what is written in between is lost. Killed
// in the middle, there are two copies of some of the output, never none.
//
// What a process wrote in a burst is cut into several pieces, each of limit bytes or more
// and less than twice that; of what would be more than keep pieces the oldest is not even
// copied. So the disk holds no more of it, and a writer that is faster than a copy cannot
// make each piece longer than the one before.
//
// On a full disk the older pieces go first, then the head without a copy: the
// newest output is what people look for. An empty piece keeps the place then.
func rotateFile(dir, name string, limit int64, keep int) (cut int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	f, size, err := openRegular(root, name, os.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return rotateOpen(root, f, size, name, limit, keep)
}

// rotateOpen is rotateFile for a file that was opened and looked at.
func rotateOpen(root *os.Root, f *os.File, size int64, name string, limit int64, keep int) (cut int64, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("file system of %s: %w", name, err)
	}
	c := &cutter{root: root, f: f, name: name, keep: keep}
	if err := c.settle(); err != nil {
		return 0, err
	}
	// A process that does not append goes on at its old place after a cut, with nothing
	// before it; that nothing is not copied.
	first, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if err != nil || first > size {
		first = 0
	}
	if head := wholeBlocks(size, st.Bsize); head > 0 && canCollapse(f, st.Bsize) {
		cut, err = c.collapse(divide(min(first, head), head, limit, keep, st.Bsize))
	} else {
		cut, err = size, c.truncate(divide(first, size, limit, keep, 1), size)
	}
	if err != nil {
		return cut, fmt.Errorf("cut %s: %w", name, err)
	}
	return cut, errors.Join(c.lost...)
}

// divide returns how long the pieces of a head are, the first of them the part that is
// not worth a copy, which may be empty: what is before first, and too much of the
// rest. All are multiples of block if the head is.
func divide(first, head, limit int64, keep int, block int64) []int64 {
	skip := first / block * block
	body := head - skip
	if keep == 0 || body < block {
		return []int64{head}
	}
	limit = max(block, limit/block*block)
	count := max(1, body/limit)
	size := max(1, body/count/block) * block
	if count > int64(keep) {
		count, size = int64(keep), limit
		skip = head - count*size
	}
	// The oldest has what does not divide.
	out := []int64{skip, head - skip - (count-1)*size}
	for range count - 1 {
		out = append(out, size)
	}
	return out
}

// cutter cuts one file.
type cutter struct {
	root   *os.Root
	f      *os.File
	name   string
	keep   int
	pieces []outputPiece
	lost   []error
}

// begin is the place of the first byte in the file itself.
func (c *cutter) begin() (at int64) {
	for _, p := range c.pieces {
		at = max(at, p.begin+p.size)
	}
	return at
}

// collapse cuts one piece after another off the head.
func (c *cutter) collapse(parts []int64) (cut int64, err error) {
	for i, n := range parts {
		if n == 0 {
			continue
		}
		p := outputPiece{begin: c.begin(), size: n}
		if i == 0 || !c.copied(c.name+cuttingEnd, 0, n) {
			p.begin, p.size = p.begin+n, 0
			if err := emptyPiece(c.root, c.name); err != nil {
				c.lost = append(c.lost, err)
			}
		}
		if err := unix.Fallocate(int(c.f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, n); err != nil {
			_ = c.root.Remove(c.name + cuttingEnd) // the next try settles it, too
			return cut, err
		}
		cut += n
		p.name = pieceName(c.name, p.begin)
		if err := c.root.Rename(c.name+cuttingEnd, p.name); err != nil {
			c.lost = append(c.lost, err)
		}
		c.add(p)
	}
	return cut, nil
}

// truncate cuts all off at once, after the copies were made.
func (c *cutter) truncate(parts []int64, size int64) error {
	// Readers wait meanwhile. A file that cannot be made only makes them err.
	_ = emptyPiece(c.root, c.name)
	defer func() { _ = c.root.Remove(c.name + cuttingEnd) }() // the next try does it, too
	first, at := c.begin(), int64(0)
	for i, n := range parts {
		p := outputPiece{pieceName(c.name, first+at), first + at, n}
		if i > 0 && n > 0 && c.copied(p.name, at, n) {
			c.add(p)
		}
		at += n
	}
	if err := c.f.Truncate(0); err != nil {
		return err
	}
	if c.begin() < first+size {
		p := outputPiece{pieceName(c.name, first+size), first + size, 0}
		if err := errors.Join(emptyPiece(c.root, c.name), c.root.Rename(c.name+cuttingEnd, p.name)); err != nil {
			c.lost = append(c.lost, err)
		}
		c.add(p)
	}
	return nil
}

// add notes a new piece and drops the oldest. One always stays, empty if need be,
// since it tells the place of what follows.
func (c *cutter) add(p outputPiece) {
	if n := len(c.pieces); n > 0 && c.pieces[n-1].name == p.name {
		c.pieces = c.pieces[:n-1] // it was empty
	}
	c.pieces = append(c.pieces, p)
	for len(c.pieces) > max(c.keep, 1) {
		_ = c.root.Remove(c.pieces[0].name) // the next cut tries again
		c.pieces = c.pieces[1:]
	}
}

// copied copies a part of the file to a file of its own and tells whether that is there.
func (c *cutter) copied(to string, from, n int64) bool {
	err := copyPart(c.root, c.f, ".tandem-rotate-"+c.name, to, from, n)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		for _, p := range c.pieces {
			_ = c.root.Remove(p.name) // the copy tells whether there is room
		}
		err = copyPart(c.root, c.f, ".tandem-rotate-"+c.name, to, from, n)
	}
	if err != nil {
		c.lost = append(c.lost, fmt.Errorf("%d bytes of %s are lost: %w", n, c.name, err))
	}
	return err == nil
}

// settle finds the pieces, after it has settled what a kill in the middle of a cut left:
// the head is in the file still, and the piece goes, or it is not, and the piece gets
// its name.
func (c *cutter) settle() (err error) {
	if c.pieces, err = piecesOf(c.root, c.name); err != nil {
		return err
	}
	w, size, err := openRegular(c.root, c.name+cuttingEnd, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.root.Remove(c.name + cuttingEnd)
	}
	defer w.Close()
	if size == 0 || sameHead(c.f, w) {
		return c.root.Remove(c.name + cuttingEnd)
	}
	p := outputPiece{pieceName(c.name, c.begin()), c.begin(), size}
	c.add(p)
	return c.root.Rename(c.name+cuttingEnd, p.name)
}

// isCut tells whether an output is being cut, or was when a daemon was killed.
func isCut(root *os.Root, name string) bool {
	_, err := root.Lstat(name + cuttingEnd)
	return err == nil
}

// settleOutput settles what a kill in the middle of a cut left. Where that cannot be, as on a
// read-only disk, it stays. No head may be cut off meanwhile.
func settleOutput(root *os.Root, name string) {
	f, _, err := openRegular(root, name, os.O_RDONLY)
	if err != nil {
		return
	}
	defer f.Close()
	_ = (&cutter{root: root, f: f, name: name, keep: math.MaxInt}).settle() // see above
}

// sameHead tells whether a file begins with all that is in another.
func sameHead(f, w *os.File) bool {
	var a, b [32 << 10]byte
	for at := int64(0); ; {
		n, err := w.ReadAt(b[:], at)
		if n > 0 {
			if m, _ := f.ReadAt(a[:n], at); m < n || string(a[:n]) != string(b[:n]) {
				return false
			}
			at += int64(n)
		}
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// wholeBlocks returns how much of a file's head can be cut off: whole blocks, and
// not all of it (fallocate(2)).
func wholeBlocks(size, block int64) int64 {
	if block <= 0 {
		return 0
	}
	n := size / block * block
	if n == size {
		n -= block
	}
	return max(0, n)
}

// canCollapse tells whether the file system can cut a file's head off, without
// doing it: the range asked for reaches beyond the end, which is refused as
// invalid by those that can.
func canCollapse(f *os.File, block int64) bool {
	const beyond = 1 << 40 // less than any such file system takes, else it says EFBIG
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, beyond/block*block, block)
	return errors.Is(err, unix.EINVAL)
}

// copyPart copies n bytes of f to a file that appears whole.
func copyPart(root *os.Root, f *os.File, tmp, to string, from, n int64) error {
	w, err := freshFile(root, tmp)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(f, from, n))
	likeness(w, f)
	if err = errors.Join(err, w.Close()); err != nil {
		_ = root.Remove(tmp) // a later try removes it, too
		return err
	}
	return root.Rename(tmp, to)
}

// likeness gives a piece the owner and the mode of its file: whoever may read the one may read the
// other, and nobody else. Where that cannot be, as on some file systems, it is the daemon's own.
func likeness(w, f *os.File) {
	st, err := f.Stat()
	if err != nil {
		return
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		_ = w.Chown(int(sys.Uid), int(sys.Gid)) // see above
	}
	_ = w.Chmod(st.Mode().Perm()) // see above
}

// emptyPiece makes the piece that is being cut without content.
func emptyPiece(root *os.Root, name string) error {
	w, err := freshFile(root, name+cuttingEnd)
	if err != nil {
		return err
	}
	return w.Close()
}

// freshFile makes a file in the place of what is there.
func freshFile(root *os.Root, name string) (*os.File, error) {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
}
