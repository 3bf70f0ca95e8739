package master

import (
	"maps"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/link"
)

// Why agents are given up; the words are Mesos's.
const (
	lostPings = "health check timed out"
	lostGone  = "Agent has been marked gone"
)

// nextRemoval is how long the rate limit makes the next agent wait that is to be given up.
func (m *Master) nextRemoval() time.Duration {
	now := m.loop.now()
	if m.flags.AgentRemovalRateLimit == 0 {
		return 0
	}
	at := now
	if m.removalAt.After(now) {
		at = m.removalAt
	}
	m.removalAt = at.Add(m.flags.AgentRemovalRateLimit)
	return at.Sub(now)
}

// planLoss gives an agent up whose pings timed out, at once or when its turn
// comes. It tells whether the agent is lost now.
func (m *Master) planLoss(a *agent) bool {
	m.count("slave_unreachable_scheduled")
	wait := m.nextRemoval()
	if wait == 0 {
		m.loseAgent(a, lostPings)
		return true
	}
	m.log.Info("agent will be given up", "agent", a.id, "in", wait, "agent_removal_rate_limit", m.flags.AgentRemovalRateLimit)
	a.giveUp = m.loop.after(wait, func() {
		a.giveUp = nil
		if a.ponged {
			m.count("slave_unreachable_canceled")
			return
		}
		m.loseAgent(a, lostPings)
	})
	return false
}

// keep forgets that an agent was to be given up.
func (m *Master) keep(a *agent) {
	if a.giveUp != nil {
		m.loop.cancel(a.giveUp)
		a.giveUp = nil
		m.count("slave_unreachable_canceled")
	}
}

// awaitReturn gives a disconnected agent agent_reregister_timeout, should its
// pings take longer than that to time out.
func (m *Master) awaitReturn(a *agent) {
	m.loop.cancel(a.comeBack)
	a.comeBack = m.loop.after(m.flags.AgentReregisterTimeout, func() {
		m.count("slave_unreachable_scheduled")
		a.comeBack = m.loop.after(m.nextRemoval(), func() {
			m.loseAgent(a, "agent did not reregister within "+flags.FormatDuration(m.flags.AgentReregisterTimeout)+" after disconnecting")
		})
	})
}

// loseAgent makes an agent unreachable. It may come back later.
func (m *Master) loseAgent(a *agent, why string) {
	if !a.step(agentPingsTimeOut) {
		return
	}
	since := m.loop.now()
	m.recordFailed("agent "+a.id+" is unreachable", m.registry.lose(a.id, since))
	m.log.Info("agent is unreachable", "agent", a.id, "hostname", a.info.Hostname, "why", why)
	m.unreachable[a.id] = unreachableAgent{Since: since}
	m.count("slave_unreachable_completed")
	m.count("slave_removals")
	m.count("slave_removals/reason_unhealthy")
	m.endTasksOf(a, func(f *framework, t *task) mesos.TaskStatus {
		state := lostUnless(f, mesos.TASK_UNREACHABLE)
		s := m.masterStatus(t, state, mesos.REASON_AGENT_REMOVED, why)
		s.UnreachableTime = &mesos.TimeInfo{Nanoseconds: since.UnixNano()}
		return s
	}, m.keepUnreachable)
	m.dropAgent(a)
}

// loseForGood ends an agent that an operator has marked gone, and all that is on it.
func (m *Master) loseForGood(a *agent) {
	if !a.step(agentLeaves) {
		return
	}
	a.send(link.Event{Type: link.EventShutdown, Shutdown: lostGone})
	m.endTasksOf(a, m.goneStatus, m.complete)
	m.dropAgent(a)
}

func (m *Master) goneStatus(f *framework, t *task) mesos.TaskStatus {
	reason := mesos.REASON_AGENT_REMOVED
	if f.has(mesos.FrameworkInfo_Capability_PARTITION_AWARE) {
		reason = mesos.REASON_AGENT_REMOVED_BY_OPERATOR
	}
	return m.masterStatus(t, lostUnless(f, mesos.TASK_GONE_BY_OPERATOR), reason, lostGone)
}

// lostUnless is the state for a framework that is PARTITION_AWARE; others know TASK_LOST only.
func lostUnless(f *framework, state mesos.TaskState) mesos.TaskState {
	if f.has(mesos.FrameworkInfo_Capability_PARTITION_AWARE) {
		return state
	}
	return mesos.TASK_LOST
}

// removeAgent forgets an agent that left by itself; its tasks are lost.
func (m *Master) removeAgent(a *agent, cause string) {
	if !a.step(agentLeaves) {
		return
	}
	m.recordFailed("removal of agent "+a.id, m.registry.forget(a.id))
	m.count("slave_removals")
	m.log.Info("agent removed", "agent", a.id, "hostname", a.info.Hostname, "why", cause)
	m.endTasksOf(a, func(_ *framework, t *task) mesos.TaskStatus {
		return m.masterStatus(t, mesos.TASK_LOST, mesos.REASON_AGENT_REMOVED, "Agent "+a.info.Hostname+" removed: "+cause)
	}, m.complete)
	m.dropAgent(a)
	m.publishAgentRemoved(a)
}

// endTasksOf tells frameworks of the end of their tasks on an agent and hands
// each task on. Of tasks that have ended already there is nothing to tell.
func (m *Master) endTasksOf(a *agent, status func(*framework, *task) mesos.TaskStatus, into func(*framework, *task)) {
	for _, f := range m.frameworks {
		for _, t := range f.tasks {
			if t.agent != a {
				continue
			}
			if taskstate.Terminal(t.state) {
				m.removeTask(t)
				continue
			}
			s := status(f, t)
			m.updateTask(t, s, s.GetState())
			m.tell(f, s)
			m.forgetTask(t)
			into(f, t)
		}
	}
}

// keepUnreachable remembers a task that may come back with its agent.
func (m *Master) keepUnreachable(f *framework, t *task) {
	id, most := t.info.TaskID.Value, m.flags.MaxUnreachableTasksPerFramework
	if most == 0 {
		return
	}
	if f.unreachable[id] == nil && len(f.unreachable) >= most {
		delete(f.unreachable, oldest(f.unreachable))
	}
	f.unreachable[id] = t
}

func oldest(tasks map[string]*task) string {
	last := func(t *task) float64 {
		if n := len(t.statuses); n > 0 {
			return t.statuses[n-1].GetTimestamp()
		}
		return 0
	}
	found := ""
	for id, t := range tasks {
		if found == "" || last(t) < last(tasks[found]) {
			found = id
		}
	}
	return found
}

// endUnreachableTasks ends a framework's tasks on an unreachable agent that is gone now.
func (m *Master) endUnreachableTasks(f *framework, agentID string) {
	for id, t := range f.unreachable {
		if t.agentID != agentID {
			continue
		}
		s := m.goneStatus(f, t)
		m.updateTask(t, s, s.GetState())
		m.tell(f, s)
		delete(f.unreachable, id)
		m.complete(f, t)
	}
}

// dropAgent forgets an agent without tasks, rescinds its offers and tells every framework.
func (m *Master) dropAgent(a *agent) {
	for _, o := range a.offers {
		m.rescind(o)
	}
	for key, x := range a.executors {
		if f := m.frameworks[key.framework]; f != nil {
			m.removeExecutor(a, f, x)
		}
		delete(a.executors, key)
	}
	m.loop.cancel(a.ping)
	m.loop.cancel(a.giveUp)
	m.loop.cancel(a.comeBack)
	a.detach()
	delete(m.agents, a.id)
	m.tellLost(a.id)
}

// tellLost tells every framework that an agent is lost.
func (m *Master) tellLost(id string) {
	for _, f := range m.frameworks {
		f.send(&scheduler.Event{Type: scheduler.Event_FAILURE, Failure: &scheduler.Event_Failure{AgentID: &mesos.AgentID{Value: id}}})
	}
}

// giveUpRecovered ends the wait for agents that were registered with the
// master before this one.
func (m *Master) giveUpRecovered() {
	m.blind = false
	for _, id := range slices.Sorted(maps.Keys(m.recovered)) {
		m.count("slave_unreachable_scheduled")
		m.loop.after(m.nextRemoval(), func() {
			if _, waiting := m.recovered[id]; !waiting {
				m.count("slave_unreachable_canceled")
				return
			}
			since := m.loop.now()
			m.recordFailed("agent "+id+" did not come back", m.registry.lose(id, since))
			m.log.Info("agent did not come back after the master's start", "agent", id, "timeout", m.flags.AgentReregisterTimeout)
			m.unreachable[id] = unreachableAgent{Since: since}
			delete(m.recovered, id)
			for _, name := range []string{"slave_unreachable_completed", "slave_removals", "slave_removals/reason_unhealthy", "recovery_slave_removals"} {
				m.count(name)
			}
			m.tellLost(id)
		})
	}
}
