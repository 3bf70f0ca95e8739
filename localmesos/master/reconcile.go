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
	aware := f.has(mesos.FrameworkInfo_Capability_PARTITION_AWARE)
	lost := func(state mesos.TaskState) mesos.TaskState {
		if aware {
			return state
		}
		return mesos.TASK_LOST
	}
	if where == "" && len(m.recovered) > 0 {
		return
	}
	if _, waiting := m.recovered[where]; waiting {
		return
	}
	var s mesos.TaskStatus
	if u, gone := m.unreachable[where]; gone {
		s = sourceMaster(id, lost(mesos.TASK_UNREACHABLE), mesos.REASON_RECONCILIATION, "Reconciliation: Task is unreachable")
		s.UnreachableTime = &mesos.TimeInfo{Nanoseconds: u.Since.UnixNano()}
	} else if m.agents[where] != nil {
		s = sourceMaster(id, lost(mesos.TASK_GONE), mesos.REASON_RECONCILIATION, "Reconciliation: Task is unknown to the agent")
	} else {
		s = sourceMaster(id, lost(mesos.TASK_UNKNOWN), mesos.REASON_RECONCILIATION, "Reconciliation: Task is unknown")
	}
	s.AgentID = agentID
	m.tell(f, s)
}
