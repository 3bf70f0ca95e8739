package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/api"
	"tandem/executor/health"
)

// scripted is a Runtime that does what a test says and remembers what was asked of it.
type scripted struct {
	mu    sync.Mutex
	calls []string
	tasks map[string]*Task
	exits map[string]chan Exit

	// These may be set by the test; nil means success. They run without the lock.
	prepare func(ctx context.Context, t *Task, progress func(string)) error
	create  func(ctx context.Context, t *Task) error
	start   func(ctx context.Context, id string) error
	wait    func(ctx context.Context, id string) error
	stop    func(ctx context.Context, id string, grace time.Duration) error
	remove  func(ctx context.Context, id string) error
	check   func(ctx context.Context, id string, n int) (health.CommandResult, error)
	sandbox func(ctx context.Context, t *Task) error
	ips     []string
	output  string
	// boxes end the sandboxes when closed.
	boxes map[string]chan struct{}
}

func newScripted() *scripted {
	return &scripted{tasks: map[string]*Task{}, exits: map[string]chan Exit{}, boxes: map[string]chan struct{}{}}
}

func (r *scripted) record(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *scripted) called() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *scripted) has(call string) bool { return slices.Contains(r.called(), call) }

// task returns what Create was given.
func (r *scripted) task(id string) *Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tasks[id]
}

// exit ends a task from outside.
func (r *scripted) exit(id string, x Exit) {
	r.mu.Lock()
	ch := r.exits[id]
	r.mu.Unlock()
	if ch == nil {
		return
	}
	if x.At.IsZero() {
		x.At = time.Now()
	}
	select {
	case ch <- x:
	default:
	}
}

func (r *scripted) Prepare(ctx context.Context, t *Task, progress func(string)) error {
	r.record("prepare %s", t.ID)
	if r.prepare != nil {
		return r.prepare(ctx, t, progress)
	}
	return ctx.Err()
}

func (r *scripted) Create(ctx context.Context, t *Task) error {
	r.record("create %s", t.ID)
	if r.create != nil {
		if err := r.create(ctx, t); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks[t.ID] = t
	r.exits[t.ID] = make(chan Exit, 1)
	return ctx.Err()
}

func (r *scripted) Start(ctx context.Context, id string) (Started, error) {
	r.record("start %s", id)
	if r.start != nil {
		if err := r.start(ctx, id); err != nil {
			return Started{}, err
		}
	}
	return Started{Pid: 42, IPs: r.ips, At: time.Now(), ContainerID: "c0ffee", ImageDigest: "sha256:d19e57"}, ctx.Err()
}

func (r *scripted) Wait(ctx context.Context, id string) (Exit, error) {
	r.record("wait %s", id)
	if r.wait != nil {
		if err := r.wait(ctx, id); err != nil {
			return Exit{}, err
		}
	}
	r.mu.Lock()
	ch := r.exits[id]
	r.mu.Unlock()
	select {
	case x := <-ch:
		return x, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

func (r *scripted) Signal(_ context.Context, id string, sig os.Signal) error {
	r.record("signal %s %v", id, sig)
	return nil
}

// able is a scripted runtime that can do all that messages ask for, as far as its operator allows.
type able struct {
	*scripted
	forbidden api.MessageType
	restart   func(ctx context.Context, id string) (Started, error)
}

func (r able) AllowMessage(t api.MessageType) error {
	if t == r.forbidden {
		return errors.New("the policy forbids it")
	}
	return nil
}

func (r able) Upload(_ context.Context, id string, f api.UploadFile) error {
	r.record("upload %s %s %q", id, f.Path, f.Content)
	return nil
}

func (r able) Reload(_ context.Context, id string) error {
	r.record("reload %s", id)
	return errors.New("reloadCmd: exit code 1")
}

func (r able) Restart(ctx context.Context, id string, grace time.Duration) (Started, error) {
	r.record("restart %s %v", id, grace)
	if r.restart != nil {
		return r.restart(ctx, id)
	}
	return Started{Pid: 43, At: time.Now()}, nil
}

func (r able) Commit(_ context.Context, id, image string) (string, error) {
	r.record("commit %s %s", id, image)
	return "sha256:1234", nil
}

func (r *scripted) UpdateResources(_ context.Context, id string, u api.ResourceUpdate) error {
	r.record("update %s %v", id, u.Limits.CPUs)
	if u.Limits.CPUs == 13 {
		return errors.New("not thirteen")
	}
	return nil
}

func (r *scripted) Stop(ctx context.Context, id string, grace time.Duration) error {
	r.record("stop %s %s", id, grace)
	if r.stop != nil {
		if err := r.stop(ctx, id, grace); err != nil {
			return err
		}
	}
	r.exit(id, Exit{Known: true, Signal: 15})
	return ctx.Err()
}

func (r *scripted) Tail(context.Context, string, int) (string, error) { return r.output, nil }

func (r *scripted) Remove(ctx context.Context, id string) error {
	r.record("remove %s", id)
	if r.remove != nil {
		return r.remove(ctx, id)
	}
	return nil
}

func (r *scripted) CreateSandbox(ctx context.Context, t *Task) (*NetSandbox, error) {
	r.record("sandbox %s", t.ID)
	if r.sandbox != nil {
		if err := r.sandbox(ctx, t); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks[t.ID] = t
	r.boxes[t.ID] = make(chan struct{})
	return &NetSandbox{Pid: 41, Netns: "/proc/41/ns/net", NetnsID: 7, IPs: r.ips}, ctx.Err()
}

func (r *scripted) AwaitSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	ended := r.boxes[id]
	r.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *scripted) Netns(context.Context, string) (*os.File, error) { return nil, nil }

// Exec is the command of a check; n counts them for the task.
func (r *scripted) Exec(ctx context.Context, id string, c health.Command) (health.CommandResult, error) {
	r.mu.Lock()
	r.calls = append(r.calls, fmt.Sprintf("check %s %s", id, c.Argv))
	n := 0
	for _, call := range r.calls {
		if strings.HasPrefix(call, "check "+id+" ") {
			n++
		}
	}
	r.mu.Unlock()
	return r.check(ctx, id, n)
}

func (r *scripted) List(context.Context) ([]string, error) { return nil, nil }
