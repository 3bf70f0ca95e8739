package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"tandem/api"
	"tandem/scheduler/placement"
	"tandem/scheduler/wire"
)

func (l *loop) listObjects(kind api.Kind, namespace string) []wire.Object {
	out := []wire.Object{}
	for ref, o := range l.objects {
		if ref.Kind == kind && (namespace == "" || ref.Namespace == namespace) {
			out = append(out, l.showObject(o))
		}
	}
	slices.SortFunc(out, func(a, b wire.Object) int { return refLess(a.Ref, b.Ref) })
	return out
}

func (l *loop) showObject(o *object) wire.Object {
	w := wire.Object{Ref: o.ref, Raw: o.Raw, Created: o.Created, Updated: o.Updated, Deleting: o.Deleting}
	if o.app != nil {
		w.Status = l.status(o)
	}
	return w
}

// status sums up a workload. It is settled when every instance runs what was
// applied last, or has come to the end that its policy foresees, and no other is there.
func (l *loop) status(o *object) *wire.Status {
	st := &wire.Status{Desired: o.app.Spec.Instance}
	if o.Deleting {
		st.Desired = 0
	}
	stands, failed := 0, 0
	slots := l.sortedSlots(o.ref)
	for _, sl := range slots {
		g := sl.Group
		st.Restarts += sl.Restarts
		switch {
		case g == nil:
			if st.Message == "" && len(sl.waiting) > 0 {
				st.Message = sl.waiting[0]
			}
			if st.Message == "" && sl.last != nil {
				st.Message = sl.last.Message
			}
			continue
		case !g.ended():
			st.Current++
		case sl.Done && g.State != wire.Finished:
			failed++
			st.Message = cmp.Or(g.Message, st.Message)
		}
		fresh := g.Generation == o.generation
		if fresh && !g.ended() {
			st.UpToDate++
		}
		if g.State == wire.Running {
			st.Running++
			if g.ready() {
				st.Ready++
			}
		}
		if fresh && g.Kill == "" && (g.State == wire.Running || sl.Done) {
			stands++
		}
		if st.Message == "" && g.State != wire.Running {
			st.Message = g.Message
		}
	}
	st.Failed = failed > 0
	st.Settled = stands == st.Desired && len(slots) == st.Desired && failed == 0
	return st
}

// ready tells whether the taskgroup may be sent work: it runs, and all of its
// tasks are healthy as far as they are checked.
func (g *groupRecord) ready() bool {
	if g.State != wire.Running {
		return false
	}
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Healthy == nil && t.Checked || t.Healthy != nil && !*t.Healthy {
			return false
		}
	}
	return true
}

func (l *loop) listGroups(namespace string) []wire.Taskgroup {
	out := []wire.Taskgroup{}
	for ref := range l.slots {
		if namespace != "" && ref.Namespace != namespace {
			continue
		}
		for _, sl := range l.sortedSlots(ref) {
			out = append(out, l.showGroup(sl))
		}
	}
	slices.SortStableFunc(out, func(a, b wire.Taskgroup) int {
		return cmp.Or(refLess(a.Owner, b.Owner), cmp.Compare(a.Index, b.Index))
	})
	return out
}

func (l *loop) showGroup(sl *slot) wire.Taskgroup {
	w := wire.Taskgroup{
		Name: l.groupName(sl), Namespace: sl.Owner.Namespace, Owner: sl.Owner, Index: sl.Index, State: wire.Pending,
		Restarts: sl.Restarts, Waiting: slices.Clone(sl.waiting), NotBefore: sl.NotBefore,
	}
	g := sl.Group
	if g == nil {
		if sl.last != nil {
			// What came before tells why there is a wait.
			w.Message = sl.last.Message
			w.Tasks = showTasks(sl.last.Tasks)
		}
		return w
	}
	w.ID, w.State, w.Ready, w.AgentID, w.Agent, w.NodeIP = g.ID, g.State, g.ready(), g.AgentID, g.Hostname, g.NodeIP
	w.Message, w.Created, w.Started = g.Message, g.Created, g.Running
	if o := l.objects[sl.Owner]; o != nil {
		w.UpToDate = g.Generation == o.generation
	}
	w.Tasks = showTasks(g.Tasks)
	return w
}

func showTasks(tasks []taskRecord) []wire.Task {
	out := make([]wire.Task, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		out[i] = wire.Task{
			ID: t.ID, Name: t.Name, Kind: t.Kind, Lifecycle: t.Lifecycle, State: stateName(t.State), Reason: t.Reason, Message: t.Message,
			Healthy: t.Healthy, Ports: t.Ports, Report: t.Report, Changed: t.Changed,
		}
	}
	return out
}

// listAgents shows the agents that the master has told of, and those that have
// offered something or where taskgroups are. Without the master's list, told is
// nil, and what offers have shown must do.
func (l *loop) listAgents(told []slave) []wire.Agent {
	agents := map[string]*wire.Agent{}
	for id, a := range l.agents {
		w := &wire.Agent{ID: id, Hostname: a.hostname, Address: a.url, State: wire.AgentActive, Attributes: attributeTexts(a.attributes), Total: taskResources(a.total), Ports: a.ports.String()}
		agents[id] = w
	}
	used := map[string]placement.Resources{}
	for _, slots := range l.slots {
		for _, sl := range slots {
			if !sl.live() {
				continue
			}
			g := sl.Group
			w := agents[g.AgentID]
			if w == nil {
				w = &wire.Agent{ID: g.AgentID, Hostname: g.Hostname, Address: g.AgentURL, State: wire.AgentUnknown, Attributes: attributeTexts(g.Attributes)}
				agents[g.AgentID] = w
			}
			if !g.Unreachable.IsZero() {
				w.State = wire.AgentUnreachable
			}
			w.Taskgroups++
			used[g.AgentID] = used[g.AgentID].Add(g.Need)
		}
	}
	for id, w := range agents {
		w.Used = taskResources(used[id])
	}
	merge(agents, told)
	out := make([]wire.Agent, 0, len(agents))
	for _, w := range agents {
		w.Address = l.s.agentURL(w.Address)
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b wire.Agent) int { return cmp.Or(cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.ID, b.ID)) })
	return out
}

// merge puts what the master tells over what is known here: its amounts count
// all frameworks. An agent that it does not list is gone, or out of its reach.
func merge(agents map[string]*wire.Agent, told []slave) {
	if told == nil {
		return
	}
	listed := map[string]bool{}
	for i := range told {
		s := &told[i]
		listed[s.ID] = true
		w := agents[s.ID]
		if w == nil {
			w = &wire.Agent{ID: s.ID, Attributes: map[string]string{}}
			for name, value := range s.Attributes {
				w.Attributes[name] = fmt.Sprint(value)
			}
			agents[s.ID] = w
		}
		w.Hostname = s.Hostname
		w.Address = cmp.Or(w.Address, s.url())
		w.Total, w.Used = taskResources(s.Resources.amounts()), taskResources(s.Used.amounts())
		w.Ports = s.Resources.ports().String()
		switch {
		case s.recovering:
			w.State = wire.AgentUnknown
		case s.Active:
			w.State = wire.AgentActive
		default:
			w.State = wire.AgentInactive
		}
	}
	for id, w := range agents {
		switch {
		case listed[id]:
		case w.Taskgroups == 0:
			delete(agents, id)
		default:
			w.State = wire.AgentUnreachable
		}
	}
}

func attributeTexts(attrs []placement.Attribute) map[string]string {
	out := map[string]string{}
	for i := range attrs {
		out[attrs[i].Name] = attrs[i].Value()
	}
	return out
}

func taskResources(r placement.Resources) api.TaskResources {
	return api.TaskResources{CPUs: r.CPUs.Float(), MemMB: r.MemMB.Float(), DiskMB: r.DiskMB.Float()}
}

// count sets the gauges.
func (l *loop) count() {
	l.s.metrics.taskgroups.Reset()
	for _, slots := range l.slots {
		for _, sl := range slots {
			state := wire.Pending
			if sl.Group != nil {
				state = sl.Group.State
			}
			l.s.metrics.taskgroups.WithLabelValues(state).Inc()
		}
	}
	l.s.metrics.connected.Set(0)
	if l.connected {
		l.s.metrics.connected.Set(1)
	}
}
