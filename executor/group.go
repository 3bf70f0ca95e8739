package executor

import (
	"strings"

	"tandem/api"
)

// group is what one LAUNCH or LAUNCH_GROUP brought: tasks that start together or not at all.
type group struct {
	// tasks are in their start order: init tasks, sidecars, main tasks.
	tasks []*task
	// culprit is the task whose failure ends the group; nil while there is none.
	culprit *task
	// init is the deadline of the init tasks; nil before the first has started.
	init *timer
	// box holds the network namespace that tasks share; nil while there is none.
	box *box
}

// live returns the tasks that are not on their way out.
func (g *group) live() []*task {
	var live []*task
	for _, t := range g.tasks {
		if !t.ending() {
			live = append(live, t)
		}
	}
	return live
}

// next returns the task that may go on now, or nil. All tasks are prepared
// before the first is created, and all are created before the first is started,
// so that a missing image or a taken port is known before anything runs. Within
// both steps the tasks go one after another, in order.
func (g *group) next() *task {
	if g.culprit != nil {
		return nil
	}
	for _, t := range g.tasks {
		// An init task has to come to its end, and nothing of it may be left.
		if t.lifecycle() == api.LifecycleInit && t.state >= stateStarting && t.state < stateEnded {
			return nil
		}
	}
	if g.leavesHalfABox() {
		return nil
	}
	live := g.live()
	for _, phase := range []struct{ before, waiting, going state }{
		{statePreparing, statePrepared, stateCreating},
		{stateCreating, stateCreated, stateStarting},
	} {
		var first *task
		for _, t := range live {
			switch {
			case t.state <= phase.before, t.state == phase.going:
				return nil
			case t.state == phase.waiting && first == nil:
				first = t
			}
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// sharesNetwork tells whether a task is in the network namespace of its group,
// and not in the agent's own.
func sharesNetwork(s *api.TaskSpec) bool {
	if s.Kind == api.TaskProcess && s.Network.Mode == "" {
		return false
	}
	return !strings.EqualFold(s.Network.Mode, "HOST")
}

// advance tells that the group runs once it does, and lets the next task of it go on.
func (e *Executor) advance(g *group) {
	e.announce(g)
	if t := g.next(); t != nil {
		e.deliver(t, eventGo)
	}
}
