package master

import (
	"bytes"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/fault"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/link"
)

// task is a task that was given to an agent and is not terminal and acknowledged.
type task struct {
	framework *framework
	agent     *agent
	agentID   string
	info      mesos.TaskInfo
	// executorID is empty for a command task, as in Mesos.
	executorID string
	resources  resource.List
	// released tells that the resources were given back: the task is terminal.
	released bool
	// killed tells that a KILL came: an agent that was away hears of it again.
	killed bool

	// state is the agent's latest; sent is the state in the last update that
	// was forwarded and sentUUID its uuid.
	state    mesos.TaskState
	sent     *mesos.TaskState
	sentUUID []byte
	statuses []mesos.TaskStatus
}

// newTask makes a task known and takes its resources from the agent's free ones.
func (m *Master) newTask(f *framework, a *agent, info mesos.TaskInfo, executorID string) *task {
	t := &task{framework: f, agent: a, agentID: a.id, info: info, executorID: executorID,
		resources: resource.Of(info.Resources).Unallocate(), state: mesos.TASK_STAGING}
	f.tasks[info.TaskID.Value] = t
	a.frameworkTasks[f.id]++
	m.take(f, a, t.role(), t.resources)
	return t
}

// adoptTask makes a task known that an agent came back with. It returns nil
// when there is another task of that id.
func (m *Master) adoptTask(a *agent, f *framework, r link.Task) *task {
	id := r.Info.TaskID.Value
	if f.tasks[id] != nil {
		return nil
	}
	delete(f.unreachable, id)
	// It counted as lost for good, and must not be both.
	f.completed = slices.DeleteFunc(f.completed, func(t *task) bool { return t.info.TaskID.Value == id })
	executorID := r.ExecutorID
	if r.Info.Executor == nil {
		// A command task: its executor is the agent's own business.
		executorID = ""
	}
	t := m.newTask(f, a, r.Info, executorID)
	t.state, t.statuses, t.sent, t.sentUUID = r.State, r.Statuses, r.StatusUpdateState, r.StatusUpdateUUID
	if taskstate.Terminal(t.state) {
		m.releaseTask(t)
	}
	return t
}

// addExecutor makes an executor known and takes its resources.
func (m *Master) addExecutor(a *agent, f *framework, info mesos.ExecutorInfo) *executor {
	x := &executor{framework: f.id, info: info, resources: resource.Of(info.Resources).Unallocate()}
	a.executors[executorKey{f.id, info.ExecutorID.Value}] = x
	m.take(f, a, roleOf(info.Resources), x.resources)
	return x
}

// releaseTask gives a terminal task's resources back, once.
func (m *Master) releaseTask(t *task) {
	if !t.released {
		t.released = true
		if taskstate.Terminal(t.state) {
			m.countTask(t.state)
		}
		m.release(t.framework, t.agent, t.role(), t.resources)
	}
}

// forgetTask takes a task out of the master's books and frees its resources.
func (m *Master) forgetTask(t *task) {
	m.releaseTask(t)
	delete(t.framework.tasks, t.info.TaskID.Value)
	if t.agent.frameworkTasks[t.framework.id]--; t.agent.frameworkTasks[t.framework.id] <= 0 {
		delete(t.agent.frameworkTasks, t.framework.id)
	}
}

// removeTask forgets a task and keeps it in the framework's history.
func (m *Master) removeTask(t *task) {
	m.forgetTask(t)
	m.complete(t.framework, t)
}

// complete adds a task to the history.
func (m *Master) complete(f *framework, t *task) {
	f.completed = append(f.completed, t)
	if n := len(f.completed) - m.flags.MaxCompletedTasksPerFramework; n > 0 {
		f.completed = append([]*task(nil), f.completed[n:]...)
	}
}

// record keeps a status, without its data; one of the same state as the last
// replaces it. It tells whether there was none of that state before.
func (t *task) record(s mesos.TaskStatus) (fresh bool) {
	s.Data, fresh = nil, true
	if n := len(t.statuses); n > 0 && t.statuses[n-1].GetState() == s.GetState() {
		t.statuses, fresh = t.statuses[:n-1], false
	}
	t.statuses = append(t.statuses, s)
	return fresh
}

// updateTask takes a status over, tells the subscribers of a new state, or of a
// check's result, and frees the resources of a task that has ended or is lost.
func (m *Master) updateTask(t *task, s mesos.TaskStatus, latest mesos.TaskState) {
	// A terminal state is final, whatever comes after it.
	if !taskstate.Terminal(t.state) {
		t.state = latest
	}
	reason := s.GetReason()
	if t.record(s) || reason == mesos.REASON_TASK_CHECK_STATUS_UPDATED || reason == mesos.REASON_TASK_HEALTH_CHECK_STATUS_UPDATED {
		m.publishTaskUpdated(t, s)
	}
	if taskstate.Terminal(t.state) || t.state == mesos.TASK_UNREACHABLE {
		m.releaseTask(t)
	}
}

// user is whom the task runs as, when it or its executor says so.
func (t *task) user() string {
	if t.info.Command != nil && t.info.Command.User != nil {
		return *t.info.Command.User
	}
	return t.info.GetExecutor().GetCommand().GetUser()
}

// statusUpdate handles an update from an agent: it is forwarded even when the task is not known.
func (m *Master) statusUpdate(a *agent, u link.StatusUpdate) {
	f := m.frameworks[u.FrameworkID.Value]
	m.count("messages_status_update")
	ok := f != nil && u.Status.State != nil
	m.countValid(ok, "valid_status_updates")
	if !ok {
		return
	}
	if t := f.tasks[u.Status.TaskID.Value]; t != nil && t.agent == a {
		sent := u.Status.GetState()
		t.sent, t.sentUUID = &sent, u.Status.UUID
		m.updateTask(t, u.Status, u.LatestState)
	}
	m.tell(f, u.Status)
}

// tell sends an UPDATE event.
func (m *Master) tell(f *framework, s mesos.TaskStatus) {
	for range m.copies(fault.Update, f, s) {
		f.send(&scheduler.Event{Type: scheduler.Event_UPDATE, Update: &scheduler.Event_Update{Status: s}})
	}
}

// acknowledge handles ACKNOWLEDGE: the agent is told, and a task whose
// terminal update was meant is done.
func (m *Master) acknowledge(f *framework, c *scheduler.Call_Acknowledge) {
	a := m.agents[c.AgentID.Value]
	ok := a != nil && a.state == agentConnected
	m.countValid(ok, "valid_status_update_acknowledgements")
	if !ok {
		return
	}
	copies := m.copies(fault.Acknowledgement, f, acknowledged(f, c))
	if copies == 0 {
		return // as if the framework had not sent it
	}
	if t := f.tasks[c.TaskID.Value]; t != nil && t.agent == a && t.sent != nil && taskstate.Terminal(*t.sent) && bytes.Equal(t.sentUUID, c.UUID) {
		m.removeTask(t)
	}
	for range copies {
		a.send(link.Event{Type: link.EventAcknowledge, Acknowledge: &link.Acknowledge{
			FrameworkID: mesos.FrameworkID{Value: f.id}, TaskID: c.TaskID.Value, UUID: c.UUID,
		}})
	}
}

// masterStatus makes a status of a known task with the master as its source. It has no uuid: it is not to be acknowledged.
func (m *Master) masterStatus(t *task, state mesos.TaskState, reason mesos.TaskStatus_Reason, message string) mesos.TaskStatus {
	s := sourceMaster(t.info.TaskID.Value, state, reason, message)
	s.AgentID = &mesos.AgentID{Value: t.agentID}
	if t.executorID != "" {
		s.ExecutorID = &mesos.ExecutorID{Value: t.executorID}
	}
	return s
}

func sourceMaster(taskID string, state mesos.TaskState, reason mesos.TaskStatus_Reason, message string) mesos.TaskStatus {
	source := mesos.SOURCE_MASTER
	now := float64(time.Now().UnixMicro()) / 1e6
	return mesos.TaskStatus{TaskID: mesos.TaskID{Value: taskID}, State: &state, Source: &source, Reason: &reason, Message: &message, Timestamp: &now}
}

// latest adds what is known from a task's last status.
func (t *task) latest(s *mesos.TaskStatus) {
	if n := len(t.statuses); n > 0 {
		last := t.statuses[n-1]
		s.Healthy, s.CheckStatus, s.ContainerStatus = last.Healthy, last.CheckStatus, last.ContainerStatus
	}
}

// tellCameBack sends the state of a task whose agent is back after it counted as lost.
func (m *Master) tellCameBack(f *framework, t *task, message string) {
	if message == "" || taskstate.Terminal(t.state) {
		return
	}
	s := m.masterStatus(t, t.state, mesos.REASON_AGENT_REREGISTERED, message)
	t.latest(&s)
	m.tell(f, s)
}
