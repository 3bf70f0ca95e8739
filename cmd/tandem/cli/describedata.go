package cli

import (
	"context"

	"tandem/scheduler/wire"
)

// description is what "describe -o json" prints of one object: the same that the
// text shows, as the scheduler tells it.
type description struct {
	Object *wire.Object `json:"object,omitempty"`
	Agent  *wire.Agent  `json:"agent,omitempty"`
	Task   *wire.Task   `json:"task,omitempty"`
	// Taskgroups are those of a workload or an agent, the one that was asked for, or that of a task.
	Taskgroups []wire.Taskgroup `json:"taskgroups,omitempty"`
	// Events are the last happenings, oldest first.
	Events []wire.Event `json:"events,omitempty"`
}

// describeData gathers what describe shows.
func (a *app) describeData(ctx context.Context, b backend, t target) (*description, error) {
	var d description
	groups, err := b.Taskgroups(ctx, t.namespace)
	if err != nil {
		return nil, err
	}
	missing := notFound(t.kind, t.name, t.namespace, nil)
	switch {
	case t.kind.declared != "":
		objects, err := b.Objects(ctx, t.kind.declared, t.namespace)
		if err != nil {
			return nil, err
		}
		for i := range objects {
			if objects[i].Name == t.name {
				d.Object = &objects[i]
			}
		}
		if d.Object == nil {
			return nil, missing
		}
		for i := range groups {
			if groups[i].Owner == d.Object.Ref {
				d.Taskgroups = append(d.Taskgroups, groups[i])
			}
		}
		d.Events, err = b.Events(ctx, d.Object.Ref)
		return &d, err
	case t.kind.name == kindAgent:
		agents, err := b.Agents(ctx)
		if err != nil {
			return nil, err
		}
		for i := range agents {
			if agents[i].Hostname == t.name || agents[i].ID == t.name {
				d.Agent = &agents[i]
			}
		}
		if d.Agent == nil {
			return nil, missing
		}
		for i := range groups {
			if groups[i].Agent == d.Agent.Hostname {
				d.Taskgroups = append(d.Taskgroups, groups[i])
			}
		}
		return &d, nil
	}
	for i := range groups {
		g := &groups[i]
		if t.kind.name == kindTaskgroup {
			if g.Name == t.name || g.ID == t.name {
				d.Taskgroups = []wire.Taskgroup{*g}
				d.Events, err = b.Events(ctx, g.Owner)
				return &d, err
			}
			continue
		}
		for j := range g.Tasks {
			if g.Tasks[j].Name == t.name || g.Tasks[j].ID == t.name {
				d.Task, d.Taskgroups = &g.Tasks[j], []wire.Taskgroup{*g}
				return &d, nil
			}
		}
	}
	return nil, missing
}
