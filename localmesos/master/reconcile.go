package master

import (
	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// reconcile handles RECONCILE: without tasks all that are not terminal are told.
func (m *Master) reconcile(f *framework, tasks []scheduler.Call_Reconcile_Task) {
	if len(tasks) == 0 {
		for _, t := range f.tasks {
			m.tellLatest(f, t)
		}
		return
	}
	for _, t := range tasks {
		m.reconcileOne(f, t.TaskID.Value, t.AgentID)
	}
}

// tellLatest sends what is known of a task: the state in the last update that
// was forwarded, so that a framework never sees a state before its update.
func (m *Master) tellLatest(f *framework, t *task) {
	state := t.state
	if t.sent != nil {
		state = *t.sent
	}
	s := m.masterStatus(t, state, mesos.REASON_RECONCILIATION, "Reconciliation: Latest task state")
	t.latest(&s)
	m.tell(f, s)
}

// reconcileOne answers for one task. It says nothing while agents that a master
// before this one knew are not back: the task may be on one of them.
func (m *Master) reconcileOne(f *framework, id string, agentID *mesos.AgentID) {
	if t := f.tasks[id]; t != nil {
		m.tellLatest(f, t)
		return
	}
	where := agentID.GetValue()
	if t := f.unreachable[id]; t != nil && where == "" {
		where = t.agentID
		agentID = &mesos.AgentID{Value: where}
	}
	if where == "" && len(m.recovered) > 0 {
		return
	}
	if _, waiting := m.recovered[where]; waiting {
		return
	}
	say := func(state mesos.TaskState, what string) mesos.TaskStatus {
		return sourceMaster(id, lostUnless(f, state), mesos.REASON_RECONCILIATION, "Reconciliation: Task is "+what)
	}
	var s mesos.TaskStatus
	u, isUnreachable := m.unreachable[where]
	switch {
	case isUnreachable:
		s = say(mesos.TASK_UNREACHABLE, "unreachable")
		s.UnreachableTime = &mesos.TimeInfo{Nanoseconds: u.Since.UnixNano()}
	case m.agents[where] != nil:
		s = say(mesos.TASK_GONE, "unknown to the agent")
	case m.registry.isGone(where):
		s = say(mesos.TASK_GONE_BY_OPERATOR, "gone")
	case m.blind:
		return
	default:
		s = say(mesos.TASK_UNKNOWN, "unknown")
	}
	s.AgentID = agentID
	m.tell(f, s)
}
