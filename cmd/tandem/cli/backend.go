package cli

import (
	"context"
	"encoding/json"
	"io"

	"tandem/api"
	"tandem/scheduler/wire"
)

// backend is what the commands need of a scheduler.
type backend interface {
	// Apply declares documents, all or none; with dryRun it says what would change.
	Apply(ctx context.Context, raws []json.RawMessage, dryRun, strict bool) ([]wire.Change, error)
	// Objects lists declared objects of a kind; an empty namespace means all.
	Objects(ctx context.Context, k api.Kind, namespace string) ([]wire.Object, error)
	// Taskgroups lists taskgroups; an empty namespace means all.
	Taskgroups(ctx context.Context, namespace string) ([]wire.Taskgroup, error)
	Agents(ctx context.Context) ([]wire.Agent, error)
	// Events are the last happenings around an object, oldest first.
	Events(ctx context.Context, ref api.Ref) ([]wire.Event, error)
	Scale(ctx context.Context, ref api.Ref, replicas int) error
	// Restart replaces a workload's taskgroups, or one taskgroup.
	Restart(ctx context.Context, t target) error
	Delete(ctx context.Context, ref api.Ref) error
	// Message has an executor do something, and returns what came of it.
	Message(ctx context.Context, namespace, taskgroupID string, m *api.Message) (*api.MessageResult, error)
	// Exec opens a session; what goes over it is of internal/execstream.
	Exec(ctx context.Context, namespace, taskgroupID string, req wire.ExecRequest) (io.ReadWriteCloser, error)
	Logs(ctx context.Context, taskgroupID, task string, o logOptions) (io.ReadCloser, error)
	// LogFiles are the files that the logPath of a running process names.
	LogFiles(ctx context.Context, taskgroupID, task string) ([]api.LogFile, error)
}

// logOptions choose a part of a task's output.
type logOptions struct {
	// Stream is stdout, stderr, log or log/NAME.
	Stream string
	Follow bool
	// Tail is the number of lines from the end; negative means all.
	Tail int
}
