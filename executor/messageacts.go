package executor

import (
	"context"
	"fmt"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// A Runtime is asked for what not every task can do through these.
type (
	// Guarded is a Runtime whose operator may forbid messages.
	Guarded interface {
		// AllowMessage returns why messages of a type are forbidden, or nil.
		AllowMessage(t api.MessageType) error
	}
	// ResourceUpdater can change what a running task may use.
	ResourceUpdater interface {
		// UpdateResources gives a running task other amounts, without a restart.
		UpdateResources(ctx context.Context, taskID string, r api.ResourceUpdate) error
	}
	// Uploader can put files into running tasks.
	Uploader interface {
		// Upload puts a file in place, whole or not at all.
		Upload(ctx context.Context, taskID string, f api.UploadFile) error
	}
	// Reloader can have a running task read its configuration again.
	Reloader interface {
		// Reload returns once the task's reload command has ended, with its failure.
		Reload(ctx context.Context, taskID string) error
	}
	// Restarter can end what a task runs and start it anew, the task being the same.
	Restarter interface {
		// Restart returns once it runs again, with what came of the new start. Wait does
		// not return meanwhile, unless that fails or the task is stopped.
		Restart(ctx context.Context, taskID string, grace time.Duration) (Started, error)
	}
	// Committer can make images of running tasks.
	Committer interface {
		// Commit makes an image of a name that is new, and returns its id.
		Commit(ctx context.Context, taskID, image string) (id string, err error)
	}
)

// planTask finds out what a message asks of a task that runs.
func (e *Executor) planTask(t *task, m *api.Message) (func(context.Context, *api.MessageResult) error, error) {
	rt, id := t.runtime, t.id
	if g, ok := rt.(Guarded); ok {
		if err := g.AllowMessage(m.Type); err != nil {
			return nil, err
		}
	}
	cannot := func(what string) error {
		return fmt.Errorf("task %q is a %s, which %s", t.name(), t.spec.Kind, what)
	}
	switch m.Type {
	case api.MessageSignal:
		sig, err := api.SignalNumber(m.Signal)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, _ *api.MessageResult) error { return rt.Signal(ctx, id, sig) }, nil
	case api.MessageResources:
		u, ok := rt.(ResourceUpdater)
		if !ok {
			return nil, cannot("cannot get other resources while it runs")
		}
		started := api.ResourceUpdate{Requests: t.spec.Requests, Limits: t.spec.Limits}
		return e.resize(u, id, started, *m.Resources), nil
	case api.MessageExec:
		x, ok := rt.(Interactive)
		if !ok {
			return nil, cannot("has no sessions")
		}
		return e.openExec(x, id, *m.Exec), nil
	case api.MessageLogs:
		return e.planLogs(t, *m.Logs)
	case api.MessageUpload:
		u, ok := rt.(Uploader)
		if !ok {
			return nil, cannot("takes no files while it runs")
		}
		f := *m.Upload
		return func(ctx context.Context, _ *api.MessageResult) error { return u.Upload(ctx, id, f) }, nil
	case api.MessageReload:
		r, ok := rt.(Reloader)
		if !ok {
			return nil, cannot("has no reload command; send it the signal that it reloads on")
		}
		return func(ctx context.Context, _ *api.MessageResult) error { return r.Reload(ctx, id) }, nil
	case api.MessageRestart:
		r, ok := rt.(Restarter)
		if !ok {
			return nil, cannot("is not restarted in its place; restart its taskgroup")
		}
		grace := t.grace()
		return func(ctx context.Context, _ *api.MessageResult) error {
			if !e.post(restarting{task: id}) {
				return e.work.Err()
			}
			started, err := r.Restart(ctx, id, grace)
			e.post(restarted{id, started, err})
			return err
		}, nil
	case api.MessageCommit:
		c, ok := rt.(Committer)
		if !ok {
			return nil, cannot("has no image; this is for containers")
		}
		image := m.Commit.Image
		return func(ctx context.Context, result *api.MessageResult) (err error) {
			result.ImageID, err = c.Commit(ctx, id, image)
			return err
		}, nil
	default:
		return nil, fmt.Errorf("type %q of a message has no code", m.Type) // Check knows them
	}
}

// restarting and restarted are the worker's reports to the loop about a restart.
type (
	restarting struct{ task string }
	restarted  struct {
		task    string
		started Started
		err     error
	}
)

// restarting ends the checks of a task: that what is being restarted does not answer
// says nothing about it.
func (e *Executor) restarting(m restarting) {
	if t := e.tasks[m.task]; t != nil && t.state == stateRunning {
		e.endChecks(t)
		t.healthy = nil
	}
}

// restarted begins with the checks anew, and tells of the new process. A restart that
// failed ends the task, which is another event; until then it is checked as before.
func (e *Executor) restarted(m restarted) {
	t := e.tasks[m.task]
	if t == nil || t.state != stateRunning {
		return
	}
	t.checks = nil
	e.beginChecks(t)
	if m.err != nil {
		return
	}
	t.started.Pid, t.started.At = m.started.Pid, m.started.At
	if t.announced {
		e.tell(t, mesos.TASK_RUNNING, "restarted on request", nil)
	}
}

// limitOf is the longest that a message of a type may take.
func limitOf(t api.MessageType) time.Duration {
	switch t {
	case api.MessageReload, api.MessageRestart, api.MessageCommit:
		return longMessageLimit
	default:
		return messageLimit
	}
}

// resize changes some amounts of a task and keeps the others, those of an
// earlier change included.
func (e *Executor) resize(u ResourceUpdater, id string, started api.ResourceUpdate, change api.ResourceChange) func(context.Context, *api.MessageResult) error {
	return func(ctx context.Context, result *api.MessageResult) error {
		before, changed := e.messages.amounts[id]
		if !changed {
			before = started
		}
		after, err := change.Apply(before)
		if err != nil {
			return err
		}
		if err := u.UpdateResources(ctx, id, after); err != nil {
			return err
		}
		e.messages.amounts[id] = after
		result.Resources = &after
		return nil
	}
}
