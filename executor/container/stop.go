package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"tandem/executor/container/internal/engine"
	"tandem/internal/procid"
)

// killPatience is how long a container may take to end after SIGKILL: the kernel
// has to tear down its processes, and some wait for storage.
const killPatience = 20 * time.Second

// Signal sends a signal to the container's first process.
func (r *Runtime) Signal(ctx context.Context, taskID string, sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("task %q: signal %v cannot be sent to a process", taskID, sig)
	}
	r.mu.Lock()
	t := r.tasks[taskID]
	var id string
	var n *run
	if t != nil {
		id, n = t.containerID, t.run
	}
	if n != nil {
		n.signalled = true
	}
	r.mu.Unlock()
	if n == nil {
		return fmt.Errorf("task %q is not running", taskID)
	}
	return r.signal(ctx, id, n, strconv.Itoa(int(s)), s)
}

// signal goes through the engine, which wakes a paused container for it; when
// the engine is silent, straight to the process, unless the operator of the agent
// wants nothing done behind the engine's back.
func (r *Runtime) signal(ctx context.Context, id string, n *run, name string, sig syscall.Signal) error {
	kctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := r.engine.Kill(kctx, id, name)
	switch {
	case err == nil, engine.IsConflict(err), engine.IsNotFound(err):
		return nil // not running any more is what every signal may meet
	case engine.IsUnreachable(err) && !r.opt.Policy.KillWithoutEngine:
		return fmt.Errorf("%w; the policy of this agent forbids signals past the engine (killWithoutEngine)", err)
	case engine.IsUnreachable(err) && n.proc != nil && sig != 0:
		if sig == syscall.SIGKILL {
			// After the signal: nothing of the program may run before it.
			defer thaw(id)
		}
		if perr := n.proc.Signal(sig); perr != nil && !errors.Is(perr, procid.ErrGone) && !over(n.ended) {
			return errors.Join(err, perr)
		}
		return nil
	}
	return err
}

// enterToEnd is enter for what ends the task: what is being created or started
// right now learns of it, and is waited for until that is settled.
func (r *Runtime) enterToEnd(ctx context.Context, taskID string) (*task, error) {
	r.mu.Lock()
	if t := r.tasks[taskID]; t != nil {
		t.stopping = true
	}
	r.mu.Unlock()
	return r.enter(ctx, taskID)
}

// Stop ends a container: its stop signal (SIGTERM unless the image says
// otherwise), grace, SIGKILL. It returns once its processes are gone. Containers
// are stopped independently of one another: callers may stop all at once.
func (r *Runtime) Stop(ctx context.Context, taskID string, grace time.Duration) error {
	t, err := r.enterToEnd(ctx, taskID)
	if err != nil {
		return err
	}
	if t == nil {
		return nil
	}
	r.mu.Lock()
	id, n, unsure := t.containerID, t.run, t.unsure
	r.mu.Unlock()
	r.leave(t)

	if n == nil {
		if n, id, err = r.findRun(ctx, t, id, unsure); err != nil || n == nil {
			return err
		}
	}
	if over(n.ended) {
		return nil
	}
	r.mu.Lock()
	n.stopped = true
	r.mu.Unlock()
	if grace > 0 {
		if err := r.signal(ctx, id, n, n.stopSignal, signalNumber(n.stopSignal)); err != nil {
			r.log.Warn("stop signal not delivered", "task", taskID, "err", err)
		}
		if err := r.awaitEnd(ctx, taskID, n, grace); err == nil || ctx.Err() != nil {
			return err
		}
	}
	killErr := r.signal(ctx, id, n, "SIGKILL", syscall.SIGKILL)
	if err := r.awaitEnd(ctx, taskID, n, killPatience); err != nil {
		return errors.Join(err, killErr)
	}
	return nil
}

// findRun is for a task whose start is not known to have happened, or failed
// with an unknown outcome: it returns a run when the container runs after all.
func (r *Runtime) findRun(ctx context.Context, t *task, id string, unsure bool) (*run, string, error) {
	r.mu.Lock()
	sandboxed := t.sandboxed
	r.mu.Unlock()
	if id == "" && !unsure || sandboxed {
		return nil, "", nil // a sandbox has nothing to end in order: Remove does it
	}
	c, err := find(ctx, r.engine, t.name, r.opt.Journal.Name(), t.id)
	var foreign *foreignError
	if c == nil || errors.As(err, &foreign) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("stop task %q: %w", t.id, err)
	}
	if !c.State.Running {
		return nil, "", nil
	}
	r.mu.Lock()
	t.containerID = c.ID
	n := t.run
	r.mu.Unlock()
	if n == nil {
		n = r.begin(t, r.told(t, c))
	}
	return n, c.ID, nil
}

func (r *Runtime) awaitEnd(ctx context.Context, taskID string, n *run, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-n.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("task %q still runs %v after it was told to end", taskID, limit)
	case <-ctx.Done():
		return fmt.Errorf("stop task %q: %w", taskID, ctx.Err())
	case <-r.ctx.Done():
		return fmt.Errorf("stop task %q: the runtime was closed", taskID)
	}
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signalNumber reads what an image's STOPSIGNAL may hold; 0 when it is not known here.
func signalNumber(name string) syscall.Signal {
	if n, err := strconv.Atoi(name); err == nil {
		return syscall.Signal(n)
	}
	switch name {
	case "SIGTERM", "TERM":
		return syscall.SIGTERM
	case "SIGINT", "INT":
		return syscall.SIGINT
	case "SIGQUIT", "QUIT":
		return syscall.SIGQUIT
	case "SIGHUP", "HUP":
		return syscall.SIGHUP
	case "SIGUSR1", "USR1":
		return syscall.SIGUSR1
	case "SIGUSR2", "USR2":
		return syscall.SIGUSR2
	case "SIGKILL", "KILL":
		return syscall.SIGKILL
	}
	return 0
}

// Remove deletes the container, killing it if it still runs, and then its
// record. When it is not known whether the engine ever made the container, and
// none is found, the record stays: the process daemon looks again after this
// executor has ended.
func (r *Runtime) Remove(ctx context.Context, taskID string) error {
	t, err := r.enterToEnd(ctx, taskID)
	if err != nil {
		return err
	}
	if t == nil {
		return nil
	}
	defer r.leave(t)
	r.mu.Lock()
	id, n, unsure := t.containerID, t.run, t.unsure
	r.mu.Unlock()
	gone := true
	if id == "" && unsure {
		c, err := find(ctx, r.engine, t.name, r.opt.Journal.Name(), t.id)
		if err != nil {
			return fmt.Errorf("remove task %q: %w", taskID, err)
		}
		if gone = c != nil; gone {
			id = c.ID
		}
	}
	if id != "" {
		known, err := removeKnown(ctx, r.engine, id)
		if err != nil {
			return fmt.Errorf("remove task %q: %w", taskID, err)
		}
		gone = known || !unsure
	}
	if n != nil {
		// The engine has let go, so both goroutines end by themselves.
		for _, c := range []chan struct{}{n.done, n.copied} {
			select {
			case <-c:
			case <-ctx.Done():
				return fmt.Errorf("remove task %q: %w", taskID, ctx.Err())
			case <-r.ctx.Done():
			}
		}
	}
	if gone {
		if err := removeFiles(t.files); err != nil {
			return fmt.Errorf("remove task %q: %w", taskID, err)
		}
		if err := r.opt.Journal.Delete(Kind, taskID); err != nil {
			return err
		}
		if t.cpus > 0 {
			// For those who share to see; should it fail, they see it later.
			_ = r.opt.Journal.Exclusive(ctx, cpusetLock, func(time.Time) error { return nil })
		}
	}
	r.mu.Lock()
	delete(r.tasks, taskID)
	delete(r.images, taskID)
	if t.pause != nil {
		t.pause.Close()
		t.pause = nil
	}
	r.mu.Unlock()
	return nil
}

// remove deletes a container and returns once it is gone; one that is gone
// already is no error, and one that somebody else is removing is waited for.
func remove(ctx context.Context, c *engine.Client, id string) error {
	_, err := removeKnown(ctx, c, id)
	return err
}

// removeKnown is remove, and tells whether the engine knew the container. One that it
// shows and does not know may be just being made: Docker Engine lists a container
// before it has taken it into its books, and a removal in between is answered with 404
// and changes nothing.
func removeKnown(ctx context.Context, c *engine.Client, id string) (known bool, err error) {
	for {
		err := c.Remove(ctx, id)
		if err == nil || engine.IsNotFound(err) {
			return known || err == nil, nil
		}
		if !engine.IsConflict(err) {
			return known, err
		}
		known = true
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return known, errors.Join(err, ctx.Err())
		}
	}
}
