package agent

import (
	"errors"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/internal/taskstate"
	"tandem/localmesos/link"
)

// status is what the agent itself says of a task.
type status struct {
	state   mesos.TaskState
	reason  mesos.TaskStatus_Reason
	message string
}

// refuse tells that tasks were not taken.
func (a *Agent) refuse(fw *framework, executorID string, tasks []*task, s status) {
	for _, t := range tasks {
		a.agentUpdate(fw.id, nil, executorID, t.id(), s)
	}
}

// agentUpdate makes an update of the agent's own and sends it on. e is nil for
// a task that no executor has.
func (a *Agent) agentUpdate(framework string, e *executor, executorID, taskID string, s status) {
	source, now := mesos.SOURCE_AGENT, a.now()
	ts := mesos.TaskStatus{TaskID: mesos.TaskID{Value: taskID}, State: &s.state, Source: &source, Reason: &s.reason,
		AgentID: a.info.ID, UUID: newUUID(), Timestamp: &now}
	if s.message != "" {
		ts.Message = &s.message
	}
	if executorID != "" {
		ts.ExecutorID = &mesos.ExecutorID{Value: executorID}
	}
	path := ""
	if e != nil {
		path = a.updatesFile(e, taskID)
		a.note(e.tasks[taskID], ts)
	}
	if err := a.updates.Add(updates.Update{FrameworkID: framework, ExecutorID: executorID, Status: ts}, path); err != nil {
		// Lost only if the agent dies before it is acknowledged; and then the
		// next one finds the executor gone and says the same again.
		a.log.Error("an update could not be recorded", "task", taskID, "error", err)
		_ = a.updates.Add(updates.Update{FrameworkID: framework, ExecutorID: executorID, Status: ts}, "")
	}
}

// updatesFile is where updates of a task are kept; empty if nowhere.
func (a *Agent) updatesFile(e *executor, taskID string) string {
	if !e.fw.checkpoint() || e.tasks[taskID] == nil {
		return ""
	}
	return a.store.TaskLog(e.run)
}

func (a *Agent) now() float64 { return float64(a.clock.Now().UnixMicro()) / 1e6 }

// note makes a status the newest of a task. As with Apache Mesos only the last
// of several statuses with the same state is kept.
func (a *Agent) note(t *task, ts mesos.TaskStatus) {
	if t == nil {
		return
	}
	ev := updated
	if taskstate.Terminal(ts.GetState()) {
		ev = endUpdated
	}
	if !t.step(ev) {
		return
	}
	t.state = ts.GetState()
	if ev == endUpdated {
		a.endings[t.state]++
	}
	if n := len(t.statuses); n > 0 && t.statuses[n-1].GetState() == ts.GetState() {
		t.statuses = t.statuses[:n-1]
	}
	t.statuses = append(t.statuses, ts)
}

// executorUpdate takes an update of an executor. When it returns true, the
// update is safe and the executor is told so.
func (a *Agent) executorUpdate(e *executor, ts mesos.TaskStatus) error {
	if e.fw.ending {
		return nil
	}
	ts.AgentID = a.info.ID
	if ts.Timestamp == nil {
		now := a.now()
		ts.Timestamp = &now
	}
	id := ts.TaskID.Value
	t := e.tasks[id]
	if t == nil {
		// Apache Mesos passes these on as they are, and does not tell the executor.
		a.log.Warn("an update of an unknown task is passed on", "executor", e.key(), "task", id)
		err := a.updates.Add(updates.Update{FrameworkID: e.fw.id, ExecutorID: ts.GetExecutorID().GetValue(), Status: ts}, "")
		if errors.Is(err, updates.ErrDuplicate) {
			return nil
		}
		return err
	}
	if t.live() && e.state != terminated {
		a.complete(e, &ts)
		err := a.updates.Add(updates.Update{FrameworkID: e.fw.id, ExecutorID: e.id, Status: ts}, a.updatesFile(e, id))
		switch {
		case errors.Is(err, updates.ErrDuplicate):
		case err != nil:
			return err
		default:
			a.note(t, ts)
		}
	} else {
		a.log.Debug("an update after the terminal one is dropped", "executor", e.key(), "task", id, "state", ts.GetState())
	}
	a.send(e, &xexec.Event{Type: xexec.Event_ACKNOWLEDGED,
		Acknowledged: &xexec.Event_Acknowledged{TaskID: ts.TaskID, UUID: ts.UUID}})
	return nil
}

// complete adds what the agent knows of the container.
func (a *Agent) complete(e *executor, ts *mesos.TaskStatus) {
	c := mesos.ContainerStatus{}
	if ts.ContainerStatus != nil {
		c = *ts.ContainerStatus
	}
	if c.ContainerID == nil {
		c.ContainerID = &mesos.ContainerID{Value: e.run.Container}
	}
	if c.ExecutorPID == nil && e.pid > 0 {
		pid := uint32(e.pid)
		c.ExecutorPID = &pid
	}
	v4 := mesos.IPv4
	if len(c.NetworkInfos) == 0 {
		ip := a.ip
		c.NetworkInfos = []mesos.NetworkInfo{{IPAddresses: []mesos.NetworkInfo_IPAddress{{Protocol: &v4, IPAddress: &ip}}}}
	}
	for _, n := range c.NetworkInfos {
		for i := range n.IPAddresses {
			if n.IPAddresses[i].Protocol == nil {
				n.IPAddresses[i].Protocol = &v4
			}
		}
	}
	ts.ContainerStatus = &c
}

// forward sends an update to the master, if there is one; the update manager
// asks for it again until it is acknowledged.
func (a *Agent) forward(u updates.Update) {
	latest := a.updates.Latest(updates.Key{Framework: u.FrameworkID, Task: u.Status.TaskID.Value})
	c := &link.Call{Type: link.CallUpdate, Update: &link.StatusUpdate{FrameworkID: mesos.FrameworkID{Value: u.FrameworkID},
		ExecutorID: u.ExecutorID, Status: u.Status, LatestState: latest}}
	if a.master.hold {
		a.master.held = append(a.master.held, c)
		return
	}
	a.tell(c)
}

// acknowledge takes a framework's acknowledgement.
func (a *Agent) acknowledge(k *link.Acknowledge) {
	if a.losesAck(k) {
		return
	}
	key := updates.Key{Framework: k.FrameworkID.Value, Task: k.TaskID}
	_, last, ok, err := a.updates.Ack(key, k.UUID)
	if err != nil {
		// The update is sent again, and so is its acknowledgement.
		a.log.Error("an acknowledgement could not be recorded", "task", k.TaskID, "error", err)
		return
	}
	if !ok {
		a.log.Debug("an acknowledgement without an update is ignored", "task", k.TaskID)
		return
	}
	fw := a.frameworks[key.Framework]
	if !last || fw == nil {
		return
	}
	e, t := fw.findTask(k.TaskID)
	if t == nil || !t.step(acknowledged) {
		return
	}
	a.trim(e)
	a.tidyExecutor(e)
}

// compactAfter is how many tasks of an executor are forgotten before its log is
// rewritten: it stays within a few times of what it has to hold.
const compactAfter = 1000

// trim forgets the oldest of an executor's finished tasks.
func (a *Agent) trim(e *executor) {
	gone := e.trim()
	if !e.fw.checkpoint() || len(gone) == 0 {
		return
	}
	path := a.store.TaskLog(e.run)
	for _, id := range gone {
		if err := a.updates.Forget(id, path); err != nil {
			a.log.Error("a finished task is not forgotten", "task", id, "error", err)
		}
	}
	if e.forgotten += len(gone); e.forgotten >= compactAfter {
		e.forgotten = 0
		if err := a.updates.Compact(path); err != nil {
			a.log.Error("a log of tasks grows on", "executor", e.key(), "error", err)
		}
	}
}
