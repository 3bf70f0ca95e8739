package executor

import (
	"context"
	"os"
	"time"

	"tandem/api"
	"tandem/executor/health"
)

// Runtime runs tasks of one kind. The executor calls it from work that it can
// cancel, never from its event loop; every method honours its context, and
// every method may be called again after a failure.
//
// The order for a task is Prepare, Create, Start, Wait; Stop and Remove are
// legal at any time, also while an earlier method is still running, and for a
// task that the runtime does not know (they then do nothing).
type Runtime interface {
	// Prepare does the slow work that has no lasting effect on the agent
	// beyond caches: pull the image, fetch the archives. progress receives
	// short texts for people, such as "pulling redis:7 12/40 MB".
	Prepare(ctx context.Context, t *Task, progress func(string)) error
	// Create records the intent durably and makes the task, not started. What takes long
	// is told to the task's Progress.
	Create(ctx context.Context, t *Task) error
	// Start starts a created task.
	Start(ctx context.Context, taskID string) (Started, error)
	// Wait returns when the task has ended. An error means that the outcome
	// cannot be known, not that the task failed.
	Wait(ctx context.Context, taskID string) (Exit, error)
	// Signal sends a signal to the task's main process.
	Signal(ctx context.Context, taskID string, sig os.Signal) error
	// Stop ends the task: stop command or SIGTERM, grace, SIGKILL. It returns
	// once nothing of the task runs any more.
	Stop(ctx context.Context, taskID string, grace time.Duration) error
	// Tail returns the last lines, at most maxBytes bytes, that the task wrote.
	Tail(ctx context.Context, taskID string, maxBytes int) (string, error)
	// Remove deletes what is left of an ended task, and then its record.
	Remove(ctx context.Context, taskID string) error
	// List returns the ids of the tasks that this executor's records hold.
	List(ctx context.Context) ([]string, error)
}

// RefusedError is a Runtime's error for a task that cannot be run as it is specified,
// here or after another try: it becomes TASK_ERROR, with REASON_TASK_INVALID.
type RefusedError struct {
	Err error
	// Policy tells that the operator of the agent forbids what is asked for:
	// REASON_TASK_UNAUTHORIZED.
	Policy bool
}

// Error is that of the cause.
func (r *RefusedError) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *RefusedError) Unwrap() error { return r.Err }

// Checkable is a Runtime into whose running tasks checks can go.
type Checkable interface {
	// Netns opens the network namespace of a running task, for the caller to
	// close; nil without an error means the executor's own.
	Netns(ctx context.Context, taskID string) (*os.File, error)
	// Exec runs a command in a running task, as the task's user and with its
	// environment; when the context ends first, it is killed. An error means that
	// nobody can tell what the command makes of the task, unless it was started.
	Exec(ctx context.Context, taskID string, c health.Command) (health.CommandResult, error)
}

// Warmable is a Runtime that can do ahead what its first task would wait for: connect
// to its daemon, and ask that what it needs to know.
type Warmable interface {
	// Warm has no effect that lasts, and no result: who needs what it did not get asks for it
	// again, and tells why there is none. The first task may come while it is at work.
	Warm(ctx context.Context)
}

// Sandboxer is a Runtime that can hold a network namespace for tasks of either
// kind, apart from all of them, so that none of them ends it with itself.
type Sandboxer interface {
	// CreateSandbox records the intent and makes it. Of t it takes ID, Owner,
	// Publish, and of the specification what concerns the network. Remove ends it.
	CreateSandbox(ctx context.Context, t *Task) (*NetSandbox, error)
	// AwaitSandbox returns nil once the sandbox has ended; an error means that
	// nobody can tell.
	AwaitSandbox(ctx context.Context, id string) error
}

// NetSandbox is what holds a network namespace for tasks that need one before
// any of them runs: an address can be known, or a CNI plugin called, before the
// first program starts.
type NetSandbox struct {
	ContainerID string
	// Pid is that of its only process.
	Pid int
	// Netns is the path of its network namespace, and NetnsID the number of that
	// file's inode: a path with a pid in it may come to mean another's.
	Netns   string
	NetnsID uint64
	// IPs are its addresses where the engine gave it any.
	IPs []string
}

// Task is one task as a Runtime sees it.
type Task struct {
	ID string
	// Owner is the executor id, which is also the taskgroup id.
	Owner string
	// Spec has its variables expanded.
	Spec *api.TaskSpec
	// Env is the complete environment, NAME=value.
	Env []string
	// Sandbox is the task's own directory; its files stdout and stderr receive the task's output.
	Sandbox string
	// JoinTask is the id of the task or sandbox whose network namespace this one
	// shares; empty for its own.
	JoinTask string
	// Netns is that sandbox, for a runtime that knows it by its namespace alone.
	Netns *NetSandbox
	// Publish are the ports to publish through this task's network namespace:
	// its own and those of the tasks that join it, because an engine can
	// publish ports for the namespace's owner only. It is empty for a task
	// that joins another and for host networking; Spec.Ports remain the task's own.
	Publish []api.TaskPort
	// Progress receives short texts for people while Create is at work, as Prepare's
	// does. It may be nil.
	Progress func(string)
}

// Started tells what came of Start.
type Started struct {
	ContainerID string
	// ImageDigest is that of the container's image in its registry, or its id.
	ImageDigest string
	Pid         int
	IPs         []string
	At          time.Time
}

// Exit tells how a task ended.
type Exit struct {
	// Known is false when the task is gone but nobody saw its exit code;
	// such an end is never reported as success.
	Known     bool
	Code      int
	Signal    int
	OOMKilled bool
	At        time.Time
	// Message says more where there is more to say.
	Message string
	// StopFailure says what went wrong with the command that was to end the task in good order.
	StopFailure string
}
