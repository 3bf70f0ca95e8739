package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/health"
)

var _ executor.Interactive = (*Runtime)(nil)

// sessionStart bounds the start of a session's command.
const sessionStart = 30 * time.Second

// AllowSession asks the operator's policy.
func (r *Runtime) AllowSession(loopback bool) error { return r.opt.Policy.Session(loopback) }

// Session runs a command in a container, as its user and with its environment.
// A program that is not there has the exit code 126 or 127, as the engine tells.
func (r *Runtime) Session(ctx context.Context, taskID string, c executor.Terminal) (int, error) {
	r.mu.Lock()
	id := ""
	if t := r.tasks[taskID]; t != nil && t.run != nil {
		id = t.containerID
	}
	r.mu.Unlock()
	if id == "" {
		return 0, fmt.Errorf("task %q does not run", taskID)
	}
	start, cancel := context.WithTimeout(ctx, sessionStart)
	defer cancel()
	execID, err := r.engine.CreateExec(start, id, &engine.ExecSpec{
		Cmd: c.Command, Tty: c.TTY, AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	stream, err := r.engine.AttachExec(start, execID, c.TTY)
	if err != nil {
		r.endExec(ctx, id, execID)
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	defer stream.Close()
	if c.TTY {
		r.resize(ctx, execID, c.Width, c.Height)
		sizes, enough := context.WithCancel(ctx)
		done := make(chan struct{})
		defer func() { enough(); <-done }()
		go func() {
			defer close(done)
			for {
				select {
				case s := <-c.Resize:
					r.resize(sizes, execID, s.Width, s.Height)
				case <-sizes.Done():
					return
				}
			}
		}()
	}
	if c.Stdin != nil {
		// It ends with its reader, which whoever made it closes.
		go func() {
			if _, err := io.Copy(stream, c.Stdin); err == nil {
				_ = stream.CloseWrite() // at the end of a command there is nothing to be closed
			}
		}()
	}
	if c.TTY {
		_, err = io.Copy(c.Stdout, stream)
	} else {
		err = copyFrames(stream, c.Stdout, c.Stderr)
	}
	if ctx.Err() != nil || err != nil {
		r.endExec(ctx, id, execID)
		return 0, errors.Join(err, ctx.Err())
	}
	ended, cancel := context.WithTimeout(ctx, sessionStart)
	defer cancel()
	out, err := r.execEnded(ended, execID, health.CommandResult{})
	return out.Code, err
}

// resize is tried only: a terminal of a wrong size is better than none.
func (r *Runtime) resize(ctx context.Context, execID string, width, height uint16) {
	if width == 0 || height == 0 {
		return
	}
	if err := r.engine.ResizeExec(ctx, execID, width, height); err != nil {
		r.log.Debug("size of a terminal", "err", err)
	}
}

// copyFrames takes the engine's stream of frames apart.
func copyFrames(from io.Reader, stdout, stderr io.Writer) error {
	br := bufio.NewReaderSize(from, 32<<10)
	for {
		var header [8]byte
		if _, err := io.ReadFull(br, header[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		w := stdout
		if header[0] == streamStderr {
			w = stderr
		}
		if _, err := io.CopyN(w, br, int64(binary.BigEndian.Uint32(header[4:]))); err != nil {
			return whole(err)
		}
	}
}
