// Package process runs tasks as plain processes of the agent. It implements
// executor.Runtime for the executor of a taskgroup as a client of the process
// daemon, which owns the processes, so that they outlive neither their executor
// nor need it: a restart of the daemon does not end a task, the death of the
// executor does. The package must never take a daemon that is away for a task
// that has ended, and never put a secret into a log, a record or an error.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/executor"
	"tandem/executor/container/policy"
	"tandem/internal/cgroup"
	"tandem/internal/journal"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// Kind is the kind of the journal's records of processes. The process daemon
// undoes those of dead owners itself.
const Kind = "process"

// Record is the data of a journal record. The daemon finds the process by
// the record's id alone; this is for people.
type Record struct {
	Name string `json:"name"`
}

// Options configure a Runtime. Only Journal is needed.
type Options struct {
	// Socket is the daemon's; empty means client.DefaultSocket.
	Socket string
	// Journal takes the records; its owner is the executor id.
	Journal *journal.Owner
	// Patience is how long a daemon that does not answer is asked again before
	// a start fails. Waiting for an end and stopping go on as long as their
	// context. 0 means 30 s.
	Patience time.Duration
	// Policy is what the operator allows; nil means policy.Default.
	Policy *policy.Policy
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Runtime runs processes for one executor. Its methods may be called from
// several goroutines.
type Runtime struct {
	opt  Options
	c    *client.Client
	news news
	warm warmed

	mu      sync.Mutex
	digests map[string][]string // task id -> what Prepare fetched
	groups  map[string]*cgroup.Group
	ends    map[string]*end
}

var (
	_ executor.Runtime = (*Runtime)(nil)
	_ executor.Ender   = (*Runtime)(nil)
)

// New returns a runtime. It does not call the daemon yet.
func New(opt Options) (*Runtime, error) {
	if opt.Journal == nil {
		return nil, errors.New("the process runtime needs a journal")
	}
	if opt.Patience <= 0 {
		opt.Patience = 30 * time.Second
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.Policy == nil {
		opt.Policy = policy.Default()
	}
	r := &Runtime{opt: opt, c: client.New(opt.Socket), digests: map[string][]string{}, groups: map[string]*cgroup.Group{}, ends: map[string]*end{}}
	r.news = news{c: r.c, owner: opt.Journal.Name(), log: opt.Logger}
	return r, nil
}

// Close ends the stream of changes and closes idle connections. What runs goes on.
func (r *Runtime) Close() error {
	r.news.close()
	r.c.Close()
	return nil
}

// Prepare brings the task's archives and files into the daemon's cache.
func (r *Runtime) Prepare(ctx context.Context, t *executor.Task, progress func(string)) error {
	if t.Spec.Process == nil {
		return fmt.Errorf("task %q: kind %q without its process part", t.Spec.Name, t.Spec.Kind)
	}
	uris := urisOf(t.Spec.Process)
	if len(uris) == 0 {
		return nil
	}
	var digests []string
	err := r.patiently(ctx, func() (err error) {
		digests, err = r.c.Fetch(ctx, t.Spec.Process.User, uris, progress)
		return err
	})
	if err != nil {
		return fmt.Errorf("process %q: %w", t.Spec.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.digests[t.ID] = digests
	return nil
}

// Create records the intent, lets the daemon put the archives' content in place,
// and adds the files from secrets and configmaps.
func (r *Runtime) Create(ctx context.Context, t *executor.Task) error {
	if t.Spec.Process == nil {
		return fmt.Errorf("task %q: kind %q without its process part", t.Spec.Name, t.Spec.Kind)
	}
	// A process ends with the boot, so its record need not survive that.
	if err := r.opt.Journal.PutVolatile(Kind, t.ID, Record{Name: t.Spec.Name}); err != nil {
		return err
	}
	st, err := r.create(ctx, t)
	const tries = 3
	for try := 1; err == nil && strings.Contains(st.Failure, protocol.CreateAnew) && try < tries; try++ {
		// A daemon that was killed does not know the passwords any more, and what was fetched
		// with them is not there, either.
		r.opt.Logger.Warn("the process is made anew", "task", t.ID, "cause", st.Failure)
		if err = r.patiently(ctx, func() error { return r.c.Delete(ctx, t.ID) }); err == nil {
			err = r.Prepare(ctx, t, t.Progress)
		}
		if err == nil {
			st, err = r.create(ctx, t)
		}
	}
	if err != nil {
		return err
	}
	for _, n := range st.Notes {
		r.opt.Logger.Warn("not all that was asked for is to be had", "task", t.ID, "note", n)
	}
	if st.State == protocol.StateEnded {
		return errors.New(st.Failure)
	}
	if len(t.Spec.Files) == 0 {
		return nil
	}
	return r.patiently(ctx, func() error { return r.c.PutFiles(ctx, t.ID, filesOf(t.Spec.Files)) })
}

// create returns once the daemon has prepared the task, or has failed to.
func (r *Runtime) create(ctx context.Context, t *executor.Task) (st protocol.Status, err error) {
	r.mu.Lock()
	spec := specOf(t, r.digests[t.ID])
	r.mu.Unlock()
	err = r.patiently(ctx, func() (err error) {
		st, err = r.c.Create(ctx, spec)
		return err
	})
	if err != nil {
		return st, err
	}
	told := ""
	return r.follow(ctx, st, func(s *protocol.Status) bool {
		if s.Progress != "" && s.Progress != told && t.Progress != nil {
			told = s.Progress
			t.Progress(told)
		}
		return s.State == protocol.StateReady || isEnded(s) || s.Started()
	})
}

// settleStep is how long one request for a start waits for the start to be settled.
const settleStep = 20 * time.Second

// Start starts a created process. With a pid file it returns once the start
// command has succeeded and the file names a live process of the task.
func (r *Runtime) Start(ctx context.Context, taskID string) (executor.Started, error) {
	var st protocol.Status
	r.setDoubt(taskID, true)
	err := r.patiently(ctx, func() (err error) {
		st, err = r.c.Start(ctx, taskID, settleStep)
		return err
	})
	if err != nil {
		return executor.Started{}, err
	}
	st, err = r.follow(ctx, st, func(s *protocol.Status) bool {
		switch s.State {
		case protocol.StatePreparing, protocol.StateReady, protocol.StateStarting, protocol.StateSettling:
			return false
		default:
			// A start that failed is told once nothing of it is left. A state that a later
			// daemon has invented says nothing of a start.
			return isEnded(s) || s.Failure == "" && s.Started()
		}
	})
	if err != nil {
		return executor.Started{}, err
	}
	for _, n := range st.Notes {
		r.opt.Logger.Warn("not all that was asked for is to be had", "task", taskID, "note", n)
	}
	if st.Failure != "" {
		r.setDoubt(taskID, !isEnded(&st))
		return executor.Started{}, errors.New(st.Failure)
	}
	r.know(ctx, taskID, st.Pid)
	return executor.Started{Pid: st.Pid, At: st.StartedAt}, nil
}

// Wait returns when the process and all that it forked have ended. It goes on
// while the daemon is away, until Stop has ended the process without it.
func (r *Runtime) Wait(ctx context.Context, taskID string) (executor.Exit, error) {
	limited, done := r.untilEndedAlone(ctx, taskID)
	defer done()
	st, err := r.follow(limited, protocol.Status{ID: taskID}, isEnded)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return executor.Exit{At: time.Now(), Message: "the executor ended it, for the process daemon did not answer; so nobody saw its exit code"}, nil
	}
	if client.IsCode(err, protocol.CodeNotFound) && r.isOver(taskID) {
		return executor.Exit{At: time.Now(), Message: "the process daemon has lost what it knew of the process"}, nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	out := executor.Exit{At: st.FinishedAt, Message: st.Failure, StopFailure: st.StopFailure}
	if e := st.Exit; e != nil {
		out.Known, out.Code, out.Signal, out.OOMKilled = e.Known, e.Code, e.Signal, e.OOMKilled
		if !e.Known && out.Message == "" {
			out.Message = "the process ended while no daemon watched, so its exit code is unknown"
		}
	}
	return out, nil
}

// Signal sends a signal to the main process.
func (r *Runtime) Signal(ctx context.Context, taskID string, sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v cannot be sent on Linux", sig)
	}
	return r.c.Signal(ctx, taskID, s)
}

// Stop ends the process: stop command or SIGTERM, at the latest after the grace
// SIGKILL to everything that it forked. It waits for a daemon that is away until the
// time is up. Of a task that the daemon does not know nothing runs any more after it.
func (r *Runtime) Stop(ctx context.Context, taskID string, grace time.Duration) error {
	begin := time.Now()
	left := func() time.Duration { return max(0, grace-time.Since(begin)) }
	for {
		// After an interruption, the grace that is left counts; the daemon
		// keeps the nearest of the deadlines that it was told.
		limited, cancel := context.WithTimeout(ctx, left()+ownKillAfter)
		err := r.stopByDaemon(limited, taskID, left())
		cancel()
		switch {
		case err == nil:
			r.setDoubt(taskID, false)
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case client.IsCode(err, protocol.CodeNotFound):
			return r.endForgotten(ctx, taskID, left())
		case !away(err):
			return err
		}
		if time.Since(begin) >= grace+ownKillAfter && r.killOurselves(taskID) {
			r.endedAlone(taskID)
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// Tail returns the last lines, at most maxBytes bytes, that the process wrote.
func (r *Runtime) Tail(ctx context.Context, taskID string, maxBytes int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTime)
	defer cancel()
	return r.c.Tail(ctx, taskID, maxBytes)
}

// tailTime is how long the report of an end may wait for the last lines.
const tailTime = 5 * time.Second

// Remove deletes what is left of an ended process, and then its record.
func (r *Runtime) Remove(ctx context.Context, taskID string) error {
	if err := r.patiently(ctx, func() error { return r.c.Delete(ctx, taskID) }); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.digests, taskID)
	delete(r.groups, taskID)
	delete(r.ends, taskID)
	r.mu.Unlock()
	return r.opt.Journal.Delete(Kind, taskID)
}

// List returns the ids of the tasks that this executor's records hold.
func (r *Runtime) List(context.Context) ([]string, error) {
	recs, err := r.opt.Journal.Records()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, rec := range recs {
		if rec.Kind == Kind {
			out = append(out, rec.ID)
		}
	}
	return out, nil
}

func isEnded(s *protocol.Status) bool {
	return s.State == protocol.StateEnded || s.State == protocol.StateDeleted
}

// patiently repeats a call that may be repeated while the daemon does not answer.
func (r *Runtime) patiently(ctx context.Context, call func() error) error {
	var away error
	end := time.Now().Add(r.opt.Patience)
	for {
		begin := time.Now()
		err := call()
		if err != nil && away != nil && ctx.Err() != nil {
			// That time is up says less than what it was spent on.
			return away
		}
		// What took so long was at work: a fetch, whose daemon has gone only now.
		const served = time.Second
		if now := time.Now(); now.Sub(begin) > served {
			end = now.Add(r.opt.Patience)
		}
		if !errors.Is(err, client.ErrUnavailable) || time.Now().After(end) {
			return err
		}
		away = err
		if pause(ctx) != nil {
			return away
		}
	}
}

// The rests between tries to reach a daemon that is away: a restart is over soon, and
// whoever is away for longer is asked less often.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// pause is the rest between two tries.
func pause(ctx context.Context) error { return new(patience).pause(ctx) }

// patience is a rest that doubles.
type patience struct{ last time.Duration }

func (p *patience) pause(ctx context.Context) error {
	p.last = min(max(firstPause, 2*p.last), longestPause)
	timer := time.NewTimer(p.last)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
