package process

import (
	"context"
	"errors"
	"syscall"
	"time"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// The daemon stops processes. Only when it cannot, because it is away when the time is
// up, or knows nothing of the task, as one that was given another data directory, the
// runtime kills what it has seen started itself: "stopped" must stay true.

// ownKillAfter is how long after the grace the daemon may take until then.
const ownKillAfter = time.Second

// ownKillPause is the rest between two looks at what was killed.
const ownKillPause = 20 * time.Millisecond

// know remembers the group of a process that has just been started. Without control
// groups that is its session, once it is sure that the number is still that of the process.
func (r *Runtime) know(ctx context.Context, taskID string, pid int) {
	g := cgroup.Holding(pid, protocol.GroupName(taskID))
	if g == nil {
		leader, err := procid.Of(pid)
		if err != nil {
			return
		}
		if st, err := r.c.Status(ctx, taskID); err != nil || st.State != protocol.StateRunning || st.Pid != pid {
			return
		}
		g = cgroup.SessionOf(leader)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[taskID] = g
	r.end(taskID).doubt = false
}

func (r *Runtime) group(taskID string) *cgroup.Group {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups[taskID]
}

// isOver tells whether it is known that nothing of a task runs.
func (r *Runtime) isOver(taskID string) bool {
	g := r.group(taskID)
	if g == nil {
		return false
	}
	empty, err := g.Empty()
	return err == nil && empty
}

// stopByDaemon has the daemon end a task and waits for that, until the context ends.
func (r *Runtime) stopByDaemon(ctx context.Context, taskID string, grace time.Duration) error {
	st, err := r.c.Stop(ctx, taskID, grace)
	if err == nil {
		_, err = r.follow(ctx, st, isEnded)
	}
	return err
}

// killOurselves sends SIGKILL to what is left of a task that the daemon should have
// ended by now, and tells whether it is known that nothing is.
func (r *Runtime) killOurselves(taskID string) bool {
	g := r.group(taskID)
	if g == nil {
		return false
	}
	if r.isOver(taskID) {
		return true
	}
	r.opt.Logger.Warn("killing a process that the process daemon has not ended in time", "task", taskID)
	if err := g.Kill(); err != nil {
		r.opt.Logger.Error("process cannot be killed", "task", taskID, "error", err)
	}
	return false
}

// endForgotten ends a task that the daemon does not know: SIGTERM, after the grace
// SIGKILL, to all of it. There may be nothing left to end.
func (r *Runtime) endForgotten(ctx context.Context, taskID string, grace time.Duration) error {
	g := r.group(taskID)
	if g == nil {
		return nil
	}
	end, asked := time.Now().Add(grace), false
	for {
		empty, err := g.Empty()
		switch {
		case err != nil:
			return err
		case empty:
			return nil
		case time.Now().Before(end):
			if !asked {
				asked = true
				r.opt.Logger.Warn("the process daemon does not know the task any more; ending it", "task", taskID)
				err = g.Signal(syscall.SIGTERM)
			}
		default:
			err = g.Kill()
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(ownKillPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passes tells whether an error of a call says no more than that the daemon cannot tell now.
func passes(err error) bool {
	return !client.IsCode(err, protocol.CodeNotFound) && !client.IsCode(err, protocol.CodeInvalid)
}

// away tells whether an error says that the daemon does not answer.
func away(err error) bool {
	return errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
