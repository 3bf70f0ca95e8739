package processdaemon

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tandem/internal/cgroup"
	"tandem/internal/execstream"
	"tandem/internal/pty"
	"tandem/processdaemon/protocol"
)

// Session runs a command beside a running task, as Exec does, with input and
// with a terminal where one is asked for, and returns its exit code, 128+n after
// signal n. When the context ends first, or the task does, all that is in the
// session is killed; so is what the command leaves there. What has made a
// session of its own ends with the task.
func (d *Daemon) Session(ctx context.Context, id string, req protocol.SessionRequest, term execstream.Terminal) (int, error) {
	t, ctx, done, err := d.besideRunning(ctx, id, req.Argv, req.Env, "a session can be opened")
	if err != nil {
		return 0, err
	}
	defer done()
	return t.session(ctx, &req, term)
}

func (t *task) session(ctx context.Context, req *protocol.SessionRequest, term execstream.Terminal) (int, error) {
	cmd, err := t.beside(ctx, req.Argv, req.Env)
	if noProgram := (*notFoundError)(nil); errors.As(err, &noProgram) {
		_, err = io.WriteString(either(req.TTY, term.Stdout, term.Stderr), err.Error()+lineEnd(req.TTY))
		return 127, err
	}
	if err != nil {
		return 0, err
	}
	defer cmd.close()
	ends, err := attach(cmd.Cmd, req, t.rec.Spec.User)
	if err != nil {
		return 0, fail(protocol.CodeInternal, "%v", err)
	}
	defer ends.close()
	p, err := t.begin(cmd)
	ends.started()
	if p == nil && t.status().State != running {
		return 0, fail(protocol.CodeConflict, tookAlong)
	}
	if p == nil {
		_, err = io.WriteString(either(req.TTY, term.Stdout, term.Stderr), req.Argv[0]+": "+err.Error()+lineEnd(req.TTY))
		return 126, err
	}
	defer t.d.kids.untrack(cmd.Process.Pid)
	defer p.Close()
	if err != nil {
		_ = p.SignalGroup(syscall.SIGKILL)
	}
	var reading sync.WaitGroup
	ends.begin(ctx, term, &reading)
	waitErr := cmd.Wait()
	if killErr := cgroup.SignalSession(p.Identity(), syscall.SIGKILL); killErr != nil {
		t.log.Warn("what a session has left cannot be killed", "err", killErr)
	}
	ends.ended(&reading)
	switch exit := (*exec.ExitError)(nil); {
	case err != nil:
		return 0, fail(protocol.CodeInternal, "%v", err)
	case t.tookAlong(ctx, cmd.ProcessState):
		return 0, fail(protocol.CodeConflict, tookAlong)
	case waitErr != nil && !errors.As(waitErr, &exit):
		return 0, fail(protocol.CodeInternal, "wait for the command: %v", waitErr)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

func either(first bool, a, b io.Writer) io.Writer {
	if first {
		return a
	}
	return b
}

func lineEnd(tty bool) string {
	if tty {
		return "\r\n"
	}
	return "\n"
}

// ends are the daemon's ends of a command's files.
type ends struct {
	theirs []*os.File
	// in is nil when there is no input; out and err are what the command writes,
	// err nil with a terminal, whose master is both in and out.
	in, out, err *os.File
	over         atomic.Bool
	sizes        sync.WaitGroup
	stopSizes    context.CancelFunc
}

// attach makes the files of a command: a terminal, or pipes.
func attach(cmd *exec.Cmd, req *protocol.SessionRequest, user string) (_ *ends, err error) {
	e := &ends{}
	defer func() {
		if err != nil {
			e.started()
			e.close()
		}
	}()
	if req.TTY {
		master, terminal, err := pty.Open()
		if err != nil {
			return nil, err
		}
		e.out, e.theirs = master, []*os.File{terminal}
		as, err := lookupAccount(user)
		if err == nil && as.cred != nil {
			// grantpt(3): the terminal is its user's.
			err = errors.Join(terminal.Chown(as.uid, -1), terminal.Chmod(0o620))
		}
		if err == nil && req.Width > 0 && req.Height > 0 {
			err = pty.SetSize(master, req.Width, req.Height)
		}
		if err != nil {
			return nil, err
		}
		e.in = master
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		cmd.SysProcAttr.Setctty = true
		return e, nil
	}
	pipe := func(ours **os.File, outward bool) *os.File {
		r, w, pipeErr := os.Pipe()
		if err = errors.Join(err, pipeErr); pipeErr != nil {
			return nil
		}
		if outward {
			*ours = r
			e.theirs = append(e.theirs, w)
			return w
		}
		*ours = w
		e.theirs = append(e.theirs, r)
		return r
	}
	if req.Stdin {
		if r := pipe(&e.in, false); r != nil {
			cmd.Stdin = r
		}
	}
	cmd.Stdout, cmd.Stderr = pipe(&e.out, true), pipe(&e.err, true)
	return e, err
}

// started closes what is the command's alone now.
func (e *ends) started() {
	for _, f := range e.theirs {
		f.Close()
	}
	e.theirs = nil
}

// begin passes on what comes and goes.
func (e *ends) begin(ctx context.Context, term execstream.Terminal, reading *sync.WaitGroup) {
	if term.Stdin != nil && e.in != nil {
		// It ends with its reader, which whoever made it closes.
		go func() {
			_, err := io.Copy(e.in, term.Stdin)
			switch {
			case e.err != nil:
				e.in.Close()
			case err == nil:
				// A terminal has no end of input; this is how its user would say so.
				_, _ = e.in.Write([]byte{4}) // a command that has ended reads no more
			}
		}()
	}
	reading.Go(func() { e.copy(term.Stdout, e.out) })
	if e.err != nil {
		reading.Go(func() { e.copy(term.Stderr, e.err) })
	}
	ctx, e.stopSizes = context.WithCancel(ctx)
	e.sizes.Go(func() {
		for {
			select {
			case s := <-term.Resize:
				if e.err == nil && s.Width > 0 && s.Height > 0 {
					_ = pty.SetSize(e.out, s.Width, s.Height) // a terminal of a wrong size is better than none
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// outputLinger is how long output is waited for after the end of a command. What
// has made a session of its own may hold a pipe open for ever.
const outputLinger = 200 * time.Millisecond

// copy passes output on to its end, however slow its reader is.
func (e *ends) copy(to io.Writer, from *os.File) {
	buf := make([]byte, 32<<10)
	for last := false; ; {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			last = false
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !last:
			// The time may have passed while the reader was slow.
			last = true
		default:
			return
		}
		if e.over.Load() {
			_ = from.SetReadDeadline(time.Now().Add(outputLinger)) // pipes and terminals have deadlines
		}
	}
}

// ended waits until all output is passed on.
func (e *ends) ended(reading *sync.WaitGroup) {
	e.over.Store(true)
	for _, f := range []*os.File{e.out, e.err} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now().Add(outputLinger)) // as above
		}
	}
	reading.Wait()
}

func (e *ends) close() {
	if e.stopSizes != nil {
		e.stopSizes()
		e.sizes.Wait()
	}
	for _, f := range []*os.File{e.in, e.out, e.err} {
		if f != nil {
			f.Close()
		}
	}
}
