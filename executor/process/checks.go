package process

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tandem/executor"
	"tandem/executor/health"
	"tandem/internal/netns"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

var _ executor.Checkable = (*Runtime)(nil)

// Netns opens the network namespace of a running process for the caller to
// close; it is nil when that is the executor's own.
func (r *Runtime) Netns(ctx context.Context, taskID string) (*os.File, error) {
	st, err := r.c.Status(ctx, taskID)
	if err != nil {
		return nil, err
	}
	if st.State != protocol.StateRunning {
		return nil, fmt.Errorf("task %q does not run", taskID)
	}
	p, err := procid.OpenPid(st.Pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	// The number was the task's before it was opened; so it is this process's, if it still is.
	again, err := r.c.Status(ctx, taskID)
	if err != nil {
		return nil, err
	}
	if again.State != protocol.StateRunning || again.Pid != st.Pid {
		return nil, fmt.Errorf("task %q does not run any more", taskID)
	}
	return netns.Open(p)
}

// Exec runs a command of a check beside the process, as its user, with its
// environment and in its control group. The daemon does that and kills it when
// the context ends.
func (r *Runtime) Exec(ctx context.Context, taskID string, c health.Command) (health.CommandResult, error) {
	res, started, err := r.c.Exec(ctx, taskID, protocol.ExecRequest{Argv: c.Argv, Env: c.Env})
	if err != nil {
		started = started && errors.Is(err, ctx.Err())
	}
	return health.CommandResult{Started: started, Code: res.Code, Output: res.Output}, err
}
