package executor

import (
	"context"
	"fmt"
	"time"

	"tandem/api"
	"tandem/internal/failpoint"
)

// pauseBeforeAgain is the pause before a failed Stop or Remove is tried again.
const pauseBeforeAgain = 500 * time.Millisecond

// exitAfterStop is how long Wait may take to tell the exit code once Stop has returned.
const exitAfterStop = 3 * time.Second

// waitTriesLimit is how often the runtime may fail to tell whether a task runs
// before the task is ended for good.
const waitTriesLimit = 5

// outputBytes is how much of a failed task's output is reported.
const outputBytes = 4 << 10

// deliver moves a task along the table and does what the cell says.
func (e *Executor) deliver(t *task, ev event) {
	from := t.state
	s := transitions[from][ev]
	if s.next != from {
		t.state = s.next
		t.passed(from)
		t.retries = 0
		e.timers.stop(t.timer)
		t.timer = nil
		if limit := e.limit(t); limit > 0 {
			t.timer = e.timers.after(limit, func() { e.deliver(t, eventDeadline) })
		}
		e.log.Debug("task moves", "task", t.id, "from", from.String(), "event", ev.String(), "to", s.next.String())
		if err := failpoint.Inject("executor/" + s.next.String()); err != nil {
			e.log.Error("only kill and sleep mean something here", "error", err)
		}
	}
	if from == stateRunning && s.next != from {
		e.endChecks(t)
	}
	e.act(t, s.do, ev, from)
	e.advance(t.group)
}

// passed notes how long a state lasted that is over.
func (t *task) passed(from state) {
	now := time.Now()
	if from < stateEnded {
		t.phases = append(t.phases, api.TaskPhase{Name: from.String(), Seconds: now.Sub(t.since).Round(time.Microsecond).Seconds()})
	}
	t.since = now
}

// limit is the longest time in the task's state.
func (e *Executor) limit(t *task) time.Duration {
	limit := limits[t.state]
	switch t.state {
	case stateCreating:
		if t.spec.Process != nil && len(t.spec.Process.URIs) > 0 {
			// Archives are unpacked, which the daemon ends when it makes no progress.
			limit += limits[statePreparing]
		}
	case stateStopping:
		limit += t.drain() + t.grace()
	case stateStarting:
		if t.spec.Process != nil {
			limit += t.spec.Process.StartTimeout() + time.Duration(max(0, t.spec.Process.StartGracePeriodSeconds))*time.Second
		}
	default:
	}
	return limit
}

// act does what a cell of the table says. The task's state is the next one already.
func (e *Executor) act(t *task, do action, ev event, from state) {
	switch do {
	case ignore, hold, note:
	case unexpected:
		e.log.Error("event that cannot be, ignored", "task", t.id, "state", from.String(), "event", ev.String())
	case prepare:
		e.beginPrepare(t)
	case create:
		e.beginCreate(t)
	case start:
		e.beginStart(t)
	case run:
		e.beginWait(t)
		if t.lifecycle() == api.LifecycleInit {
			e.limitInit(t.group)
			e.tellStarting(t, "running to completion before the others start")
			for _, o := range t.group.tasks {
				if o.state == stateCreated {
					e.tellStarting(o, fmt.Sprintf("waiting for init task %q", t.name()))
				}
			}
			return
		}
		e.beginChecks(t)
	case cancel:
		e.tellKilling(t)
		t.cancelStep()
	case expire:
		e.expired(t, from)
		t.cancelStep()
		e.failGroup(t)
	case stop:
		if ev == eventExited {
			e.log.Info("task ended", "task", t.id, "exit", describeExit(t.exit))
			if !t.succeeded() {
				e.failGroup(t)
			}
		} else {
			e.tellKilling(t)
		}
		e.beginStop(t)
	case failStop:
		e.log.Warn("task failed", "task", t.id, "in", from.String(), "error", t.failure)
		e.beginStop(t)
		e.failGroup(t)
	case hasten:
		e.beginStop(t)
	case again:
		e.later(t, from)
	case remove:
		e.tellKilling(t)
		e.beginRemove(t)
	case failRemove:
		if ev == eventDeadline {
			e.expired(t, from)
		}
		e.log.Warn("task failed", "task", t.id, "in", from.String(), "error", t.failure)
		e.beginRemove(t)
		e.failGroup(t)
	case abandon:
		t.unstoppable = fmt.Errorf("could not be stopped within %s", limits[from]+t.grace())
		e.log.Error("task could not be stopped; what is left of it is for the reaper", "task", t.id)
		e.beginRemove(t)
		e.failGroup(t)
	case rewait:
		e.askAgain(t)
	case report, reportLeft:
		if do == reportLeft {
			e.log.Error("something is left of the task for the reaper", "task", t.id)
		}
		if ev == eventDeadline && from == stateStaged {
			e.expired(t, from)
		}
		e.abortStep(t)
		e.tellEnd(t)
		if do == report && t.late {
			e.removeLate(t)
		}
		e.taskEnded(t)
	case forget, giveUp:
		if do == giveUp {
			e.log.Error("the terminal update was never acknowledged", "task", t.id)
		}
		e.abortStep(t)
	default:
		e.log.Error("action without code", "action", do.String())
	}
}

// expired records a deadline as the task's failure.
func (e *Executor) expired(t *task, in state) {
	if t.failure == nil && t.killed == nil && !t.ended {
		t.failure = fmt.Errorf("%s took longer than %s", in, limits[in])
	}
}

// begin runs fn beside the loop as the task's step; its result comes back as
// eventDone or eventFailed. A step that is still under way is cancelled, and its
// result will be stale.
func (e *Executor) begin(t *task, fn func(context.Context) (any, error)) {
	e.abortStep(t)
	n := t.step
	ctx, cancel := context.WithCancel(e.work)
	t.cancelStep = cancel
	e.workers.Add(1)
	go func() {
		defer e.workers.Done()
		defer cancel()
		value, err := fn(ctx)
		e.post(stepResult{t, n, value, err})
	}()
}

// abortStep cancels the step under way, if any, and makes its result stale.
func (e *Executor) abortStep(t *task) {
	if t.cancelStep != nil {
		t.cancelStep()
		t.cancelStep = nil
	}
	t.step++
}

func (e *Executor) beginPrepare(t *task) {
	e.tellStarting(t, "preparing")
	spec, foreign, id := t.spec, t.foreign, t.id
	progress := e.throttled(t)
	e.begin(t, func(ctx context.Context) (any, error) {
		return e.prepare(ctx, id, spec, foreign, progress)
	})
}

// prepared is what the preparing step gives.
type prepared struct {
	runtime Runtime
	run     *Task
}

func (e *Executor) beginCreate(t *task) {
	e.tellStarting(t, "creating")
	box, again := e.joinNetwork(t)
	rt, run := t.runtime, *t.run
	run.Progress = e.throttled(t)
	e.begin(t, func(ctx context.Context) (any, error) {
		if err := e.awaitPredecessors(ctx, run.Spec); err != nil {
			return nil, err
		}
		if box == nil {
			if err := e.awaitPorts(ctx, &run); err != nil {
				return nil, err
			}
			return nil, rt.Create(ctx, &run)
		}
		made, err := e.makeBox(ctx, box, again)
		if err != nil {
			return made, err
		}
		return made, rt.Create(ctx, run.inside(made.box))
	})
}

func (e *Executor) beginStart(t *task) {
	t.launched = true
	rt, id := t.runtime, t.id
	e.begin(t, func(ctx context.Context) (any, error) { return rt.Start(ctx, id) })
}

// beginWait waits for the task's end, beside whatever step is under way.
func (e *Executor) beginWait(t *task) {
	done := make(chan struct{})
	t.waitDone = done
	rt, id := t.runtime, t.id
	e.workers.Add(1)
	go func() {
		defer e.workers.Done()
		exit, err := rt.Wait(e.work, id)
		e.post(waitResult{t, exit, err})
		close(done)
	}()
}

func (e *Executor) beginStop(t *task) {
	rt, id, grace, ended := t.runtime, t.id, t.graceBeforeSidecars(), t.waitDone
	drain := t.drainLeft()
	e.begin(t, func(ctx context.Context) (any, error) {
		if rt == nil {
			return nil, nil
		}
		if err := await(ctx, ended, drain); err != nil {
			return nil, err
		}
		if err := rt.Stop(ctx, id, grace); err != nil {
			return nil, err
		}
		if ended != nil {
			limit := time.NewTimer(exitAfterStop)
			defer limit.Stop()
			select {
			case <-ended:
			case <-limit.C:
			case <-ctx.Done():
			}
		}
		return nil, nil
	})
}

func (e *Executor) beginRemove(t *task) {
	rt, id := t.runtime, t.id
	box := t.group.lastInBox(t)
	// Only a task that has run has output; that of a success or a kill is in its files.
	tail := t.failed() && t.launched && t.output == ""
	e.begin(t, func(ctx context.Context) (any, error) {
		var done removal
		if rt == nil {
			return done, nil
		}
		var err error
		if tail {
			if done.output, err = rt.Tail(ctx, id, outputBytes); err != nil {
				e.log.Warn("output of the task cannot be read", "task", id, "error", err)
			}
		}
		if done.late, err = removeInTime(ctx, rt, id); err != nil || box == nil {
			return done, err
		}
		return done, e.removeBox(ctx, box)
	})
}

// later does the step of a state again after a pause.
func (e *Executor) later(t *task, in state) {
	t.retries++
	// It stays short beside the state's limit, so that the last try is made near that.
	e.timers.after(pauseBeforeAgain<<min(t.retries-1, 3), func() {
		if t.state != in {
			return
		}
		if in == stateStopping {
			e.beginStop(t)
		} else {
			e.beginRemove(t)
		}
	})
}

// askAgain waits for the task's end once more, a limited number of times.
func (e *Executor) askAgain(t *task) {
	t.waitTries++
	if t.waitTries > waitTriesLimit {
		t.failure = fmt.Errorf("the runtime cannot tell whether it runs: %w", t.waitErr)
		e.deliver(t, eventKill)
		e.failGroup(t)
		return
	}
	e.timers.after(pauseBeforeAgain<<min(t.waitTries-1, 5), func() {
		if t.state == stateRunning {
			e.beginWait(t)
		}
	})
}

// stepEnded takes the result of a step.
func (e *Executor) stepEnded(m stepResult) {
	t := m.task
	if m.step != t.step {
		return
	}
	t.cancelStep = nil
	e.keep(t, m.value)
	if m.err == nil {
		e.deliver(t, eventDone)
		return
	}
	switch t.state {
	case stateStopping, stateRemoving:
		e.log.Warn("step failed, trying again", "task", t.id, "state", t.state.String(), "error", m.err)
	case stateCancelling:
		// It was told to fail.
	default:
		if t.failure == nil && t.killed == nil {
			t.failure = m.err
		}
	}
	e.deliver(t, eventFailed)
}

// keep remembers what a step gave, also when the step came too late.
func (e *Executor) keep(t *task, value any) {
	switch v := value.(type) {
	case prepared:
		t.runtime, t.run = v.runtime, v.run
	case Started:
		t.started = v
	case *madeBox:
		if v != nil {
			e.boxMade(t, v)
		}
	case removal:
		if v.output != "" {
			t.output = v.output
		}
		t.late = v.late
	}
}

// waitEnded takes the result of Wait.
func (e *Executor) waitEnded(m waitResult) {
	t := m.task
	if m.err != nil {
		e.log.Warn("the runtime cannot tell whether the task runs", "task", t.id, "error", m.err)
		t.waitErr = m.err
		e.deliver(t, eventUnknown)
		return
	}
	exit := m.exit
	t.exit = &exit
	t.finishedAt = exit.At
	if t.state == stateRunning && t.killed == nil {
		t.ended = true
	}
	e.deliver(t, eventExited)
}

// runtimeFor is for the preparing step: the runtime of a kind, made when first needed.
func (e *Executor) runtimeFor(kind api.TaskKind) (Runtime, error) { return e.runtimes.get(kind) }
