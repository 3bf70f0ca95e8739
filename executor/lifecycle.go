package executor

import (
	"fmt"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// The order of a taskgroup. Init tasks run to completion one after another, then
// sidecars and main tasks start in their order. An end goes the other way: main
// tasks first, side by side, and the sidecars once those have ended, all before
// the one deadline of the taskgroup. A taskgroup whose main tasks have ended ends.

// lifecycle is init, main or sidecar.
func (t *task) lifecycle() string {
	if t.spec == nil || t.spec.Lifecycle == "" {
		return api.LifecycleMain
	}
	return t.spec.Lifecycle
}

// started tells whether every start-up condition of the group holds: the init
// tasks have succeeded and all others that are not on their way out run.
func (g *group) started() bool {
	for _, t := range g.tasks {
		switch {
		case t.lifecycle() == api.LifecycleInit:
			if t.state < stateEnded {
				return false
			}
		case t.state < stateRunning:
			return false
		}
	}
	return true
}

// initLimit is how long the init tasks of a taskgroup may take together, from the start
// of the first to the end of the last.
const initLimit = 2 * time.Hour

// initLate is the pause before a look at an init task that was just between two states.
const initLate = time.Second

// limitInit begins to count with the first init task.
func (e *Executor) limitInit(g *group) {
	if g.init == nil {
		g.init = e.timers.after(initLimit, func() { e.initExpired(g) })
	}
}

// initExpired fails the init task whose turn it is. One that is starting or ending has
// the limit of that state.
func (e *Executor) initExpired(g *group) {
	for _, t := range g.tasks {
		switch {
		case t.lifecycle() != api.LifecycleInit || t.state >= stateCancelling:
		case t.state != stateRunning:
			g.init = e.timers.after(initLate, func() { e.initExpired(g) })
			return
		default:
			t.failure = fmt.Errorf("has not come to its end within the %s that the init tasks of a taskgroup have together", initLimit)
			e.log.Warn("init tasks take too long", "task", t.id, "limit", initLimit)
			e.deliver(t, eventKill)
			e.failGroup(t)
			return
		}
	}
}

// announce reports TASK_RUNNING for the tasks of a group once all of it has started.
func (e *Executor) announce(g *group) {
	if g.culprit != nil || !g.started() {
		return
	}
	for _, t := range g.tasks {
		if t.state == stateRunning && !t.announced && t.held == nil && t.lifecycle() != api.LifecycleInit {
			t.announced = true
			e.tell(t, mesos.TASK_RUNNING, "", nil)
		}
	}
}

// stopOrder returns tasks with the main ones first and the init tasks last; it
// changes nothing of what it is given.
func stopOrder(tasks []*task) []*task {
	out := slices.Clone(tasks)
	slices.SortStableFunc(out, func(a, b *task) int {
		return api.LifecycleOrder(b.lifecycle()) - api.LifecycleOrder(a.lifecycle())
	})
	return out
}

// failGroup ends the siblings of a task that failed.
func (e *Executor) failGroup(culprit *task) {
	g := culprit.group
	if g.culprit != nil {
		return
	}
	g.culprit = culprit
	e.killSiblings(culprit, fmt.Sprintf("killed because task %q of the same taskgroup failed", culprit.name()))
}

func (e *Executor) killSiblings(culprit *task, message string) {
	for _, t := range stopOrder(culprit.group.tasks) {
		if t != culprit {
			e.kill(t, &killCause{message: message})
		}
	}
}

// deferred is the end of a sidecar that waits for the main tasks to end first.
type deferred struct {
	// until is the deadline of the whole taskgroup, which the sidecar shares.
	until time.Time
	timer *timer
}

// holdBack keeps the end of a sidecar back while main tasks are ending; false
// when it has nothing to wait for. A sidecar that is killed alone does not wait.
func (e *Executor) holdBack(t *task) bool {
	if t.lifecycle() != api.LifecycleSidecar || t.state != stateRunning {
		return false
	}
	waits := false
	for _, o := range t.group.tasks {
		if o.lifecycle() != api.LifecycleMain {
			continue
		}
		if !o.ending() {
			return false
		}
		waits = waits || o.state < stateEnded
	}
	if !waits {
		return false
	}
	until := time.Now().Add(t.drain() + t.grace())
	switch {
	case t.held == nil:
		t.held = &deferred{until: until}
		e.tellKilling(t)
	case until.Before(t.held.until):
		t.held.until = until
		e.timers.stop(t.held.timer)
	default:
		return true
	}
	t.held.timer = e.timers.after(time.Until(t.held.until), func() { e.release(t) })
	return true
}

// The sidecars' share of a grace period: they end after the main tasks, before the same
// deadline, and must not be left with nothing by one that does not end when it is told to.
const (
	sidecarShare     = 2 * time.Second
	sidecarShareMost = 4 // one part in so many
)

// graceBeforeSidecars is how long a task may take to end: its grace period, for a main
// task less the share of the sidecars that are still to end after it.
func (t *task) graceBeforeSidecars() time.Duration {
	grace := t.grace()
	if t.lifecycle() != api.LifecycleMain {
		return grace
	}
	for _, o := range t.group.tasks {
		if o.lifecycle() == api.LifecycleSidecar && o.launched && o.state < stateEnded {
			return grace - min(sidecarShare, grace/sidecarShareMost)
		}
	}
	return grace
}

// release lets a sidecar end that was held back, with what is left of the time.
func (e *Executor) release(t *task) {
	if t.held == nil {
		return
	}
	left := max(0, time.Until(t.held.until))
	e.timers.stop(t.held.timer)
	t.held, t.hurry, t.drainEnd = nil, &left, time.Now()
	if t.state == stateRunning {
		e.deliver(t, eventKill)
	}
}

// taskEnded goes on with the group after a task of it has come to its end: the
// sidecars have nothing left to do when no main task is left, and nothing may
// follow an init task that did not succeed.
func (e *Executor) taskEnded(t *task) {
	g := t.group
	switch t.lifecycle() {
	case api.LifecycleInit:
		if !t.succeeded() && g.culprit == nil {
			g.culprit = t
			e.killSiblings(t, fmt.Sprintf("killed because init task %q of the same taskgroup did not succeed", t.name()))
		}
		if !slices.ContainsFunc(g.tasks, func(o *task) bool { return o.lifecycle() == api.LifecycleInit && o.state < stateEnded }) {
			e.timers.stop(g.init)
		}
	case api.LifecycleMain:
		well := true
		for _, o := range g.tasks {
			if o.lifecycle() == api.LifecycleMain {
				if o.state < stateEnded {
					return
				}
				well = well && o.succeeded()
			}
		}
		for _, o := range g.tasks {
			switch {
			case o.lifecycle() == api.LifecycleMain || o.state >= stateEnded:
			case o.held != nil:
				e.release(o)
			default: // also an init task, if the main tasks were killed before their turn
				e.kill(o, &killCause{message: "stopped because the main tasks of the taskgroup have ended", complete: well})
			}
		}
	}
}
