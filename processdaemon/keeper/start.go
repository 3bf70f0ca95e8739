package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/cgroup"
	"tandem/internal/failpoint"
)

// Launch says how to start a keeper.
type Launch struct {
	// Dir is the keeper's directory; one keeper runs for it at a time.
	Dir string
	// Program is run with the arguments "keeper" and Dir; empty is the caller's own.
	Program string
	// Tree is the subtree of control groups in which the keeper is to have its own.
	// Nothing else may use it: the keeper removes it when it ends.
	Tree *cgroup.Tree
	// Points arms failpoints in it; tests only.
	Points string
}

const (
	// startTime bounds the start of a keeper: until it listens.
	startTime = 20 * time.Second
	maxLog    = 1 << 20
)

// groupName is the keeper's control group in its subtree.
const groupName = "keeper"

// Group is the control group of the keeper.
func (l *Launch) Group() *cgroup.Group { return l.Tree.Group(groupName) }

// Start starts a keeper and returns once it listens. It has a session and a
// control group of its own, so that what ends the daemon does not end it. wait, to
// be run beside, returns when the keeper, process pid, has ended; it collects it.
func Start(ctx context.Context, l Launch) (pid int, wait func(), err error) {
	if err := atomicfile.MkdirAll(l.Dir, 0o700); err != nil {
		return 0, nil, err
	}
	log, err := openLog(filepath.Join(l.Dir, "log"))
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	for end := time.Now().Add(leaveTime); ; time.Sleep(leavePause) {
		pid, wait, err = l.start(ctx, log)
		if !errors.Is(err, errGroupGone) || time.Now().After(end) {
			return pid, wait, err
		}
	}
}

// A keeper that ends removes its group, which is that of the next one, too: it listens no more by
// then, so the next one may be starting.
var errGroupGone = errors.New("another keeper has removed the control group")

const (
	leaveTime  = 5 * time.Second
	leavePause = 2 * time.Millisecond
)

// start is one try of Start.
func (l *Launch) start(ctx context.Context, log *os.File) (pid int, wait func(), err error) {
	group := l.Group()
	if _, err := group.Create(cgroup.Limits{}); err != nil {
		return 0, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	defer w.Close()
	program := l.Program
	if program == "" {
		program = "/proc/self/exe"
	}
	// Not through a context: it is to outlive whoever starts it.
	cmd := exec.Command(program, Command, l.Dir, l.Tree.Base()) //nolint:noctx // see above
	cmd.Args[0] = "tandem-processd"
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, []*os.File{w}
	cmd.Env = failpoint.Environ(l.Points)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	dir, err := group.OpenForClone()
	if cgroup.Gone(err) {
		return 0, nil, fmt.Errorf("start keeper: %w: %w", errGroupGone, err)
	}
	if err != nil {
		return 0, nil, err
	}
	join := group.Add
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
		join = group.AddCloned
	}
	if err := cmd.Start(); err != nil {
		// The kernel says the same of a program that is not there.
		if _, programErr := os.Stat(program); programErr == nil && cgroup.Gone(err) {
			err = fmt.Errorf("%w: %w", errGroupGone, err)
		}
		return 0, nil, fmt.Errorf("start keeper: %w", err)
	}
	w.Close()
	if err = join(cmd.Process.Pid); err == nil {
		err = awaitReady(ctx, r)
	} else if cgroup.Gone(err) {
		err = fmt.Errorf("%w: %w", errGroupGone, err)
	}
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed, so it fails
		return 0, nil, fmt.Errorf("start keeper: %w; its log is %s", err, log.Name())
	}
	return cmd.Process.Pid, func() { _ = cmd.Wait() }, nil
}

// awaitReady reads what a starting keeper has to say: nothing, when all is well.
func awaitReady(ctx context.Context, r *os.File) error {
	limit := time.Now().Add(startTime)
	if at, ok := ctx.Deadline(); ok && at.Before(limit) {
		limit = at
	}
	if err := r.SetReadDeadline(limit); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	const most = 4096
	b, err := io.ReadAll(io.LimitReader(r, most))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it does not listen after %v", startTime)
	case err != nil:
		return err
	case len(b) > 0:
		return errors.New(strings.TrimSpace(string(b)))
	}
	return nil
}

// openLog opens the keeper's log, of which only the last megabyte or so is kept.
func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("keeper's log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keeper's log: %w", err)
	}
	return f, nil
}
