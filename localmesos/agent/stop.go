package agent

import (
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/link"
)

// destroyTimeout is how long the processes of a container may take to vanish
// after SIGKILL.
const destroyTimeout = 30 * time.Second

// killTask passes a KILL on, or ends a task that has not been handed over yet.
func (a *Agent) killTask(k *link.Kill) {
	fw := a.frameworks[k.FrameworkID.Value]
	if fw == nil || fw.ending {
		a.log.Warn("a kill is ignored: no such framework", "framework", k.FrameworkID.Value, "task", k.TaskID)
		return
	}
	e, t := fw.findTask(k.TaskID)
	if e == nil {
		s := status{mesos.TASK_LOST, mesos.REASON_EXECUTOR_TERMINATED, "Cannot find executor"}
		if fw.partitionAware() {
			s.state = mesos.TASK_DROPPED
		}
		a.agentUpdate(fw.id, nil, "", k.TaskID, s)
		return
	}
	switch {
	case e.state == terminating || e.state == terminated || t.phase == ended:
		a.log.Warn("a kill is ignored: the task is ending", "executor", e.key(), "task", k.TaskID)
	case t.phase == queued:
		a.killQueued(e, t)
	default:
		t.kill = k
		a.sendKill(e, k)
	}
}

func (a *Agent) sendKill(e *executor, k *link.Kill) {
	a.send(e, &xexec.Event{Type: xexec.Event_KILL,
		Kill: &xexec.Event_Kill{TaskID: mesos.TaskID{Value: k.TaskID}, KillPolicy: k.KillPolicy}})
}

// killQueued ends a task that its executor has not seen, and with it the rest
// of its group; an executor that is then left without tasks is not needed.
func (a *Agent) killQueued(e *executor, t *task) {
	for _, other := range e.order {
		if other.phase == queued && (other == t || t.group != "" && other.group == t.group) {
			a.agentUpdate(e.fw.id, e, e.id, other.id(), status{mesos.TASK_KILLED,
				mesos.REASON_TASK_KILLED_DURING_LAUNCH, "Killed before delivery to the executor"})
		}
	}
	if !e.busy() && !e.subscribed {
		a.shutdownExecutor(e)
	}
}

// shutdownExecutor asks an executor to end, and ends it after the grace period.
func (a *Agent) shutdownExecutor(e *executor) {
	if !e.step(isShutDown) {
		return
	}
	if e.cancel != nil && e.pid == 0 {
		// Not started yet: there is nobody to ask. One that is started may be
		// subscribed already, while its pid is still on the way to disk.
		e.cancel()
		e.killed = true
		return
	}
	a.send(e, &xexec.Event{Type: xexec.Event_SHUTDOWN})
	grace := e.grace(a.flags)
	e.stopGrace = a.after(grace, func() {
		a.log.Warn("an executor did not end in time and is killed", "executor", e.key(), "grace", grace)
		a.destroy(e, nil)
	})
}

// destroy kills an executor and all that it started. why is what its tasks are
// told; nil is that the executor terminated.
func (a *Agent) destroy(e *executor, why *termination) {
	if !e.step(isKilled) {
		return
	}
	if why != nil {
		e.termination = why
	}
	e.killed = true
	switch {
	case e.cancel != nil:
		e.cancel()
	case e.container != nil:
		a.kill9(e)
	}
}

// kill9 ends a container's processes beside the loop; watch tells when they are gone.
func (a *Agent) kill9(e *executor) {
	c, id := e.container, e.run.Container
	a.work.Go(func() {
		if err := c.Kill(); err != nil {
			a.log.Error("killing a container failed", "container", id, "error", err)
		}
	})
}

// exited takes the end of an executor, or that it never came to be: the master
// learns of it, and then the tasks that it leaves behind are ended.
func (a *Agent) exited(e *executor, s int32) {
	if !e.step(exits) {
		return
	}
	if e.killed && e.pid != 0 {
		s = container.StatusKilled
	}
	a.log.Info("an executor ended", "executor", e.key(), "container", e.run.Container, "status", s)
	e.stopTimers()
	if e.stream != nil {
		a.out(e.stream.Close)
		e.stream = nil
	}
	if !e.fw.ending {
		if !e.generated && !e.vanished {
			a.tell(&link.Call{Type: link.CallExited, Exited: &link.ExitedExecutor{
				FrameworkID: mesos.FrameworkID{Value: e.fw.id}, ExecutorID: e.id, Status: s}})
		}
		end := status{mesos.TASK_FAILED, mesos.REASON_EXECUTOR_TERMINATED, "Executor terminated"}
		if t := e.termination; t != nil {
			end = status{t.state, t.reason, t.message}
		}
		for _, t := range e.order {
			if t.live() {
				a.agentUpdate(e.fw.id, e, e.id, t.id(), end)
			}
		}
	}
	for _, f := range e.onExit {
		f()
	}
	e.onExit = nil
	a.discardLater(e)
	a.tidyExecutor(e)
}

// tidyExecutor makes an executor history when it has ended and nothing of its
// tasks waits for an acknowledgement any more.
func (a *Agent) tidyExecutor(e *executor) {
	fw := e.fw
	if e.state != terminated || fw.executors[e.id] != e || !fw.ending && !e.settled() {
		return
	}
	delete(fw.executors, e.id)
	fw.completed = append(fw.completed, e)
	if over := len(fw.completed) - maxCompletedExecutors; over > 0 {
		fw.completed = fw.completed[over:]
	}
	if fw.checkpoint() {
		if err := a.store.RemoveExecutor(e.run); err != nil {
			a.log.Error("an executor's checkpoints are left", "executor", e.key(), "error", err)
		}
	}
	a.tidy(fw)
}

// tidy makes a framework history when it has no executor here.
func (a *Agent) tidy(fw *framework) {
	if len(fw.executors) > 0 || a.frameworks[fw.id] != fw {
		return
	}
	delete(a.frameworks, fw.id)
	a.completed = append(a.completed, fw)
	if over := len(a.completed) - maxCompletedFrameworks; over > 0 {
		a.completed = a.completed[over:]
	}
	if fw.ending {
		a.updates.Drop(updates.Key{Framework: fw.id})
	}
	if fw.checkpoint() {
		if err := a.store.RemoveFramework(a.id(), fw.id); err != nil {
			a.log.Error("a framework's checkpoints are left", "framework", fw.id, "error", err)
		}
	}
}

// shutdownFramework ends all executors of a framework; nobody is told of
// their tasks any more.
func (a *Agent) shutdownFramework(id string) {
	fw := a.frameworks[id]
	if fw == nil || fw.ending {
		a.updates.Drop(updates.Key{Framework: id})
		return
	}
	a.log.Info("a framework is shut down", "framework", id, "executors", len(fw.executors))
	fw.ending = true
	a.updates.Drop(updates.Key{Framework: id})
	// A terminated executor that waited for acknowledgements leaves fw.executors.
	for _, e := range executorsOf(fw) {
		if e.state == terminated {
			a.tidyExecutor(e)
		} else {
			a.shutdownExecutor(e)
		}
	}
	a.tidy(fw)
}

func executorsOf(fw *framework) []*executor {
	out := make([]*executor, 0, len(fw.executors))
	for _, e := range fw.executors {
		out = append(out, e)
	}
	return out
}

// shutdownOne is SHUTDOWN of a scheduler.
func (a *Agent) shutdownOne(s *link.ShutdownExecutor) {
	fw := a.frameworks[s.FrameworkID.Value]
	if fw == nil || fw.executors[s.ExecutorID] == nil {
		a.log.Warn("a shutdown is ignored: no such executor", "framework", s.FrameworkID.Value, "executor", s.ExecutorID)
		return
	}
	a.shutdownExecutor(fw.executors[s.ExecutorID])
}
