package master

import (
	"fmt"
	"maps"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// agentSubscription is the answer to an agent's subscribe: a stream to serve.
type agentSubscription struct {
	agentID  string
	stream   *wire.Stream
	streamID string
}

// streamSeparator ends the agent's id, with which each of its stream ids begins.
const streamSeparator = "/"

// Messages of TASK_RUNNING and its like after an agent came back; the words are Mesos's.
const (
	cameBackUnreachable = "Unreachable agent re-reregistered"
	cameBackUnknown     = "Unknown agent reregistered"
)

// registerAgent admits an agent. An error means that nothing was changed.
func (m *Master) registerAgent(sub link.Subscribe, remote string) (agentSubscription, error) {
	total, err := checkAgent(sub)
	if err != nil {
		return agentSubscription{}, err
	}
	id := sub.AgentInfo.GetID().GetValue()
	if why := m.mustShutDown(id, sub, remote); why != "" {
		m.log.Warn("agent is refused and told to shut down", "agent", id, "hostname", sub.AgentInfo.Hostname, "why", why)
		return refuseAgent(why), nil
	}
	if id == "" {
		m.replaceAgentAt(sub.AgentInfo)
		id = m.newAgentID()
	}
	sub.AgentInfo.ID = &mesos.AgentID{Value: id}
	if err := m.registry.admit(sub.AgentInfo); err != nil {
		return agentSubscription{}, err
	}
	s := agentSubscription{agentID: id, stream: wire.NewStream(wire.JSON), streamID: id + streamSeparator + wire.NewUUID()}

	a, known := m.agents[id]
	_, recovered := m.recovered[id]
	_, wasUnreachable := m.unreachable[id]
	if !known && !recovered && !wasUnreachable {
		m.count("messages_register_slave")
		m.count("slave_registrations")
	} else {
		m.count("messages_reregister_slave")
		m.count("slave_reregistrations")
	}
	if !known {
		a = &agent{id: id, number: m.nextNumber, offers: map[string]*offer{}, executors: map[executorKey]*executor{},
			frameworkTasks: map[string]int{}, registered: m.loop.now()}
		m.nextNumber++
		m.agents[id] = a
	} else {
		a.detach()
		m.keep(a)
		m.loop.cancel(a.comeBack)
		for _, o := range a.offers {
			m.rescind(o)
		}
		a.reregistered = m.loop.now()
	}
	delete(m.recovered, id)
	delete(m.unreachable, id)
	changed := known && !sameOffer(a, total, sub.AgentInfo)
	a.step(agentSubscribes)
	a.info, a.version, a.ip = sub.AgentInfo, sub.Version, addressOf(sub.IP, sub.AgentInfo.Hostname, remote)
	a.stream, a.streamID = s.stream, s.streamID
	a.send(link.Event{Type: link.EventRegistered, Registered: &link.Registered{
		AgentID:                 mesos.AgentID{Value: id},
		TotalPingTimeoutSeconds: (m.flags.AgentPingTimeout * time.Duration(m.flags.MaxAgentPingTimeouts)).Seconds(),
	}})
	m.log.Info("agent registered", "agent", id, "hostname", a.info.Hostname, "again", known || recovered || wasUnreachable, "resources", total.String())

	message := ""
	switch {
	case wasUnreachable:
		message = cameBackUnreachable
	case known || !recovered:
		// Of a known agent this is about tasks that counted as lost when the stream broke.
		message = cameBackUnknown
	}
	if changed {
		// What was refused is not what is offered from now on.
		for _, f := range m.frameworks {
			delete(f.filters, id)
		}
	}
	a.total = total
	news := m.takeOver(a, sub, message)
	used := m.usedOn(a)
	a.shrunk = !total.Contains(used...)
	a.free = total.Sub(used...)
	m.publishRegistration(a, !known, news)
	m.startPings(a)
	// The others have nothing that they had not before.
	m.allocateOf(a)
	return s, nil
}

// mustShutDown is why an agent may not come (back), in Mesos's words; empty when it may.
func (m *Master) mustShutDown(id string, sub link.Subscribe, remote string) string {
	if m.registry.isGone(id) {
		return lostGone
	}
	a := m.agents[id]
	if a != nil && (a.info.Hostname != sub.AgentInfo.Hostname || a.ip != addressOf(sub.IP, sub.AgentInfo.Hostname, remote)) {
		return "Agent attempted to reregister with different IP / hostname"
	}
	return ""
}

// refuseAgent is a stream that only tells an agent to end, with all that it runs.
func refuseAgent(why string) agentSubscription {
	a := agent{stream: wire.NewStream(wire.JSON)}
	a.send(link.Event{Type: link.EventShutdown, Shutdown: why})
	a.stream.Close()
	return agentSubscription{stream: a.stream}
}

// sameOffer tells whether an agent has what it had before.
func sameOffer(a *agent, total resource.List, info mesos.AgentInfo) bool {
	return a.total.Equal(total) && slices.EqualFunc(a.info.Attributes, info.Attributes, func(x, y mesos.Attribute) bool { return x.Equal(y) })
}

func checkAgent(sub link.Subscribe) (resource.List, error) {
	if sub.AgentInfo.Hostname == "" {
		return nil, mesosError("agent has no host name")
	}
	return resource.Of(sub.AgentInfo.Resources).RangesFirst(), nil
}

func (m *Master) newAgentID() string {
	id := fmt.Sprintf("%s-S%d", m.id, m.nextAgentID)
	m.nextAgentID++
	return id
}

// replaceAgentAt removes the agent that had this address before: a new agent
// there means that the old one is gone for good.
func (m *Master) replaceAgentAt(info mesos.AgentInfo) {
	for _, a := range m.agents {
		if a.info.Hostname == info.Hostname && a.info.GetPort() == info.GetPort() && a.state == agentDisconnected {
			m.count("slave_removals/reason_registered")
			m.removeAgent(a, "a new agent registered at the same address")
		}
	}
	for id, old := range m.recovered {
		if old.Hostname == info.Hostname && old.GetPort() == info.GetPort() {
			m.recordFailed("removal of agent "+id, m.registry.forget(id))
			m.log.Info("agent will not come back: a new one registered at its address", "agent", id)
			delete(m.recovered, id)
		}
	}
}

// arrivals are what an agent brought that the master did not know.
type arrivals struct {
	frameworks []*framework
	tasks      []*task
}

// publishRegistration tells subscribers of an agent in the order of Mesos: tasks
// of frameworks that are known, the agent, then the other frameworks with their tasks.
func (m *Master) publishRegistration(a *agent, isNew bool, news arrivals) {
	of := func(f *framework) {
		for _, t := range news.tasks {
			if t.framework == f {
				m.publishTaskAdded(t)
			}
		}
	}
	for _, f := range m.sortedFrameworks() {
		if !slices.Contains(news.frameworks, f) {
			of(f)
		}
	}
	if isNew {
		m.publishAgentAdded(a)
	}
	for _, f := range news.frameworks {
		m.publishFrameworkAdded(f)
		of(f)
	}
}

// takeOver makes the master's view of an agent that of the agent itself.
func (m *Master) takeOver(a *agent, sub link.Subscribe, message string) (news arrivals) {
	infos := map[string]mesos.FrameworkInfo{}
	for _, info := range sub.Frameworks {
		infos[info.GetID().GetValue()] = info
	}
	stale := map[string]bool{}
	owner := func(id string) *framework {
		if m.registry.isRemoved(id) {
			stale[id] = true
			return nil
		}
		if f := m.frameworks[id]; f != nil {
			return f
		}
		info, ok := infos[id]
		if !ok {
			return nil
		}
		f := m.recoverFramework(id, info)
		news.frameworks = append(news.frameworks, f)
		return f
	}
	for id := range infos {
		owner(id)
	}

	there := map[executorKey]bool{}
	for _, x := range sub.Executors {
		key := executorKey{x.FrameworkID.Value, x.Info.ExecutorID.Value}
		there[key] = true
		if f := owner(key.framework); f != nil && a.executors[key] == nil && !x.Generated {
			m.addExecutor(a, f, x.Info)
		}
	}
	for key, x := range a.executors {
		if !there[key] {
			if f := m.frameworks[key.framework]; f != nil {
				m.removeExecutor(a, f, x)
			}
			delete(a.executors, key)
		}
	}
	reported := map[*task]bool{}
	for _, r := range sub.Tasks {
		f := owner(r.FrameworkID.Value)
		if f == nil {
			continue
		}
		t := f.tasks[r.Info.TaskID.Value]
		if t != nil && t.agent == a {
			reported[t] = true
			if t.killed && !taskstate.Terminal(r.State) {
				// It may not have heard.
				a.send(link.Event{Type: link.EventKill, Kill: &link.Kill{FrameworkID: r.FrameworkID, TaskID: r.Info.TaskID.Value}})
			}
			continue
		}
		if t = m.adoptTask(a, f, r); t != nil {
			reported[t] = true
			news.tasks = append(news.tasks, t)
			m.tellCameBack(f, t, message)
		}
	}
	// What was lost with the agent and did not come back with it is not unreachable any more.
	for _, f := range m.frameworks {
		maps.DeleteFunc(f.unreachable, func(_ string, t *task) bool { return t.agentID == a.id })
	}
	for id := range stale {
		a.send(shutdownFramework(id))
	}
	for id := range infos {
		if f := m.frameworks[id]; f != nil && f.state != frameworkRecovered {
			a.send(updateFramework(f.info))
		}
	}
	m.askForMissing(a, reported)
	return news
}

// recoverFramework makes a framework known that an agent told of. It has time
// to subscribe again: its failover timeout, and not less than an agent has.
func (m *Master) recoverFramework(id string, info mesos.FrameworkInfo) *framework {
	f := m.newFramework(id, info, frameworkRecovered)
	f.failover = m.loop.after(max(f.failoverTimeout(), m.flags.AgentReregisterTimeout), func() { m.removeFramework(f) })
	m.log.Info("framework recovered from an agent", "framework", id, "name", info.Name)
	return f
}

// askForMissing sends the agent the tasks that it should have and did not tell of.
func (m *Master) askForMissing(a *agent, reported map[*task]bool) {
	var missing []link.ReconcileTask
	for _, f := range m.frameworks {
		for id, t := range f.tasks {
			if t.agent == a && !reported[t] {
				missing = append(missing, link.ReconcileTask{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: t.executorID, TaskID: id, State: t.state})
			}
		}
	}
	if len(missing) > 0 {
		a.send(link.Event{Type: link.EventReconcile, Reconcile: missing})
	}
}

// usedOn sums what tasks and executors on an agent use.
func (m *Master) usedOn(a *agent) resource.List {
	var used resource.List
	for _, f := range m.frameworks {
		for _, t := range f.tasks {
			if t.agent == a && !t.released {
				used = used.Add(t.resources...)
			}
		}
	}
	for _, x := range a.executors {
		used = used.Add(x.resources...)
	}
	return used
}
