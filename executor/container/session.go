package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/health"
	"tandem/internal/execstream"
)

var (
	_ executor.Interactive = (*Runtime)(nil)
	_ executor.Guarded     = (*Runtime)(nil)
)

// sessionStart bounds the start of a session's command.
const sessionStart = 30 * time.Second

// AllowSession asks the operator's policy.
func (r *Runtime) AllowSession(loopback bool) error { return r.opt.Policy.Session(loopback) }

// AllowMessage asks the operator's policy.
func (r *Runtime) AllowMessage(t api.MessageType) error { return r.opt.Policy.Message(t) }

// Session runs a command in a container, as its user and with its environment.
// A program that is not there has the exit code 126 or 127, as the engine tells.
func (r *Runtime) Session(ctx context.Context, taskID string, req api.ExecRequest, t execstream.Terminal) (int, error) {
	id, _, err := r.running(taskID)
	if err != nil {
		return 0, err
	}
	start, cancel := context.WithTimeout(ctx, sessionStart)
	defer cancel()
	execID, err := r.engine.CreateExec(start, id, &engine.ExecSpec{
		Cmd: req.Command, Tty: req.TTY, AttachStdin: t.Stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	stream, err := r.engine.AttachExec(start, execID, req.TTY)
	if err != nil {
		r.endExec(ctx, id, execID)
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	defer stream.Close()
	if req.TTY {
		r.resize(ctx, execID, req.Width, req.Height)
		sizes, enough := context.WithCancel(ctx)
		done := make(chan struct{})
		defer func() { enough(); <-done }()
		go func() {
			defer close(done)
			for {
				select {
				case s := <-t.Resize:
					r.resize(sizes, execID, s.Width, s.Height)
				case <-sizes.Done():
					return
				}
			}
		}()
	}
	if t.Stdin != nil {
		// It ends with its reader, which whoever made it closes.
		go func() {
			if _, err := io.Copy(stream, t.Stdin); err == nil {
				_ = stream.CloseWrite() // at the end of a command there is nothing to be closed
			}
		}()
	}
	if req.TTY {
		_, err = io.Copy(t.Stdout, stream)
	} else {
		err = copyFrames(stream, t.Stdout, t.Stderr)
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
