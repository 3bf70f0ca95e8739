package executor

import (
	"fmt"
	"strings"

	"tandem/api"
)

// group is what one LAUNCH or LAUNCH_GROUP brought: tasks that start together or not at all.
type group struct {
	// tasks are in their start order.
	tasks []*task
	// culprit is the task whose failure ends the group; nil while there is none.
	culprit *task
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

// owner returns the task whose network namespace t joins, or nil when t has its
// own or the host's. The first container of a group that has a network of its
// own shares it with those after it.
func (g *group) owner(t *task) *task {
	if !sharesNetwork(t.spec) {
		return nil
	}
	for _, o := range g.tasks {
		if o == t {
			return nil
		}
		if !o.ending() && sharesNetwork(o.spec) {
			return o
		}
	}
	return nil
}

// publish returns the ports that t's namespace publishes: its own and those of the tasks that join it.
func (g *group) publish(t *task) []api.TaskPort {
	if !sharesNetwork(t.spec) || g.owner(t) != nil {
		return nil
	}
	var ports []api.TaskPort
	for _, o := range g.tasks {
		if o == t || (!o.ending() && g.owner(o) == t) {
			for _, p := range o.spec.Ports {
				if p.HostPort > 0 {
					ports = append(ports, p)
				}
			}
		}
	}
	return ports
}

// sharesNetwork tells whether a task has a network namespace that others of its group can join.
func sharesNetwork(s *api.TaskSpec) bool {
	if s.Kind != api.TaskContainer {
		return false
	}
	switch strings.ToUpper(s.Network.Mode) {
	case "BRIDGE", "CUSTOM":
		return true
	}
	return false
}

// failGroup ends the siblings of a task that failed.
func (e *Executor) failGroup(culprit *task) {
	g := culprit.group
	if g.culprit != nil {
		return
	}
	g.culprit = culprit
	for _, t := range g.tasks {
		if t != culprit {
			e.kill(t, &killCause{message: fmt.Sprintf("killed because task %q of the same taskgroup failed", culprit.name())})
		}
	}
}

// orphanJoiners ends the tasks that shared the network of one that has ended:
// the engine takes the interface and the published ports away with their owner.
func (e *Executor) orphanJoiners(owner *task) {
	for _, t := range owner.group.tasks {
		if t.joined == owner {
			e.kill(t, &killCause{message: fmt.Sprintf("killed because it shared the network of task %q, which has ended", owner.name())})
		}
	}
}

// advance lets the next task of the group go on.
func (e *Executor) advance(g *group) {
	if t := g.next(); t != nil {
		e.deliver(t, eventGo)
	}
}
