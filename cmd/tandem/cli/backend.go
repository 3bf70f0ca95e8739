package cli

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"tandem/api"
)

// backend is what the commands need of a scheduler.
type backend interface {
	// Apply declares documents, all or none; with dryRun it says what would change.
	Apply(ctx context.Context, raws []json.RawMessage, dryRun, strict bool) ([]change, error)
	// Objects lists declared objects of a kind; an empty namespace means all.
	Objects(ctx context.Context, k api.Kind, namespace string) ([]object, error)
	// Taskgroups lists taskgroups; an empty namespace means all.
	Taskgroups(ctx context.Context, namespace string) ([]taskgroup, error)
	Agents(ctx context.Context) ([]agentView, error)
	// Events are the last happenings around an object, oldest first.
	Events(ctx context.Context, t target) ([]event, error)
	Scale(ctx context.Context, ref api.Ref, replicas int) error
	// Restart replaces a workload's taskgroups, or one taskgroup.
	Restart(ctx context.Context, t target) error
	Delete(ctx context.Context, ref api.Ref) error
	Logs(ctx context.Context, taskgroupID, task string, o logOptions) (io.ReadCloser, error)
}

// change is what Apply did, or would do, with one object.
type change struct {
	Ref    api.Ref
	Action string // created, configured or unchanged
}

// object is a declared object and, for workloads, how it stands.
type object struct {
	Ref     api.Ref
	Raw     json.RawMessage
	Created time.Time
	// Status is nil for kinds that run nothing.
	Status *workloadStatus
	// Ports is the summary of a service or endpoint.
	Ports string
}

// workloadStatus is how a workload stands.
type workloadStatus struct {
	Desired, Current, Running, Ready int
	// UpToDate taskgroups run what was applied last.
	UpToDate int
	// Settled tells that nothing is left to be done.
	Settled bool
	// Failed tells that it will not get better by itself; Message says why.
	Failed   bool
	Restarts int
	Message  string
}

// taskgroup is an instance of a workload.
type taskgroup struct {
	ID, Name, Namespace string
	// Owner is the workload's kind/name.
	OwnerKind api.Kind
	Owner     string
	State     string
	Ready     bool
	Agent, IP string
	Restarts  int
	Created   time.Time
	Message   string
	// Waiting says why it is not placed, one reason for each agent.
	Waiting []string
	Tasks   []taskView
}

// taskView is a task of a taskgroup.
type taskView struct {
	ID, Name string
	Kind     api.TaskKind
	State    string
	Healthy  *bool
	Message  string
	Report   *api.TaskReport
	Ports    []api.TaskPort
	Changed  time.Time
}

// agentView is a machine.
type agentView struct {
	ID, Hostname, State string
	Attributes          map[string]string
	Total, Used         api.TaskResources
	Ports               string
	Taskgroups          int
}

// event is something that happened.
type event struct {
	Time          time.Time
	Object, Text  string
	Reason, Level string
}

// logOptions choose a part of a task's output.
type logOptions struct {
	Stderr bool
	Follow bool
	// Tail is the number of lines from the end; negative means all.
	Tail int
}
