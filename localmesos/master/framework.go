package master

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/internal/wire"
)

// framework is a framework that is, or was, registered.
type framework struct {
	id    string
	info  mesos.FrameworkInfo
	state frameworkState

	// stream and streamID are those of the current subscription; nil and empty without one.
	stream    *wire.Stream
	streamID  string
	heartbeat *timer
	failover  *timer

	suppressed map[string]bool
	// filters are those of each agent.
	filters map[string][]filter
	offers  map[string]*offer
	// held is all that is offered to it or used by it, by agent, without
	// allocation info: equal ports of two agents are not the same ports.
	held map[string]resource.List
	// shares is the same as amounts by role.
	shares map[string]resource.Quantities
	// lastOffered breaks ties of the allocation.
	lastOffered uint64

	tasks       map[string]*task
	completed   []*task
	unreachable map[string]*task

	registered, reregistered, unregistered time.Time
}

// frameworkState is where a framework is in its life.
type frameworkState int

const (
	// frameworkRecovered: known from an agent, not subscribed since the master started.
	frameworkRecovered frameworkState = iota
	frameworkConnected
	frameworkDisconnected
	frameworkRemoved
)

// frameworkEvent is what happens to a framework.
type frameworkEvent int

const (
	// frameworkSubscribes: a SUBSCRIBE was accepted.
	frameworkSubscribes frameworkEvent = iota
	// frameworkStreamEnds: its current event stream ended.
	frameworkStreamEnds
	// frameworkEnds: TEARDOWN, or the failover timeout passed.
	frameworkEnds
)

// frameworkTransitions is the whole life of a framework; what is not in it is ignored.
var frameworkTransitions = map[frameworkState]map[frameworkEvent]frameworkState{
	frameworkRecovered: {
		frameworkSubscribes: frameworkConnected,
		frameworkEnds:       frameworkRemoved,
	},
	frameworkConnected: {
		frameworkSubscribes: frameworkConnected,
		frameworkStreamEnds: frameworkDisconnected,
		frameworkEnds:       frameworkRemoved,
	},
	frameworkDisconnected: {
		frameworkSubscribes: frameworkConnected,
		frameworkEnds:       frameworkRemoved,
	},
	frameworkRemoved: {},
}

// step moves the framework; it returns false when the event has no meaning in its state.
func (f *framework) step(e frameworkEvent) bool {
	next, ok := frameworkTransitions[f.state][e]
	if ok {
		f.state = next
	}
	return ok
}

func (m *Master) newFramework(id string, info mesos.FrameworkInfo, state frameworkState) *framework {
	info.ID = &mesos.FrameworkID{Value: id}
	f := &framework{
		id: id, info: info, state: state, suppressed: map[string]bool{}, offers: map[string]*offer{}, held: map[string]resource.List{}, shares: map[string]resource.Quantities{},
		tasks: map[string]*task{}, unreachable: map[string]*task{}, registered: m.loop.now(),
	}
	m.frameworks[id] = f
	return f
}

func (m *Master) newFrameworkID() string {
	for {
		id := fmt.Sprintf("%s-%04d", m.id, m.nextFramework)
		m.nextFramework++
		if m.frameworks[id] == nil {
			return id
		}
	}
}

func (f *framework) has(c mesos.FrameworkInfo_Capability_Type) bool {
	return hasCapability(f.info, c)
}

func hasCapability(info mesos.FrameworkInfo, c mesos.FrameworkInfo_Capability_Type) bool {
	return slices.ContainsFunc(info.Capabilities, func(x mesos.FrameworkInfo_Capability) bool { return x.Type == c })
}

// take adds resources of an agent to what the framework has for a role.
func (f *framework) take(agentID, role string, resources resource.List) {
	if resources.Empty() {
		return
	}
	f.held[agentID] = f.held[agentID].Add(resources...)
	if f.shares[role] == nil {
		f.shares[role] = resource.Quantities{}
	}
	f.shares[role].Add(resources)
}

// drop takes resources of an agent from what the framework has.
func (f *framework) drop(agentID, role string, resources resource.List) {
	if f.shares[role].Sub(resources); len(f.shares[role]) == 0 {
		delete(f.shares, role)
	}
	if f.held[agentID] = f.held[agentID].Sub(resources...); f.held[agentID].Empty() {
		delete(f.held, agentID)
	}
}

// sortedOffers are the offers that are out, oldest first.
func (f *framework) sortedOffers() []*offer {
	return slices.SortedFunc(maps.Values(f.offers), func(a, b *offer) int { return cmp.Compare(a.number, b.number) })
}

// total is all that the framework has, for people: ranges of several agents run together.
func (f *framework) total() resource.List {
	var out resource.List
	for _, l := range f.held {
		out = out.Add(l...)
	}
	return out
}

// roles are those that the framework subscribes to.
func (f *framework) roles() []string { return rolesOf(f.info) }

func rolesOf(info mesos.FrameworkInfo) []string {
	if hasCapability(info, mesos.FrameworkInfo_Capability_MULTI_ROLE) {
		return info.Roles
	}
	return []string{info.GetRole()}
}

// send passes an event to the scheduler; without a stream it is dropped, as Mesos does.
func (f *framework) send(e *scheduler.Event) bool {
	return f.stream != nil && f.stream.Send(e)
}

// failoverTimeout is how long the framework may be away. A negative one counts as none.
func (f *framework) failoverTimeout() time.Duration {
	seconds := f.info.GetFailoverTimeout()
	const most = float64(1<<62) / float64(time.Second)
	return time.Duration(min(max(seconds, 0), most) * float64(time.Second))
}

// detachStream ends the current subscription's timers and forgets the stream.
func (m *Master) detachStream(f *framework) {
	m.loop.cancel(f.heartbeat)
	f.heartbeat, f.stream, f.streamID = nil, nil, ""
}

// streamEnded is called when a subscription's connection is over.
func (m *Master) streamEnded(id, streamID string) {
	f := m.frameworks[id]
	if f == nil || m.ending || f.streamID != streamID || !f.step(frameworkStreamEnds) {
		return
	}
	m.log.Info("framework disconnected", "framework", id, "failover_timeout", f.failoverTimeout())
	m.detachStream(f)
	m.discardOffers(f)
	f.filters = nil
	m.loop.cancel(f.failover)
	f.failover = nil
	timeout := f.failoverTimeout()
	if timeout == 0 {
		m.removeFramework(f)
		return
	}
	f.failover = m.loop.after(timeout, func() { m.removeFramework(f) })
}

// removeFramework ends a framework: TEARDOWN, or not back in time.
func (m *Master) removeFramework(f *framework) {
	if !f.step(frameworkEnds) {
		return
	}
	m.recordFailed("removal of framework "+f.id, m.registry.removeFramework(f.id))
	m.log.Info("framework removed", "framework", f.id)
	if f.stream != nil {
		f.stream.Close()
	}
	m.detachStream(f)
	m.loop.cancel(f.failover)
	m.discardOffers(f)
	for _, a := range m.agents {
		if a.holds(f.id) {
			a.send(shutdownFramework(f.id))
		}
		m.dropFrameworkOf(a, f)
	}
	for id, t := range f.unreachable {
		m.updateTask(t, m.killedWith(f, t), mesos.TASK_KILLED)
		delete(f.unreachable, id)
		m.complete(f, t)
	}
	f.unregistered = m.loop.now()
	delete(m.frameworks, f.id)
	m.publishFrameworkRemoved(f)
	m.completed = append(m.completed, f)
	if n := len(m.completed) - m.flags.MaxCompletedFrameworks; n > 0 {
		m.completed = slices.Delete(m.completed, 0, n)
	}
}

// killedWith is the last status of a task whose framework is removed. Only
// those who look at the master see it; the framework hears no more.
func (m *Master) killedWith(f *framework, t *task) mesos.TaskStatus {
	return m.masterStatus(t, mesos.TASK_KILLED, mesos.REASON_FRAMEWORK_REMOVED, "Framework "+f.id+" removed")
}

// dropFrameworkOf forgets all that a framework has on an agent and frees its resources.
func (m *Master) dropFrameworkOf(a *agent, f *framework) {
	for _, t := range f.tasks {
		if t.agent == a {
			if !taskstate.Terminal(t.state) {
				m.updateTask(t, m.killedWith(f, t), mesos.TASK_KILLED)
			}
			m.removeTask(t)
		}
	}
	for _, x := range a.executorsOf(f.id) {
		m.removeExecutor(a, f, x)
	}
}
