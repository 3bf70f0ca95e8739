package processdaemon

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"tandem/processdaemon/protocol"
)

func (d *Daemon) task(id string) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[id]
	if t == nil {
		return nil, fail(protocol.CodeNotFound, "task %q is not known to the process daemon", id)
	}
	return t, nil
}

// Status returns what is known about a task now.
func (d *Daemon) Status(id string) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	return t.status(), nil
}

// List returns the tasks of an owner, or all when it is empty, oldest id first.
func (d *Daemon) List(owner string) []protocol.Status {
	d.mu.Lock()
	out := make([]protocol.Status, 0, len(d.tasks))
	for _, t := range d.tasks {
		if s := t.status(); owner == "" || s.Owner == owner {
			out = append(out, s)
		}
	}
	d.mu.Unlock()
	slices.SortFunc(out, func(a, b protocol.Status) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Wait returns the status once its version is not after any more, or as it
// is when the context ends, together with the context's error.
func (d *Daemon) Wait(ctx context.Context, id string, after uint64) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	for {
		s, changed := t.watchStatus()
		if s.Version != after || s.State == deleted {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, ctx.Err()
		case <-d.ctx.Done():
			return s, errShutdown
		}
	}
}

// Start starts a ready task. It returns when the start command was issued,
// not when it succeeded. It may be repeated.
func (d *Daemon) Start(id string) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	return t.ask(message{ev: evStart})
}

// Stop asks for the end of a task: its stop command when it has one, then
// SIGTERM, and after the grace SIGKILL to everything that is left of it. It returns at once.
func (d *Daemon) Stop(id string, grace time.Duration) (protocol.Status, error) {
	return d.stop(id, grace, false)
}

func (d *Daemon) stop(id string, grace time.Duration, again bool) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	ev := evStop
	switch {
	case grace <= 0:
		ev = evKill
	case t.hasStopCmd:
		ev = evStopByCommand
	}
	return t.ask(message{ev: ev, grace: grace, again: again})
}

// Signal sends a signal to the main process.
func (d *Daemon) Signal(id string, sig int) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	if sig < 1 || sig > 64 {
		return fail(protocol.CodeInvalid, "signal %d: want 1 to 64", sig)
	}
	_, err = t.ask(message{signal: syscall.Signal(sig)})
	return err
}

// Delete forgets a task that does not run, with its files and its control
// group. One that is unknown is no error.
func (d *Daemon) Delete(ctx context.Context, id string) error {
	t, err := d.task(id)
	if isCode(err, protocol.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.ask(message{ev: evDelete}); err != nil && !errors.Is(err, errTaskDone) {
		return err
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PutFiles puts files in place for a task that is ready. They are removed when
// the task is deleted.
func (d *Daemon) PutFiles(id string, files []protocol.File) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	_, err = t.ask(message{files: files})
	return err
}
