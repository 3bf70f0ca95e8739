package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

// Wait returns when the task has ended and its output is in the sandbox.
func (r *Runtime) Wait(ctx context.Context, taskID string) (executor.Exit, error) {
	n := r.started(taskID)
	if n == nil {
		return executor.Exit{}, fmt.Errorf("task %q was not started", taskID)
	}
	select {
	case <-n.done:
		return n.exit, nil
	case <-ctx.Done():
		return executor.Exit{}, fmt.Errorf("wait for task %q: %w", taskID, ctx.Err())
	case <-r.ctx.Done():
		return executor.Exit{}, fmt.Errorf("wait for task %q: the runtime was closed", taskID)
	}
}

// watch sees a container to its end.
func (r *Runtime) watch(t *task, id string, n *run) {
	defer n.stopCopying()
	exit, ok := r.awaitExit(t, id, n)
	if !ok {
		return // closed: whoever waits learns it from the context
	}
	close(n.settled)
	// The stream that follows ends by itself now; one that hangs is not waited for.
	defer time.AfterFunc(300*time.Millisecond, n.stopFollowing).Stop()
	// The last lines are on their way; an engine that has died sends none.
	select {
	case <-n.copied:
	case <-time.After(2 * time.Second):
	case <-r.ctx.Done():
	}
	n.exit = exit
	close(n.done)
}

// awaitExit closes n.ended when the container's first process is gone and
// returns what is known of its end; false means that the runtime was closed.
func (r *Runtime) awaitExit(t *task, id string, n *run) (executor.Exit, bool) {
	ctx := r.ctx
	pid := 0
	if n.proc != nil {
		pid = n.proc.Identity().Pid
		defer n.proc.Close()
		err := n.proc.Wait(ctx)
		if ctx.Err() != nil {
			return executor.Exit{}, false
		}
		if err != nil {
			r.log.Warn("cannot watch a container's process, the engine is asked instead", "task", t.id, "err", err)
			pid = 0
		} else {
			close(n.ended)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, r.opt.ExitPatience)
			defer cancel()
		}
	}
	at := time.Now()
	for {
		exit, err := r.askExit(ctx, id, n, pid)
		if err == nil {
			if pid == 0 {
				close(n.ended)
			}
			return exit, true
		}
		select {
		case <-time.After(300 * time.Millisecond):
			continue
		case <-ctx.Done():
		}
		if r.ctx.Err() != nil {
			return executor.Exit{}, false
		}
		return r.unknown(at, err), true
	}
}

// askExit asks the engine how a container ended, waiting until it has. pid is
// the process that is known to have ended, 0 when that is not known. An error
// means that the engine could not be asked.
func (r *Runtime) askExit(ctx context.Context, id string, n *run, pid int) (executor.Exit, error) {
	const removed = "the container was removed by somebody else"
	most := askPatience
	if pid == 0 {
		most = time.Minute // it runs on; a connection that nobody serves any more is not waited at for ever
	}
	code, err := r.engine.Wait(ctx, id, most)
	if engine.IsNotFound(err) {
		return executor.Exit{At: time.Now(), Message: removed}, nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	c, err := r.engine.Inspect(ctx, id)
	switch {
	case engine.IsNotFound(err):
		c = &engine.Container{State: engine.State{ExitCode: code, FinishedAt: time.Now(), Error: removed}}
	case err != nil:
		return executor.Exit{}, err
	case c.State.Running && c.State.Pid == pid:
		return executor.Exit{}, errors.New("the engine has not noticed the end yet")
	case c.State.Running:
		// Somebody restarted it. The task that was started has ended, and what
		// runs now is nobody's.
		if err := r.engine.Kill(ctx, id, "SIGKILL"); err != nil && !engine.IsConflict(err) && !engine.IsNotFound(err) {
			return executor.Exit{}, err
		}
		return executor.Exit{At: time.Now(), Message: "the container was restarted from outside"}, nil
	}
	if c.State.ExitCode == 0 {
		doubt, err := r.confirm(ctx, id, n, c.State)
		if err != nil {
			return executor.Exit{}, err
		}
		if doubt != "" {
			return executor.Exit{At: time.Now(), Message: doubt}, nil
		}
	}
	return exited(executor.Exit{Known: true, Code: c.State.ExitCode, OOMKilled: c.State.OOMKilled,
		At: c.State.FinishedAt, Message: c.State.Error}), nil
}

// exited fills in the signal: engines report death by signal n as 128+n.
func exited(e executor.Exit) executor.Exit {
	const highest = 64
	if e.Code > 128 && e.Code <= 128+highest {
		e.Signal = e.Code - 128
	}
	return e
}
