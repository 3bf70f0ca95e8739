package scheduler

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
)

// sim is a Mesos cluster in memory: what the loop sends has its effect at once,
// what comes of it waits in events until the test hands it on. It holds the
// loop to the order of storing, acting and acknowledging.
type sim struct {
	fatalf func(format string, args ...any)
	now    func() time.Time
	store  *memStore

	connected                     bool
	framework                     string
	removed                       bool
	frameworks, offersMade, uuids int

	suppressed bool
	agents     map[string]*simAgent
	offers     map[string]*simOffer
	groups     map[string]*simGroup
	tasks      map[string]*simTask
	// order lists the tasks in the order of their launch.
	order  []string
	events []mesos.Event
	calls  []*mesosapi.Call
	// refuse makes the master answer ACCEPT by an error.
	refuse bool
	// hear takes the messages to executors; without it they are lost.
	hear func(c *mesosapi.Call_Message)
}

type simAgent struct {
	id, host  string
	total     placement.Resources
	ports     network.Ranges
	reachable bool
	filter    time.Time
}

type simOffer struct {
	agent string
	free  placement.Resources
	ports network.Ranges
}

type simGroup struct {
	id, agent string
	need      placement.Resources
	ports     network.Ranges
	tasks     []*simTask
	// strayed tells that its agent was lost once: it may have been replaced.
	strayed bool
	// deaf executors ignore KILL.
	deaf bool
}

type simTask struct {
	id       string
	group    *simGroup
	state    mesoslib.TaskState
	reported mesoslib.TaskState
	queue    []mesoslib.TaskStatus
	kills    int
}

func newSim(agents int) *sim {
	m := &sim{agents: map[string]*simAgent{}, offers: map[string]*simOffer{}, groups: map[string]*simGroup{}, tasks: map[string]*simTask{}}
	for range agents {
		m.addAgent()
	}
	return m
}

func (m *sim) addAgent() *simAgent {
	n := len(m.agents)
	a := &simAgent{
		id: fmt.Sprintf("agent-%d", n), host: fmt.Sprintf("host-%d", n), reachable: true,
		total: placement.Resources{CPUs: 4000, MemMB: 4096000, DiskMB: 9000000}, ports: network.Ranges{{Begin: 31000, End: 31009}},
	}
	m.agents[a.id] = a
	return a
}

func (m *sim) emit(e mesos.Event) {
	if m.connected {
		m.events = append(m.events, e)
	}
}

// subscribe opens a connection, as the session would with the framework id that the loop has stored.
func (m *sim) subscribe(stored string) {
	if m.removed && stored != "" {
		m.removed = false
		m.events = append(m.events, mesos.Removed{Message: "Framework has been removed"})
		stored = ""
	}
	m.removed = false
	if stored == "" {
		m.frameworks++
		stored = fmt.Sprintf("framework-%d", m.frameworks)
	}
	m.framework, m.connected, m.suppressed = stored, true, false
	clear(m.offers)
	for _, a := range m.agents {
		a.filter = time.Time{}
	}
	m.emit(mesos.Subscribed{FrameworkID: stored, Master: mustURL("http://127.0.0.1:1"), Heartbeat: time.Second})
	for _, id := range m.order {
		if t := m.tasks[id]; t != nil {
			m.forward(t)
		}
	}
}

// disconnect loses the connection, and with it what was under way.
func (m *sim) disconnect() {
	if !m.connected {
		return
	}
	m.connected = false
	m.events = append(m.events[:0:0], mesos.Disconnected{Reason: errors.New("the test says so")})
}

// teardown removes the framework and everything of it.
func (m *sim) teardown() {
	m.removed = true
	clear(m.tasks)
	clear(m.groups)
	m.disconnect()
}

// allocate makes offers to whoever wants them.
func (m *sim) allocate() {
	if !m.connected || m.suppressed {
		return
	}
	held := map[string]bool{}
	for _, o := range m.offers {
		held[o.agent] = true
	}
	var list []mesoslib.Offer
	for _, id := range slices.Sorted(maps.Keys(m.agents)) {
		a := m.agents[id]
		if !a.reachable || held[id] || a.filter.After(m.now()) {
			continue
		}
		free, ports := a.total, a.ports
		for _, g := range m.groups {
			if g.agent == id && g.live() {
				free = free.Sub(g.need)
				ports = without(ports, g.ports)
			}
		}
		m.offersMade++
		oid := fmt.Sprintf("offer-%d", m.offersMade)
		m.offers[oid] = &simOffer{agent: id, free: free, ports: ports}
		list = append(list, m.message(oid, a, free, ports))
	}
	if len(list) > 0 {
		m.emit(mesos.Offered{Offers: list})
	}
}

func (m *sim) message(id string, a *simAgent, free placement.Resources, ports network.Ranges) mesoslib.Offer {
	o := mesoslib.Offer{
		ID: mesoslib.OfferID{Value: id}, AgentID: mesoslib.AgentID{Value: a.id}, Hostname: a.host,
		FrameworkID: mesoslib.FrameworkID{Value: m.framework},
	}
	for name, v := range map[string]placement.Milli{"cpus": free.CPUs, "mem": free.MemMB, "disk": free.DiskMB} {
		typ := mesoslib.SCALAR
		o.Resources = append(o.Resources, mesoslib.Resource{Name: name, Type: &typ, Scalar: &mesoslib.Value_Scalar{Value: v.Float()}})
	}
	typ, ranges := mesoslib.RANGES, &mesoslib.Value_Ranges{}
	for _, p := range ports {
		ranges.Range = append(ranges.Range, mesoslib.Value_Range{Begin: uint64(p.Begin), End: uint64(p.End)})
	}
	o.Resources = append(o.Resources, mesoslib.Resource{Name: "ports", Type: &typ, Ranges: ranges})
	return o
}

func without(a, b network.Ranges) network.Ranges {
	for _, r := range b {
		for p := r.Begin; p <= r.End; p++ {
			a = a.Without(p)
		}
	}
	return a
}

func (m *sim) rescind(id string) {
	delete(m.offers, id)
	m.emit(mesos.Rescinded{OfferID: id})
}

func (g *simGroup) live() bool {
	return slices.ContainsFunc(g.tasks, func(t *simTask) bool { return !terminal(t.state) })
}

// Send takes a call of the loop.
func (m *sim) Send(c *mesosapi.Call) bool {
	if !m.connected {
		return false
	}
	m.calls = append(m.calls, c)
	switch c.Type {
	case mesosapi.Call_ACCEPT:
		m.accept(c)
	case mesosapi.Call_DECLINE:
		for _, id := range c.Decline.OfferIDs {
			if o := m.offers[id.Value]; o != nil {
				m.agents[o.agent].filter = m.now().Add(time.Duration(c.Decline.Filters.GetRefuseSeconds() * float64(time.Second)))
				delete(m.offers, id.Value)
			}
		}
	case mesosapi.Call_SUPPRESS:
		m.suppressed = true
	case mesosapi.Call_REVIVE:
		m.suppressed = false
		for _, a := range m.agents {
			a.filter = time.Time{}
		}
	case mesosapi.Call_KILL:
		m.kill(c.Kill.TaskID.Value)
	case mesosapi.Call_SHUTDOWN:
		if g := m.groups[c.Shutdown.ExecutorID.Value]; g != nil && m.agents[g.agent].reachable {
			for _, t := range g.tasks {
				m.update(t, mesoslib.TASK_KILLED)
			}
		}
	case mesosapi.Call_RECONCILE:
		m.reconcile(c.Reconcile)
	case mesosapi.Call_ACKNOWLEDGE:
		m.acknowledge(c.Acknowledge)
	case mesosapi.Call_MESSAGE:
		if m.hear != nil {
			m.hear(c.Message)
		}
	default:
		m.fatalf("unexpected call %s", c.Type)
	}
	return true
}

func (m *sim) accept(c *mesosapi.Call) {
	var free placement.Resources
	var ports network.Ranges
	agent, valid := "", true
	for _, id := range c.Accept.OfferIDs {
		o := m.offers[id.Value]
		if o == nil {
			valid = false
			continue
		}
		agent, free, ports = o.agent, free.Add(o.free), union(ports, o.ports)
	}
	if m.refuse {
		m.emit(mesos.Refused{Call: c, Err: errors.New("master answered 400 Bad Request")})
		return
	}
	for _, id := range c.Accept.OfferIDs {
		delete(m.offers, id.Value)
	}
	for i := range c.Accept.Operations {
		op := c.Accept.Operations[i].LaunchGroup
		g := &simGroup{id: op.Executor.ExecutorID.Value, agent: agent}
		g.need, g.ports = amounts(op.Executor.Resources)
		for j := range op.TaskGroup.Tasks {
			info := &op.TaskGroup.Tasks[j]
			if !m.store.hasTask(info.TaskID.Value) {
				m.fatalf("ACCEPT of %s before its record is stored", info.TaskID.Value)
			}
			need, p := amounts(info.Resources)
			g.need, g.ports = g.need.Add(need), union(g.ports, p)
			g.tasks = append(g.tasks, &simTask{id: info.TaskID.Value, group: g, state: mesoslib.TASK_STAGING, reported: mesoslib.TASK_STAGING})
		}
		if !valid || !m.agents[agent].reachable {
			for _, t := range g.tasks {
				m.status(t.id, g.agent, mesoslib.TASK_DROPPED, mesoslib.REASON_INVALID_OFFERS)
			}
			continue
		}
		free = free.Sub(g.need)
		if left := without(ports, g.ports); left.Len() != ports.Len()-g.ports.Len() {
			m.fatalf("%s takes ports %v of %v", g.id, g.ports, ports)
		} else {
			ports = left
		}
		if free.CPUs < 0 || free.MemMB < 0 || free.DiskMB < 0 {
			m.fatalf("%s takes more than is offered", g.id)
		}
		m.groups[g.id] = g
		for _, t := range g.tasks {
			m.tasks[t.id] = t
			m.order = append(m.order, t.id)
		}
	}
}

// status sends a status of the master's own, which has no UUID.
func (m *sim) status(task, agent string, s mesoslib.TaskState, reason mesoslib.TaskStatus_Reason) {
	source := mesoslib.SOURCE_MASTER
	st := mesoslib.TaskStatus{TaskID: mesoslib.TaskID{Value: task}, State: &s, Source: &source, Reason: &reason}
	if agent != "" {
		st.AgentID = &mesoslib.AgentID{Value: agent}
	}
	m.emit(mesos.Updated{Status: st})
}

// update queues a status of the executor; updates of one task go out one at a time.
func (m *sim) update(t *simTask, s mesoslib.TaskState) {
	if terminal(t.state) {
		return
	}
	t.state = s
	m.uuids++
	uuid := binary.BigEndian.AppendUint64(make([]byte, 8), uint64(m.uuids))
	source := mesoslib.SOURCE_EXECUTOR
	t.queue = append(t.queue, mesoslib.TaskStatus{
		TaskID: mesoslib.TaskID{Value: t.id}, AgentID: &mesoslib.AgentID{Value: t.group.agent}, State: &s, UUID: uuid, Source: &source,
		ExecutorID: &mesoslib.ExecutorID{Value: t.group.id},
	})
	if len(t.queue) == 1 {
		m.forward(t)
	}
}

// forward sends the first update that waits, or sends it again.
func (m *sim) forward(t *simTask) {
	if len(t.queue) > 0 && m.agents[t.group.agent].reachable {
		t.reported = t.queue[0].GetState()
		m.emit(mesos.Updated{Status: t.queue[0]})
	}
}

func (m *sim) acknowledge(c *mesosapi.Call_Acknowledge) {
	t := m.tasks[c.TaskID.Value]
	if t == nil || len(t.queue) == 0 || string(t.queue[0].UUID) != string(c.UUID) {
		return
	}
	if stored, ok := m.store.taskState(t.id); ok && stored != t.queue[0].GetState() && !terminal(stored) {
		m.fatalf("%s of %s is acknowledged while the store has %s", t.queue[0].GetState(), t.id, stored)
	}
	state := t.queue[0].GetState()
	t.queue = t.queue[1:]
	if terminal(state) {
		delete(m.tasks, t.id) // it is known no more
		return
	}
	m.forward(t)
}

func (m *sim) kill(id string) {
	t := m.tasks[id]
	switch {
	case t == nil:
		m.status(id, "", mesoslib.TASK_GONE, mesoslib.REASON_RECONCILIATION)
	case !m.agents[t.group.agent].reachable:
		m.status(id, t.group.agent, mesoslib.TASK_UNREACHABLE, mesoslib.REASON_RECONCILIATION)
	default:
		t.kills++
		if !t.group.deaf {
			m.update(t, mesoslib.TASK_KILLED)
		}
	}
}

func (m *sim) reconcile(c *mesosapi.Call_Reconcile) {
	answer := func(t *simTask) {
		s := t.reported
		if !m.agents[t.group.agent].reachable {
			s = mesoslib.TASK_UNREACHABLE
		}
		m.status(t.id, t.group.agent, s, mesoslib.REASON_RECONCILIATION)
	}
	if len(c.Tasks) == 0 {
		for _, id := range m.order {
			if t := m.tasks[id]; t != nil && m.agents[t.group.agent].reachable {
				answer(t)
			}
		}
	}
	for _, x := range c.Tasks {
		if t := m.tasks[x.TaskID.Value]; t != nil {
			answer(t)
		} else {
			m.status(x.TaskID.Value, x.GetAgentID().GetValue(), mesoslib.TASK_GONE, mesoslib.REASON_RECONCILIATION)
		}
	}
}

// lose makes an agent unreachable; its tasks go on.
func (m *sim) lose(id string) {
	a := m.agents[id]
	if !a.reachable {
		return
	}
	a.reachable = false
	for oid, o := range m.offers {
		if o.agent == id {
			m.rescind(oid)
		}
	}
	for _, tid := range m.order {
		if t := m.tasks[tid]; t != nil && t.group.agent == id {
			t.group.strayed = true
			if !terminal(t.reported) {
				m.status(tid, id, mesoslib.TASK_UNREACHABLE, mesoslib.REASON_AGENT_REMOVED)
			}
		}
	}
	m.emit(mesos.Failure{AgentID: id})
}

// back makes it reachable again; its tasks are announced, and what waited is sent again.
func (m *sim) back(id string) {
	a := m.agents[id]
	if a.reachable {
		return
	}
	a.reachable = true
	for _, tid := range m.order {
		if t := m.tasks[tid]; t != nil && t.group.agent == id {
			if !terminal(t.reported) {
				m.status(tid, id, t.reported, mesoslib.REASON_AGENT_REREGISTERED)
			}
			m.forward(t)
		}
	}
}

// run brings all tasks that start to RUNNING.
func (m *sim) run() {
	for _, id := range m.order {
		if t := m.tasks[id]; t != nil && m.agents[t.group.agent].reachable {
			if t.state == mesoslib.TASK_STAGING {
				m.update(t, mesoslib.TASK_STARTING)
			}
			if t.state == mesoslib.TASK_STARTING {
				m.update(t, mesoslib.TASK_RUNNING)
			}
		}
	}
}

// end ends one task; unless the executor is deaf it ends the others after a failure.
func (m *sim) end(t *simTask, s mesoslib.TaskState) {
	m.update(t, s)
	if s == mesoslib.TASK_FAILED && !t.group.deaf {
		for _, o := range t.group.tasks {
			m.update(o, mesoslib.TASK_KILLED)
		}
	}
}

// liveGroups are the taskgroups that run for an instance, such as "0.web.test".
func (m *sim) liveGroups(prefix string) []*simGroup {
	var out []*simGroup
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		if g := m.groups[id]; g.live() && strings.HasPrefix(id, prefix) {
			out = append(out, g)
		}
	}
	return out
}

// took returns the calls of a type since the last time, and forgets all.
func (m *sim) took(types ...mesosapi.Call_Type) []*mesosapi.Call {
	var out []*mesosapi.Call
	for _, c := range m.calls {
		if slices.Contains(types, c.Type) {
			out = append(out, c)
		}
	}
	m.calls = nil
	return out
}
