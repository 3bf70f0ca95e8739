package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
)

// FileState tells one content of a file from a later one.
type FileState struct {
	Dev, Inode uint64
	// Size is in bytes.
	Size int64
	// ModTime is the last change of the content, ChangeTime that of anything; unlike
	// the first it cannot be set (inode(7)).
	ModTime, ChangeTime time.Time
}

// Same tells whether nothing was changed between the two.
func (s FileState) Same(o FileState) bool {
	return s.Dev == o.Dev && s.Inode == o.Inode && s.Size == o.Size && s.ModTime.Equal(o.ModTime) && s.ChangeTime.Equal(o.ChangeTime)
}

// ReadJob says which file is to be read, and for whom.
type ReadJob struct {
	// Path is absolute.
	Path string
	// As is whose rights decide; nil is the daemon's own.
	As *syscall.Credential
	// Known is the state of which the daemon has the content: it is not copied again. PeekOnly
	// asks for the state alone, whatever it is.
	Known    FileState
	PeekOnly bool
	// MaxBytes bounds the file.
	MaxBytes int64
}

// reading is a ReadJob as the child gets it.
type reading struct {
	Path []byte `json:"path"` // JSON strings hold UTF-8 alone

	Known    FileState `json:"known"`
	PeekOnly bool      `json:"peekOnly,omitempty"`
}

// Read opens a regular file with all rights of a user, and no others, and copies it to
// the file to, which must be empty. A process of its own does it, which has become
// that user: ids, supplementary groups, no capabilities. A thread of the daemon with
// another fsuid (setfsuid(2)) would find the daemon's own files under /proc/self,
// would not be that user for FUSE and NFS, and would stay for ever in a file
// system of the user's that does not answer. progress is called with the bytes copied and
// those of the whole; it may be nil. copied tells whether to holds the content, which is of the state returned.
func (r *Runner) Read(ctx context.Context, j ReadJob, to *os.File, progress func(done, total int64)) (state FileState, copied bool, err error) {
	job := &Job{
		As: j.As, MaxBytes: j.MaxBytes, Jail: j.As != nil && j.As.Uid != 0,
		Read: &reading{Path: []byte(j.Path), Known: j.Known, PeekOnly: j.PeekOnly},
	}
	type outcome struct {
		last line
		err  error
	}
	done := make(chan outcome, 1)
	none, err := os.Open(os.DevNull)
	if err != nil {
		return FileState{}, false, err
	}
	go func() {
		defer none.Close()
		last, err := r.run(ctx, job, none, to, func(l line) {
			if progress != nil && l.State != nil {
				progress(l.Packed, l.State.Size)
			}
		}, false)
		done <- outcome{last, err}
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		// The child is killed. One that stays all the same waits for a file system, maybe one
		// that its user has mounted: it is waited for, but not by whoever wants the file.
		select {
		case o = <-done:
		case <-time.After(closeTime):
			return FileState{}, false, fmt.Errorf("%w; the file system does not answer", context.Cause(ctx))
		}
	}
	if o.err != nil {
		return FileState{}, false, o.err
	}
	if o.last.State == nil {
		return FileState{}, false, errors.New("the process that reads it did not say what it read")
	}
	return *o.last.State, o.last.Copied, nil
}

// read is the child's part.
func (j *Job) read(out *json.Encoder) (line, error) {
	to := os.NewFile(toFile, "to")
	if err := limit(j); err != nil {
		return line{}, err
	}
	if err := j.enter(); err != nil {
		return line{}, fmt.Errorf("the process that reads it cannot become its user: %w", err)
	}
	if err := out.Encode(line{Confined: "rights"}); err != nil {
		return line{}, err
	}
	if err := failpoint.Inject("unpack/read"); err != nil {
		return line{}, err
	}
	from, st, err := openRegular(string(j.Read.Path))
	if err != nil {
		return line{}, explain(err)
	}
	defer from.Close()
	last := line{State: &st}
	switch {
	case j.Read.PeekOnly || st.Same(j.Read.Known):
		return last, nil
	case st.Size > j.MaxBytes:
		return line{}, fmt.Errorf("it has %d bytes, more than the limit of %d", st.Size, j.MaxBytes)
	}
	if last.Packed, err = copyAll(to, from, st, out); err != nil {
		return line{}, err
	}
	after, err := stateOf(int(from.Fd()))
	if err != nil {
		return line{}, err
	}
	if last.Packed != st.Size || !after.Same(st) {
		return line{}, errors.New("it was written to while it was copied, or is none that is stored; put it in place by a rename")
	}
	last.Copied = true
	return last, nil
}

// copyAll copies one byte more than the file says it has, if there is one.
func copyAll(to, from *os.File, st FileState, out *json.Encoder) (int64, error) {
	const piece, every = 4 << 20, 200 * time.Millisecond
	var sum int64
	var told time.Time
	for sum <= st.Size {
		n, err := io.CopyN(to, from, min(piece, st.Size+1-sum))
		sum += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return sum, err
		}
		if now := time.Now(); now.Sub(told) > every {
			told = now
			if err := out.Encode(line{Progress: Progress{Packed: sum}, State: &st}); err != nil {
				return sum, err
			}
		}
	}
	return sum, nil
}

// openRegular opens a file once it is known to be a regular one: to open another
// kind can have an effect (a device) or never end (a pipe, a file that is leased).
func openRegular(path string) (*os.File, FileState, error) {
	fail := func(err error) (*os.File, FileState, error) { return nil, FileState{}, err }
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return fail(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(fmt.Errorf("it is not a regular file (%v)", kindName(st.Mode)))
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	state, err := stateOf(fd)
	if err != nil {
		unix.Close(fd)
		return fail(err)
	}
	return os.NewFile(uintptr(fd), path), state, nil
}

func kindName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

func stateOf(fd int) (FileState, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileState{}, err
	}
	return FileState{
		Dev: st.Dev, Inode: st.Ino, Size: st.Size,
		ModTime: time.Unix(st.Mtim.Unix()).UTC(), ChangeTime: time.Unix(st.Ctim.Unix()).UTC(),
	}, nil
}

// explain says what a failure to open means for whoever wrote the URI.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return errors.New("there is no such file on this agent; check the uri, or use http to bring it here")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("uid %d, whom it is for, may not read it: %w; give the right to that user, or name another file", os.Getuid(), err)
	case errors.Is(err, unix.EAGAIN):
		return errors.New("somebody is writing to it (a lease, see fcntl(2)); put it in place by a rename")
	}
	return err
}

// enter takes on the identity of the job's user for good.
func (j *Job) enter() error {
	runtime.LockOSThread()
	if err := j.become(); err != nil {
		return err
	}
	if _, err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if j.Jail {
		// The change of the user ids has taken them, unless the daemon's securebits say
		// otherwise (capabilities(7)).
		return dropCapabilities()
	}
	return nil
}
