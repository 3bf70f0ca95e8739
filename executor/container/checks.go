package container

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/health"
	"tandem/internal/netns"
)

var _ executor.Checkable = (*Runtime)(nil)

// Netns opens the network namespace of a running container for the caller to
// close; it is nil when that is the executor's own.
func (r *Runtime) Netns(_ context.Context, taskID string) (*os.File, error) {
	n := r.started(taskID)
	switch {
	case n == nil:
		return nil, fmt.Errorf("task %q does not run", taskID)
	case n.proc == nil:
		return nil, errors.New("the kernel does not know the engine's container; an engine in another pid namespace cannot be looked into")
	}
	return netns.Open(n.proc)
}

// Exec runs a command of a check in the container, as the container's user and
// with its environment. When the context ends first, the command is killed.
func (r *Runtime) Exec(ctx context.Context, taskID string, c health.Command) (health.CommandResult, error) {
	r.mu.Lock()
	t := r.tasks[taskID]
	id := ""
	if t != nil && t.run != nil {
		id = t.containerID
	}
	r.mu.Unlock()
	if id == "" {
		return health.CommandResult{}, fmt.Errorf("task %q does not run", taskID)
	}
	execID, err := r.engine.CreateExec(ctx, id, &engine.ExecSpec{Cmd: c.Argv, Env: c.Env, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return health.CommandResult{}, err
	}
	stream, err := r.engine.StartExec(ctx, execID)
	if refused := new(engine.Error); errors.As(err, &refused) && !engine.IsNotFound(err) && !engine.IsConflict(err) {
		// So says an engine of a program that is not there or may not be run.
		return health.CommandResult{Started: true, Code: 126, Output: refused.Message}, nil
	}
	if err != nil {
		r.endExec(ctx, id, execID)
		return health.CommandResult{}, err
	}
	defer stream.Close()
	out := health.CommandResult{Started: true}
	var last tail
	err = readFrames(stream, &last)
	out.Output = last.last(health.MaxOutput)
	if ctx.Err() != nil {
		r.endExec(ctx, id, execID)
		return out, ctx.Err()
	}
	if err != nil {
		return health.CommandResult{}, fmt.Errorf("output of the command: %w", err)
	}
	return r.execEnded(ctx, execID, out)
}

// execEnded asks for the exit code. The stream may end a moment before the
// engine has noticed the end of the command.
func (r *Runtime) execEnded(ctx context.Context, execID string, out health.CommandResult) (health.CommandResult, error) {
	for {
		x, err := r.engine.InspectExec(ctx, execID)
		if err != nil {
			return health.CommandResult{}, err
		}
		if !x.Running {
			out.Code = x.ExitCode
			return out, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

// endExec kills a command for which nobody waits any more: engines leave it
// running. The number that the engine tells is believed only when the process is
// in the container.
func (r *Runtime) endExec(ctx context.Context, containerID, execID string) {
	const most = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	x, err := r.engine.InspectExec(ctx, execID)
	if err != nil || !x.Running {
		return
	}
	p := openInit(x.Pid, containerID)
	if p == nil {
		return
	}
	defer p.Close()
	if err := p.SignalGroup(syscall.SIGKILL); err != nil {
		r.log.Debug("the command of a check cannot be killed", "err", err)
	}
}

// readFrames keeps the end of what a stream of frames brings: 8 bytes of header
// (stream, 3 zeros, length), then what was written. It returns nil at a clean end.
func readFrames(r io.Reader, into *tail) error {
	var header [8]byte
	buf := make([]byte, 1<<10)
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		left := int64(binary.BigEndian.Uint32(header[4:]))
		for left > 0 {
			n, err := r.Read(buf[:min(left, int64(len(buf)))])
			into.write(buf[:n])
			if left -= int64(n); err != nil && left > 0 {
				return whole(err)
			}
		}
	}
}
