package container

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

// What an engine says of a container's end is not always what became of the task.
// An engine that is stopped ends its containers, unless it was told to leave them
// (live-restore), and many a program answers SIGTERM with exit code 0: after
// the engine is back it says 0, and the task has not done its work. So does docker
// stop. A success is therefore believed only when the engine that tells of it has
// seen the container end by itself. A failure needs no second look.

const (
	// askPatience bounds one question about a container that has ended; the next
	// one may find an engine that was started again.
	askPatience = 3 * time.Second
	// stopWindow is how far before its end a container may have been told to end.
	stopWindow = 5 * time.Minute
	// eventTries is how often an engine is asked for the event of an end, in case
	// it tells others of the end before it writes its own book.
	eventTries = 4
)

// confirm looks twice at exit code 0. It returns why the task has not succeeded
// after all, or nothing. An error means that the engine could not be asked.
func (r *Runtime) confirm(ctx context.Context, id string, n *run, s engine.State) (doubt string, err error) {
	r.mu.Lock()
	signalled, stopped := n.signalled, n.stopped
	r.mu.Unlock()
	if stopped {
		return "", nil // it was killed, whatever the code
	}
	for try := range eventTries {
		now := time.Now()
		events, err := r.engine.Events(ctx, id, now.Add(-stopWindow), now)
		var refused *engine.Error
		if errors.As(err, &refused) && refused.Status != http.StatusInternalServerError && refused.Status != http.StatusServiceUnavailable {
			return "", nil // an engine without events
		}
		if err != nil {
			return "", err
		}
		if died, signal := ofEnd(events, n.stopSignal); died {
			// What a program makes of its framework's signal is its own.
			if signal == "" || signalled {
				return "", nil
			}
			return fmt.Sprintf("the container was told to end (%s) by somebody else, or by a Docker Engine that was stopped, and exited with code 0", signal), nil
		}
		select {
		case <-time.After(50 * time.Millisecond << try):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	// It has not seen the end: it was not there.
	info, err := r.engine.Info(ctx)
	switch {
	case err != nil:
		return "", err
	case info.LiveRestoreEnabled && !s.FinishedAt.IsZero():
		return "", nil // its shim has seen it, and the engine has not meddled
	}
	return "the Docker Engine was stopped while the task ran; it ends its containers then, so that they exited with code 0 does not say that they were done; " +
		"set live-restore in the engine's configuration to keep them", nil
}

// ofEnd reads in the events of a container whether it ended, and which signal that
// ends a program somebody had sent it before.
func ofEnd(events []engine.Event, stopSignal string) (died bool, signal string) {
	for _, e := range events {
		switch e.Action {
		case "start", "restart":
			died, signal = false, ""
		case "kill":
			n, err := strconv.Atoi(e.Actor.Attributes["signal"])
			if s := syscall.Signal(n); err == nil && !died && (s == syscall.SIGTERM || s == syscall.SIGKILL || s == signalNumber(stopSignal)) {
				signal = s.String()
			}
		case "die":
			died = true
		}
	}
	return died, signal
}

// unknown is the end of a container of which nobody can say how it came.
func (r *Runtime) unknown(at time.Time, err error) executor.Exit {
	return executor.Exit{At: at, Message: fmt.Sprintf("the container has ended; its exit code is unknown, because the engine did not tell it within %v: %v", r.opt.ExitPatience, err)}
}
