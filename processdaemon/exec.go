package processdaemon

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/internal/procattr"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// execOutput is how much of a command's output is told.
const execOutput = 1 << 10

// Exec runs a command beside a running task: as its user, with its environment,
// in its workPath and control group. started is called once it runs. When the
// context ends first, or the task does, the command is killed with all that it
// forked, and so is what it leaves in its session.
//
// The daemon is the parent of such a command, and no record names it: it is in
// the task's control group, so what a daemon leaves that is killed meanwhile
// ends with the task at the latest.
func (d *Daemon) Exec(ctx context.Context, id string, req protocol.ExecRequest, started func()) (protocol.ExecResult, error) {
	t, ctx, done, err := d.besideRunning(ctx, id, req.Argv, req.Env, "a command can be run")
	if err != nil {
		return protocol.ExecResult{}, err
	}
	defer done()
	return t.exec(ctx, &req, started)
}

// besideRunning checks what is asked for beside a task, and returns the task with a
// context that ends with its running. done is to be called in the end; what says
// what cannot be done in a task that does not run.
func (d *Daemon) besideRunning(ctx context.Context, id string, argv, env []string, what string) (t *task, until context.Context, done func(), err error) {
	if t, err = d.task(id); err != nil {
		return nil, nil, nil, err
	}
	if len(argv) == 0 || strings.ContainsRune(strings.Join(append(slices.Clone(argv), env...), ""), 0) {
		return nil, nil, nil, fail(protocol.CodeInvalid, "argv: want a program and its arguments, without zero bytes")
	}
	if s := t.status(); s.State != running {
		return nil, nil, nil, fail(protocol.CodeConflict, "task %q is %s: %s in a running task only", id, s.State, what)
	}
	until, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		t.whileRunning(until)
		cancel()
	})
	return t, until, func() { cancel(); watch.Wait() }, nil
}

// whileRunning returns when the task does not run any more, or with the context.
func (t *task) whileRunning(ctx context.Context) {
	for {
		s, changed := t.watchStatus()
		if s.State != running {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-t.ctx.Done():
			return
		}
	}
}

// notFoundError is what a shell says of a program that is not there.
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }

// command is one that runs beside a task, as it does, in a session of its own.
type command struct {
	*exec.Cmd
	attrs procattr.Attrs
	// dir is the control group that it is cloned into; nil where it is moved there.
	dir *os.File
}

// beside makes a command; it is to be closed once it has started.
func (t *task) beside(ctx context.Context, argv, env []string) (_ *command, err error) {
	// These parts of the specification never change.
	spec := &t.rec.Spec
	as, err := lookupAccount(spec.User)
	if err != nil {
		return nil, fail(protocol.CodeInternal, "%v", err)
	}
	env = fullEnv(append(append([]string(nil), spec.Env...), env...), as, t.status().Pid)
	path, err := findProgram(argv[0], spec.WorkPath, env)
	if err != nil {
		return nil, &notFoundError{argv[0] + ": " + err.Error()}
	}
	c := &command{Cmd: exec.CommandContext(ctx, path)}
	c.Path, c.Args, c.Err = path, argv, nil
	c.Dir, c.Env = spec.WorkPath, env
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as.cred}
	if c.dir, err = t.group.OpenForClone(); err != nil {
		return nil, fail(protocol.CodeConflict, "task %q has ended: %v", spec.ID, err)
	}
	if c.dir != nil {
		c.SysProcAttr.UseCgroupFD, c.SysProcAttr.CgroupFD = true, int(c.dir.Fd())
	}
	if c.attrs, err = attrsOf(spec, as); err != nil {
		c.close()
		return nil, fail(protocol.CodeInternal, "%v", err)
	}
	return c, nil
}

func (c *command) close() {
	if c.dir != nil {
		c.dir.Close()
	}
	if c.attrs.NetNS != nil {
		c.attrs.NetNS.Close()
	}
}

func (t *task) exec(ctx context.Context, req *protocol.ExecRequest, started func()) (protocol.ExecResult, error) {
	cmd, err := t.beside(ctx, req.Argv, req.Env)
	if noProgram := (*notFoundError)(nil); errors.As(err, &noProgram) {
		return protocol.ExecResult{Code: 127, Output: noProgram.text}, nil
	}
	if err != nil {
		return protocol.ExecResult{}, err
	}
	defer cmd.close()
	out := &outputEnd{most: execOutput}
	cmd.Stdout, cmd.Stderr = out, out
	// What the command leaves in the background may keep its output open.
	cmd.WaitDelay = 100 * time.Millisecond
	p, err := t.begin(cmd)
	if p == nil && t.status().State != running {
		// Its group has gone with it.
		return protocol.ExecResult{}, fail(protocol.CodeConflict, tookAlong)
	}
	if p == nil {
		return protocol.ExecResult{Code: 126, Output: req.Argv[0] + ": " + err.Error()}, nil
	}
	defer t.d.kids.untrack(cmd.Process.Pid)
	defer p.Close()
	if err == nil {
		started()
	} else {
		_ = p.SignalGroup(syscall.SIGKILL)
	}
	waitErr := cmd.Wait()
	// Whoever is left of its session would be there at the next check, too.
	_ = p.SignalGroup(syscall.SIGKILL)
	if err != nil {
		return protocol.ExecResult{}, fail(protocol.CodeInternal, "%v", err)
	}
	if t.tookAlong(ctx, cmd.ProcessState) {
		return protocol.ExecResult{}, fail(protocol.CodeConflict, tookAlong)
	}
	if exit := (*exec.ExitError)(nil); waitErr != nil && !errors.As(waitErr, &exit) && !errors.Is(waitErr, exec.ErrWaitDelay) {
		return protocol.ExecResult{}, fail(protocol.CodeInternal, "wait for the command: %v", waitErr)
	}
	res := protocol.ExecResult{Code: cmd.ProcessState.ExitCode(), Output: out.String()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.Code = 128 + int(ws.Signal())
	}
	return res, nil
}

const tookAlong = "the command was killed: the task has ended, or nobody waits for it any more"

// tookAlong tells whether a command has not ended by itself. What kills all of a task
// reaches the command, too, and its end may be seen before the context's.
func (t *task) tookAlong(ctx context.Context, ended *os.ProcessState) bool {
	if ctx.Err() != nil {
		return true
	}
	ws, ok := ended.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && t.status().State != running
}

// begin starts a command, cloned into the task's control group or moved there;
// a handle is returned whenever it runs. On a machine that can only move, it runs
// outside for its first instants, and everywhere without its resource limits.
func (t *task) begin(cmd *command) (*procid.Process, error) {
	var p *procid.Process
	known := make(chan struct{})
	tell := sync.OnceFunc(func() { close(known) })
	defer tell()
	cmd.Cancel = func() error {
		// It may be called as soon as the command has started.
		<-known
		if p == nil {
			return cmd.Process.Kill()
		}
		return p.SignalGroup(syscall.SIGKILL)
	}
	// The child is tracked before a collector may look at it.
	t.d.kids.fork.RLock()
	defer t.d.kids.fork.RUnlock()
	if err := cmd.attrs.Start(cmd.Start); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	var err error
	if p, err = t.d.openPid(pid); err != nil {
		// Wait waits for a Cancel that has begun.
		p = nil
		tell()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	t.d.kids.track(pid)
	if err := cmd.attrs.Apply(pid); err != nil {
		return p, err
	}
	if cmd.dir != nil {
		return p, t.group.AddCloned(pid)
	}
	return p, t.group.Add(pid)
}

// outputEnd keeps the end of what is written.
type outputEnd struct {
	most int
	mu   sync.Mutex
	b    []byte
}

func (l *outputEnd) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if cut := len(l.b) - l.most; cut > 0 {
		l.b = append(l.b[:0], l.b[cut:]...)
	}
	return len(p), nil
}

func (l *outputEnd) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.ToValidUTF8(string(l.b), "?")
}
