package processdaemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// rotateFile moves the content of dir/name to name.1, what was there to name.2, and
// so on up to name.<keep>, and returns how many bytes were cut off the file's head.
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
// newest output is what people look for.
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
	head := wholeBlocks(size, st.Bsize)
	collapse := head > 0 && canCollapse(f, st.Bsize)
	if !collapse {
		head = size
	}
	// A process that does not append goes on at its old place after a cut, with nothing
	// before it; that nothing is not copied.
	first, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA)
	if err != nil || first > head {
		first = 0
	}
	var copyErr error
	if keep > 0 {
		if copyErr = copyHead(root, f, name, first, head, limit, keep); errors.Is(copyErr, unix.ENOSPC) || errors.Is(copyErr, unix.EDQUOT) {
			for i := 1; i <= keep; i++ {
				_ = root.Remove(piece(name, i)) // most are not there
			}
			copyErr = copyHead(root, f, name, first, head, limit, keep)
		}
	}
	if collapse {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 0, head)
	} else {
		err = f.Truncate(0)
	}
	if err != nil {
		return 0, fmt.Errorf("cut %s: %w", name, errors.Join(err, copyErr))
	}
	if copyErr != nil {
		return head, fmt.Errorf("%d bytes of %s are lost: %w", head, name, copyErr)
	}
	return head, nil
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

func piece(name string, i int) string { return name + "." + strconv.Itoa(i) }

// copyHead makes the bytes of f from first to n the pieces number 1 and, when they
// are many, 2 and so on.
func copyHead(root *os.Root, f *os.File, name string, first, n, limit int64, keep int) error {
	count := max(1, (n-first)/max(1, limit))
	size, from := (n-first)/count, first
	if count > int64(keep) {
		count, size, from = int64(keep), limit, n-int64(keep)*limit
	}
	// The oldest first, for each moves those before it up. It has what does not divide.
	for ; count > 0; count-- {
		to := n - (count-1)*size
		if err := copyPiece(root, f, name, from, to-from, keep); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// copyPiece makes n bytes of f the piece number 1.
func copyPiece(root *os.Root, f *os.File, name string, from, n int64, keep int) error {
	tmp := ".tandem-rotate-" + name
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Seek(from, io.SeekStart)
	if err == nil {
		_, err = io.CopyN(w, f, n)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		_ = root.Remove(tmp) // a later try removes it, too
		return err
	}
	for i := keep - 1; i >= 1; i-- {
		if err := root.Rename(piece(name, i), piece(name, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return root.Rename(tmp, piece(name, 1))
}
