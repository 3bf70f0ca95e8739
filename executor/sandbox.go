package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tandem/api"
)

// box is what the executor knows of a sandbox, which holds the network namespace
// of a group. Only the event loop touches it.
type box struct {
	id string
	// made is set once the sandbox is there.
	made *NetSandbox
	// tried is set once a task was to make it.
	tried bool
	// leaving is set when it is about to be removed.
	leaving bool
}

// sharers are the tasks that are, or will be, in the group's network namespace.
func (g *group) sharers() []*task {
	var out []*task
	for _, t := range g.tasks {
		if t.spec != nil && sharesNetwork(t.spec) {
			out = append(out, t)
		}
	}
	return out
}

// needsBox tells whether a sandbox has to hold the group's network namespace: the
// first of several tasks may end before the others, and a process has no
// namespace of its own to share. A container that is alone has one.
func (g *group) needsBox() bool {
	s := g.sharers()
	return len(s) > 1 || len(s) == 1 && s[0].spec.Kind == api.TaskProcess
}

// published returns the ports on the agent that lead into a network namespace of these tasks.
func published(tasks []*task) []api.TaskPort {
	var ports []api.TaskPort
	for _, t := range tasks {
		for _, p := range t.spec.Ports {
			if p.HostPort > 0 {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// joinNetwork settles in which network namespace t is to be made. What it returns
// is for the worker: the sandbox that has to be made first, or nil, and whether that
// was tried before, by a task that was killed meanwhile.
func (e *Executor) joinNetwork(t *task) (sandbox *Task, again bool) {
	g := t.group
	switch {
	case !sharesNetwork(t.spec):
		return nil, false
	case !g.needsBox():
		t.run.Publish = published([]*task{t})
		return nil, false
	case g.box == nil:
		g.box = &box{id: t.id + ".net"}
	}
	t.boxed = true
	t.run.JoinTask = g.box.id
	if g.box.made != nil {
		t.enter(g.box.made)
		return nil, false
	}
	again, g.box.tried = g.box.tried, true
	return g.boxTask(t.run.Owner, t.run.Sandbox), again
}

// leavesHalfABox tells whether a task that is killed is still making the sandbox: the next
// one finds it made, or makes it, once that step has come to its end.
func (g *group) leavesHalfABox() bool {
	return g.box != nil && g.box.made == nil && slices.ContainsFunc(g.tasks, func(t *task) bool { return t.boxed && t.state == stateCancelling })
}

// boxTask is the sandbox as a runtime sees it. It takes after the first container.
func (g *group) boxTask(owner, sandbox string) *Task {
	sharers := g.sharers()
	like := sharers[0].spec
	for _, t := range sharers {
		if t.spec.Kind == api.TaskContainer {
			like = t.spec
			if t.run != nil {
				like = t.run.Spec
			}
			break
		}
	}
	spec := &api.TaskSpec{
		Version: like.Version, Taskgroup: like.Taskgroup, Name: "network", Kind: api.TaskContainer,
		NodeIP: like.NodeIP, Network: like.Network, Labels: like.Labels, Container: &api.ContainerTask{},
	}
	if c := like.Container; c != nil {
		spec.Container.Hostname = c.Hostname
		for _, p := range c.Parameters {
			if p.Key == "ip" || p.Key == "net" || p.Key == "ipc" {
				spec.Container.Parameters = append(spec.Container.Parameters, p)
			}
		}
	}
	return &Task{ID: g.box.id, Owner: owner, Spec: spec, Sandbox: sandbox, Publish: published(sharers)}
}

// enter gives a task what is known of the sandbox that it joins.
func (t *task) enter(s *NetSandbox) { t.run = t.run.inside(s) }

// inside returns a copy of a task that is in a sandbox's network.
func (t *Task) inside(s *NetSandbox) *Task {
	run := *t
	run.Netns = s
	if len(s.IPs) > 0 {
		const name = "BCS_CONTAINER_IP="
		run.Env = slices.Clone(run.Env)
		for i, v := range run.Env {
			if strings.HasPrefix(v, name) {
				run.Env[i] = name + s.IPs[0]
			}
		}
	}
	if c := run.Spec.Container; c != nil && slices.ContainsFunc(c.Parameters, isAddress) {
		// It is the sandbox's.
		spec, container := *run.Spec, *c
		container.Parameters = slices.DeleteFunc(slices.Clone(c.Parameters), isAddress)
		spec.Container, run.Spec = &container, &spec
	}
	return &run
}

func isAddress(p api.TaskParameter) bool { return p.Key == "ip" }

// madeBox is what the creating step gives that made the sandbox.
type madeBox struct {
	runtime Runtime
	box     *NetSandbox
}

// makeBox makes the sandbox, beside the loop. again tells that something of it may be there.
func (e *Executor) makeBox(ctx context.Context, t *Task, again bool) (*madeBox, error) {
	rt, err := e.runtimeFor(api.TaskContainer)
	if err != nil {
		return nil, fmt.Errorf("the tasks of the taskgroup share a network, which a container has to hold: %w", err)
	}
	s, ok := rt.(Sandboxer)
	if !ok {
		return nil, errors.New("the tasks of the taskgroup share a network, and this executor's container runtime cannot hold one")
	}
	if again {
		if err := rt.Remove(ctx, t.ID); err != nil {
			return &madeBox{runtime: rt}, fmt.Errorf("the sandbox that was not wholly made: %w", err)
		}
	}
	if err := e.awaitPorts(ctx, t); err != nil {
		return &madeBox{runtime: rt}, err
	}
	made, err := s.CreateSandbox(ctx, t)
	return &madeBox{rt, made}, err
}

// boxMade remembers the sandbox and has its end watched.
func (e *Executor) boxMade(t *task, m *madeBox) {
	b := t.group.box
	b.made = m.box
	if m.box == nil {
		return
	}
	t.enter(m.box)
	s, ok := m.runtime.(Sandboxer)
	if !ok {
		return
	}
	g := t.group
	e.workers.Go(func() {
		err := s.AwaitSandbox(e.work, b.id)
		e.post(boxEnded{g, err})
	})
}

// boxEnded is the end of a sandbox.
type boxEnded struct {
	group *group
	err   error
}

// boxGone ends the tasks whose network has gone with its sandbox.
func (e *Executor) boxGone(m boxEnded) {
	g := m.group
	switch {
	case g.box.leaving || e.work.Err() != nil:
		return
	case m.err != nil:
		e.log.Warn("nobody can tell whether the taskgroup's network is still there", "sandbox", g.box.id, "error", m.err)
		return
	}
	for _, t := range g.sharers() {
		if t.state == stateRunning && t.killed == nil && t.failure == nil {
			t.failure = errors.New("the container that holds the network of the taskgroup has ended")
			e.deliver(t, eventKill)
			e.failGroup(t)
			return
		}
	}
}

// lastInBox returns the sandbox when t is the last that is to leave it, and marks
// it as leaving; the step that removes t removes it too. So nothing of a
// taskgroup is left when its last terminal update is made.
func (g *group) lastInBox(t *task) *box {
	if g.box == nil || !sharesNetwork(t.spec) {
		return nil
	}
	for _, o := range g.sharers() {
		if o != t && o.state < stateRemoving {
			return nil
		}
	}
	g.box.leaving = true
	return g.box
}

// removeBox removes a sandbox, beside the loop. Where there never was a runtime
// for containers there is nothing to remove.
func (e *Executor) removeBox(ctx context.Context, b *box) error {
	if rt, err := e.runtimeFor(api.TaskContainer); err == nil {
		return rt.Remove(ctx, b.id)
	}
	return nil
}
