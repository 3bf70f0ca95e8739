package health

import (
	"context"
	"log/slog"
	"time"

	"tandem/api"
)

// MostWorkers is how many checks are made at the same time. Most checks take well
// under a millisecond, so fewWorkers make them one after another; another worker comes
// when nothing has moved for growAfter.
const (
	MostWorkers = 32
	fewWorkers  = 4
	growAfter   = 50 * time.Millisecond
)

// Monitor makes the checks of all tasks of an executor. Its methods are for one
// event loop; what comes of a check is posted to that loop, which gives it back
// with Take.
type Monitor struct {
	opt      Options
	board    *Board
	patients map[string]*patient
	jobs     chan job
	// workers are started, busy of them have a check in hand; they stay for the next.
	workers, busy int
	// moved is when a result came last, or a worker did.
	moved time.Time
}

// Options are what a Monitor needs.
type Options struct {
	// Context ends all checks.
	Context context.Context //nolint:containedctx // the life of the monitor, as its owner sees it
	// Go runs a worker and waits for it at the end.
	Go func(func())
	// Post hands a result to the event loop; false ends the worker.
	Post func(Result) bool
	// Log receives what could not be checked.
	Log *slog.Logger
}

// Result is what a worker posts.
type Result struct {
	probe   Probe
	outcome Outcome
}

type job struct {
	probe   Probe
	patient *patient
}

// NewMonitor returns a monitor without tasks. It starts nothing before a check is due.
func NewMonitor(o Options) *Monitor {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Monitor{
		opt: o, board: NewBoard(), patients: map[string]*patient{},
		// Never more jobs than workers, so that giving one never waits.
		jobs: make(chan job, MostWorkers),
	}
}

// Watch begins with the checks of a task that has just started.
func (m *Monitor) Watch(id string, checks []Check, t Target) {
	m.Forget(id)
	if len(checks) == 0 {
		return
	}
	p := &patient{Target: t}
	p.ctx, p.cancel = context.WithCancel(m.opt.Context)
	m.patients[id] = p
	m.board.Add(id, checks, time.Now())
}

// Forget ends the checks of a task, also one that is under way. Of a task that
// is not known there is nothing to forget.
func (m *Monitor) Forget(id string) {
	p := m.patients[id]
	if p == nil {
		return
	}
	p.close()
	delete(m.patients, id)
	m.board.Remove(id)
}

// Next returns the time until Run has something to do; false when a result must come first.
func (m *Monitor) Next() (time.Duration, bool) {
	due, ok := m.board.Next()
	now := time.Now()
	wait, room := m.room(now)
	if !ok || !room {
		return 0, false
	}
	return max(0, due.Sub(now), wait), true
}

// room returns the time until another check can be given to a worker; false
// when there are as many as can be.
func (m *Monitor) room(now time.Time) (time.Duration, bool) {
	switch {
	case m.busy < m.workers, m.workers < fewWorkers:
		return 0, true
	case m.workers < MostWorkers:
		return max(0, m.moved.Add(growAfter).Sub(now)), true
	}
	return 0, false
}

// Run gives the checks that are due to the workers.
func (m *Monitor) Run() {
	now := time.Now()
	for {
		if wait, room := m.room(now); !room || wait > 0 {
			return
		}
		pr, ok := m.board.Take(now)
		if !ok {
			return
		}
		if m.busy++; m.busy > m.workers {
			m.workers++
			m.moved = now
			m.opt.Go(m.work)
		}
		m.jobs <- job{pr, m.patients[pr.TaskID]}
	}
}

// work makes checks until the monitor's context ends.
func (m *Monitor) work() {
	for {
		select {
		case j := <-m.jobs:
			if !m.opt.Post(Result{j.probe, j.patient.probe(j.probe.Check)}) {
				return
			}
		case <-m.opt.Context.Done():
			return
		}
	}
}

// Take takes a result that was posted; false means that there is nothing to tell.
func (m *Monitor) Take(r Result) (Change, bool) {
	m.busy--
	m.moved = time.Now()
	m.note(r)
	return m.board.Done(r.probe, r.outcome, m.moved)
}

// note logs once when a check cannot be made, and when it can be again.
func (m *Monitor) note(r Result) {
	at, unclear := r.probe.at, r.outcome.Verdict == Unclear
	if m.patients[r.probe.TaskID] == nil || unclear == at.muted {
		return
	}
	at.muted = unclear
	if unclear {
		m.opt.Log.Warn("a check cannot be made; what is known of the task's health stays", "task", r.probe.TaskID, "check", at.check.String(), "error", r.outcome.Message)
		return
	}
	m.opt.Log.Info("a check can be made again", "task", r.probe.TaskID, "check", at.check.String())
}

// Health is true when all checks of a task are content, false when one is not,
// nil while that is not known.
func (m *Monitor) Health(id string) *bool { return m.board.Health(id) }

// Observed returns the latest value of a task's Observation, nil when there is none.
func (m *Monitor) Observed(id string) *int { return m.board.Observed(id) }

// Report returns what is known by each check of a task.
func (m *Monitor) Report(id string) []api.CheckReport { return m.board.Report(id) }
