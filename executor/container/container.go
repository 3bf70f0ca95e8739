// Package container runs tasks as containers of a Docker Engine. It implements
// executor.Runtime for the executor of a taskgroup, and gives the process daemon
// a Cleaner for what a dead executor left behind.
//
// The engine is a program that may be slow, silent or gone. So every call has a
// deadline, no lock is held across one, the end of a container is learned from
// the kernel (a pidfd on its init process) and only its exit code from the
// engine, and whatever is made is recorded in the journal first. The package
// must never touch a container that does not carry its owner's label, and never
// let a credential or a file's content reach a log, a label or an error.
package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/container/policy"
	"tandem/internal/journal"
	"tandem/internal/procid"
)

// Kind is the kind of the journal's records of containers.
const Kind = "container"

// The labels of every container that is made here.
const (
	labelOwner     = "tandem.owner"
	labelTask      = "tandem.task"
	labelTaskgroup = "tandem.taskgroup"
)

// Record is the data of a journal record: enough to find the container even
// when the program died before it learned the container's id.
type Record struct {
	// Name is the container's name.
	Name string `json:"name"`
	// Image is what it is made of, as the engine is told. Older executors left it out.
	Image string `json:"image,omitempty"`
	// CPUs are leased to the container alone, until the record goes.
	CPUs []int `json:"cpus,omitempty"`
	// Files is the directory in memory that holds its files, if it has any.
	Files string `json:"files,omitempty"`
}

// Options configure a Runtime. Only Journal is needed.
type Options struct {
	// Host is the engine's socket as unix:///path; empty means engine.DefaultHost.
	Host string
	// Journal takes the records; its owner is the executor id.
	Journal *journal.Owner
	// PublishAddress is the agent's IP address on which ports are published; empty means 0.0.0.0.
	PublishAddress string
	// Deny are paths that no volume may reach, above or below, besides the engine's
	// own socket: sockets whose users are root on the agent, the data directory.
	Deny []string
	// ExitPatience is how long to wait for an engine that does not answer when a
	// container has ended; after that its exit code counts as unknown. 0 means 30 s,
	// in which an engine may be started anew.
	ExitPatience time.Duration
	// Policy is what the operator allows; nil means policy.Default.
	Policy *policy.Policy
	// CPUs are those that containers may have for themselves; nil means those
	// that this process may run on.
	CPUs []int
	// LogSize is where a task's stdout and stderr are rotated, in bytes; 0 means
	// never. LogFiles is how many rotated files of each are kept.
	LogSize  int64
	LogFiles int
	// ImageCache is a directory, of all executors of the agent, for what the engine
	// told of images; empty means that it is asked each time.
	ImageCache string
	// PullIdle is how long a pull may make no progress; 0 means 3 minutes.
	PullIdle time.Duration
	// pullPause is the pause after the first failure of a pull; 0 means pullPause.
	pullPause time.Duration
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Runtime runs containers for one executor. Its methods may be called from
// several goroutines, for different tasks and for the same.
type Runtime struct {
	opt    Options
	engine *engine.Client
	log    *slog.Logger

	// ctx ends with Close; the goroutines that watch containers live under it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// uploads is held while a file is put into a container.
	uploads sync.Mutex

	sharing sync.Once // the goroutine that keeps containers off others' CPUs

	mu    sync.Mutex
	tasks map[string]*task
	// images are those of prepared tasks.
	images map[string]imageFacts
}

var _ executor.Runtime = (*Runtime)(nil)

// task is what is known of one container. Fields below mu's line are guarded
// by Runtime.mu; what a method does with the engine is guarded by busy.
type task struct {
	id      string
	name    string
	image   string
	command []string
	sandbox string
	nodeIP  string
	host    bool
	// alone is set for a network without addresses.
	alone   bool
	join    string
	publish []api.TaskPort
	files   string
	// stopSignal is that of the kill policy; empty leaves it to the image.
	stopSignal string
	// network is the custom network, address what was asked for in it.
	network, address string
	// cpus is how many CPUs the container has for itself.
	cpus int

	// Guarded by Runtime.mu.

	// cpuset is where one that shares CPUs was told to run; empty is anywhere.
	cpuset string

	// busy is open while Create, Start or Remove is at work.
	busy chan struct{}
	// containerID is empty until the engine has made the container.
	containerID string
	// unsure is set when the engine may yet make the container without our knowing.
	unsure bool
	// sandboxed is set for a sandbox container, whose addresses are ips; pause is
	// its process, nil when the kernel cannot be asked.
	sandboxed bool
	pause     *procid.Process
	ips       []string
	stopping  bool
	run       *run
}

// run is a started container.
type run struct {
	ips        []string
	stopSignal string
	proc       *procid.Process // nil when the kernel cannot be asked
	tail       *tail
	// ended is closed when the init process is gone, done when exit is settled.
	ended chan struct{}
	done  chan struct{}
	exit  executor.Exit // read after done
	// settled is closed when nothing more will be written, copied when all that
	// was written is in the sandbox.
	settled chan struct{}
	copied  chan struct{}
	// signalled is set once the task was sent a signal from here, stopped once it
	// was told to end from here; both are guarded by Runtime.mu.
	signalled, stopped bool
	// stopFollowing ends a stream that follows the output, stopCopying all copying.
	stopFollowing, stopCopying context.CancelFunc
}

// New returns a runtime. It does not connect: Check does, and every other call.
func New(opt Options) (*Runtime, error) {
	if opt.Journal == nil {
		return nil, errors.New("container runtime: a journal is needed")
	}
	c, err := engine.New(opt.Host)
	if err != nil {
		return nil, err
	}
	if opt.PublishAddress == "" {
		opt.PublishAddress = "0.0.0.0"
	}
	if opt.ExitPatience == 0 {
		opt.ExitPatience = 30 * time.Second
	}
	if opt.pullPause == 0 {
		opt.pullPause = pullPause
	}
	if opt.PullIdle == 0 {
		opt.PullIdle = 3 * time.Minute
	}
	if opt.Policy == nil {
		opt.Policy = policy.Default()
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	r := &Runtime{opt: opt, engine: c, log: opt.Logger, tasks: map[string]*task{}, images: map[string]imageFacts{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Check says whether a Docker Engine answers that is recent enough. It is worth
// calling early: the first connection is then made before the first task waits for it.
func (r *Runtime) Check(ctx context.Context) error {
	return r.engine.Ping(ctx)
}

// Close stops watching. Containers that run go on running: their records make
// the process daemon remove them once the journal's owner is closed too.
func (r *Runtime) Close() error {
	r.cancel()
	r.wg.Wait()
	r.engine.Close()
	return nil
}

// List returns the ids of the tasks in this executor's records.
func (r *Runtime) List(context.Context) ([]string, error) {
	recs, err := r.opt.Journal.Records()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, rec := range recs {
		if rec.Kind == Kind {
			ids = append(ids, rec.ID)
		}
	}
	return ids, nil
}

// Tail returns the last lines that a task wrote, stdout and stderr as they came,
// at most maxBytes bytes and at most the 16 KiB that are kept.
func (r *Runtime) Tail(_ context.Context, taskID string, maxBytes int) (string, error) {
	if n := r.started(taskID); n != nil {
		return n.tail.last(maxBytes), nil
	}
	return "", nil
}

// enter waits until no other method works on the task, and claims it; leave
// gives it back. It returns nil for a task that is not known.
func (r *Runtime) enter(ctx context.Context, taskID string) (*task, error) {
	for {
		r.mu.Lock()
		t := r.tasks[taskID]
		if t == nil {
			r.mu.Unlock()
			return nil, nil
		}
		busy := t.busy
		if busy == nil {
			t.busy = make(chan struct{})
		}
		r.mu.Unlock()
		if busy == nil {
			return t, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("task %q: %w", taskID, ctx.Err())
		}
	}
}

func (r *Runtime) leave(t *task) {
	r.mu.Lock()
	close(t.busy)
	t.busy = nil
	r.mu.Unlock()
}

// started returns the run of a task that was started, or nil.
func (r *Runtime) started(taskID string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[taskID]; t != nil {
		return t.run
	}
	return nil
}

// linger gives a call that makes something a little longer than its caller has:
// an engine does not undo what it has begun when its client hangs up, so a call
// that is cut off leaves behind what nobody knows of.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	const more = 5 * time.Second
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(more, cancel) })
	return detached, func() {
		stop()
		cancel()
	}
}

// find returns the container of a task by its name, or nil when there is none.
// A container of that name which is not the owner's is an error.
func find(ctx context.Context, c *engine.Client, name, owner, taskID string) (*engine.Container, error) {
	found, err := c.Inspect(ctx, name)
	if engine.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if found.Config.Labels[labelOwner] != owner || found.Config.Labels[labelTask] != taskID {
		return nil, &foreignError{name: strings.TrimPrefix(found.Name, "/"), id: found.ID}
	}
	return found, nil
}

// foreignError says that a name belongs to somebody else's container.
type foreignError struct{ name, id string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("container %q (%.12s) exists and is not this executor's; remove it with docker rm if nobody needs it", e.name, e.id)
}
