package master

import (
	"encoding/json"
	"log/slog"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// agent is an agent that is registered: connected, or disconnected and not yet given up.
type agent struct {
	id      string
	number  int
	info    mesos.AgentInfo
	ip      string
	version string
	state   agentState

	stream   *wire.Stream
	streamID string

	// total is all that the agent has, free what is neither offered nor used.
	total, free resource.List
	offers      map[string]*offer
	executors   map[executorKey]*executor
	// frameworkTasks counts the tasks of each framework.
	frameworkTasks map[string]int

	ping     *timer
	pings    uint64
	ponged   bool
	timeouts int
	// giveUp removes it, as soon as the rate limit allows; comeBack does so when
	// it has been disconnected for too long.
	giveUp, comeBack *timer

	// shrunk tells that it came back with less than is used on it.
	shrunk bool

	registered, reregistered time.Time
}

type executorKey struct{ framework, executor string }

// executor is an executor that the master started, or that an agent told of.
type executor struct {
	framework string
	info      mesos.ExecutorInfo
	resources resource.List
}

// agentState is where a registered agent is in its life.
type agentState int

const (
	// agentConnected: its stream is open.
	agentConnected agentState = iota
	// agentDisconnected: the stream broke; the agent may come back until pings time out.
	agentDisconnected
	// agentUnreachable: pings timed out; what it has counts as lost until it comes back.
	agentUnreachable
	// agentRemoved: it left for good.
	agentRemoved
)

// agentEvent is what happens to an agent.
type agentEvent int

const (
	// agentSubscribes: a stream was opened.
	agentSubscribes agentEvent = iota
	// agentStreamEnds: its current stream ended.
	agentStreamEnds
	// agentPingsTimeOut: it did not answer max_agent_ping_timeouts pings.
	agentPingsTimeOut
	// agentLeaves: it unregistered, or another agent took its address.
	agentLeaves
)

// agentTransitions is the whole life of an agent; what is not in it is ignored.
var agentTransitions = map[agentState]map[agentEvent]agentState{
	agentConnected: {
		agentSubscribes:   agentConnected,
		agentStreamEnds:   agentDisconnected,
		agentPingsTimeOut: agentUnreachable,
		agentLeaves:       agentRemoved,
	},
	agentDisconnected: {
		agentSubscribes:   agentConnected,
		agentPingsTimeOut: agentUnreachable,
		agentLeaves:       agentRemoved,
	},
	agentUnreachable: {
		agentSubscribes: agentConnected,
		agentLeaves:     agentRemoved,
	},
	agentRemoved: {},
}

// step moves the agent; it returns false when the event has no meaning in its state.
func (a *agent) step(e agentEvent) bool {
	next, ok := agentTransitions[a.state][e]
	if ok {
		a.state = next
	}
	return ok
}

// send passes a message to the agent; without a stream it is dropped.
func (a *agent) send(e link.Event) bool {
	if a.stream == nil {
		return false
	}
	b, err := json.Marshal(e)
	if err != nil {
		slog.Error("a message for an agent cannot be encoded and is dropped", "agent", a.id, "type", e.Type, "error", err)
		return false
	}
	return a.stream.SendRecord(b)
}

func (a *agent) executorsOf(frameworkID string) []*executor {
	var out []*executor
	for k, x := range a.executors {
		if k.framework == frameworkID {
			out = append(out, x)
		}
	}
	return out
}

// holds tells whether anything of the framework is known to be on the agent.
func (a *agent) holds(frameworkID string) bool {
	return a.frameworkTasks[frameworkID] > 0 || len(a.executorsOf(frameworkID)) > 0
}

// detach forgets the agent's stream and ends it.
func (a *agent) detach() {
	if a.stream != nil {
		a.stream.Close()
	}
	a.stream, a.streamID = nil, ""
}

// agentStreamEnded is called when an agent's connection is over.
func (m *Master) agentStreamEnded(id, streamID string) {
	a := m.agents[id]
	if a == nil || m.ending || a.streamID != streamID || !a.step(agentStreamEnds) {
		return
	}
	m.log.Info("agent disconnected", "agent", a.id, "hostname", a.info.Hostname)
	a.detach()
	m.awaitReturn(a)
	for _, o := range a.offers {
		m.rescind(o)
	}
	// Executors of frameworks without checkpoint do not survive the agent.
	for _, f := range m.frameworks {
		if f.info.GetCheckpoint() {
			continue
		}
		for _, t := range f.tasks {
			if t.agent == a && !taskstate.Terminal(t.state) {
				s := m.masterStatus(t, mesos.TASK_LOST, mesos.REASON_AGENT_DISCONNECTED, "Agent "+a.info.Hostname+" disconnected")
				m.updateTask(t, s, mesos.TASK_LOST)
				m.tell(f, s)
			}
		}
		m.dropFrameworkOf(a, f)
	}
}

// startPings begins to watch an agent.
func (m *Master) startPings(a *agent) {
	m.loop.cancel(a.ping)
	a.timeouts, a.ponged = 0, true
	m.nextPing(a)
}

// nextPing counts the last ping if it was not answered, and sends another.
func (m *Master) nextPing(a *agent) {
	if !a.ponged {
		a.timeouts++
		if a.timeouts >= m.flags.MaxAgentPingTimeouts && a.giveUp == nil && m.planLoss(a) {
			return
		}
	} else {
		a.timeouts = 0
		m.keep(a)
	}
	a.pings++
	a.ponged = false
	n := a.pings
	a.send(link.Event{Type: link.EventPing, Ping: &n})
	a.ping = m.loop.after(m.flags.AgentPingTimeout, func() { m.nextPing(a) })
}

func (m *Master) removeExecutor(a *agent, f *framework, x *executor) {
	delete(a.executors, executorKey{f.id, x.info.ExecutorID.Value})
	m.release(f, a, roleOf(x.info.Resources), x.resources)
}

func shutdownFramework(id string) link.Event {
	return link.Event{Type: link.EventShutdownFramework, ShutdownFramework: &mesos.FrameworkID{Value: id}}
}

func updateFramework(info mesos.FrameworkInfo) link.Event {
	return link.Event{Type: link.EventUpdateFramework, UpdateFramework: &info}
}
