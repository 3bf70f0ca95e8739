package agent

import (
	"fmt"
	"sort"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/internal/version"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/link"
)

// subscription tells the master who the agent is and what it holds.
func (a *Agent) subscription() *link.Subscribe {
	boot, _ := a.bootID() // for people only
	s := &link.Subscribe{AgentInfo: a.info, IP: a.ip, Version: version.Version, BootID: boot}
	for _, fw := range a.sortedFrameworks() {
		s.Frameworks = append(s.Frameworks, fw.info)
		for _, e := range sortedExecutors(fw) {
			if e.state != terminated {
				s.Executors = append(s.Executors, link.Executor{FrameworkID: mesos.FrameworkID{Value: fw.id}, Info: e.info,
					ContainerID: e.run.Container, Directory: e.directory, Generated: e.generated})
			}
			for _, t := range e.order {
				if t.phase != done && !fw.ending {
					s.Tasks = append(s.Tasks, a.taskOf(e, t))
				}
			}
		}
	}
	for _, fw := range a.completed {
		if a.frameworks[fw.id] == nil {
			s.CompletedFrameworks = append(s.CompletedFrameworks, mesos.FrameworkID{Value: fw.id})
		}
	}
	return s
}

func (a *Agent) taskOf(e *executor, t *task) link.Task {
	out := link.Task{FrameworkID: mesos.FrameworkID{Value: e.fw.id}, ExecutorID: e.id, Info: t.info, State: t.state, Statuses: t.statuses}
	if u, ok := a.updates.Front(updates.Key{Framework: e.fw.id, Task: t.id()}); ok {
		state := u.Status.GetState()
		out.StatusUpdateState, out.StatusUpdateUUID = &state, u.Status.UUID
	}
	return out
}

func (a *Agent) sortedFrameworks() []*framework {
	out := make([]*framework, 0, len(a.frameworks))
	for _, fw := range a.frameworks {
		out = append(out, fw)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

func sortedExecutors(fw *framework) []*executor {
	out := executorsOf(fw)
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

// event acts on a message of the master.
func (a *Agent) event(ev *link.Event, out *outbox) {
	// A master that refuses an agent for good says so instead of registering it.
	if ev.Type != link.EventRegistered && ev.Type != link.EventShutdown && a.master.out != out {
		a.log.Warn("a message before the registration is ignored", "type", ev.Type)
		return
	}
	switch ev.Type {
	case link.EventRegistered:
		a.onRegistered(ev.Registered, out)
	case link.EventRun:
		if a.stopping {
			a.log.Warn("tasks are ignored: the agent is ending")
			return
		}
		a.run(ev.Run)
	case link.EventKill:
		a.killTask(ev.Kill)
	case link.EventAcknowledge:
		a.acknowledge(ev.Acknowledge)
	case link.EventShutdownExecutor:
		a.shutdownOne(ev.ShutdownExecutor)
	case link.EventShutdownFramework:
		a.shutdownFramework(ev.ShutdownFramework.Value)
	case link.EventMessage:
		a.message(ev.Message)
	case link.EventUpdateFramework:
		a.updateFramework(ev.UpdateFramework)
	case link.EventReconcile:
		a.reconcile(ev.Reconcile)
	case link.EventPing:
		a.tell(&link.Call{Type: link.CallPong, PongFor: ev.Ping})
	case link.EventShutdown:
		a.masterShutdown(ev.Shutdown)
	default:
		a.log.Warn("an unknown message of the master is ignored", "type", ev.Type)
	}
}

// onRegistered is the first event of a stream: from here on messages flow.
func (a *Agent) onRegistered(r *link.Registered, out *outbox) {
	switch id := r.AgentID.Value; {
	case a.info.ID == nil:
		a.info.ID = &mesos.AgentID{Value: id}
		if err := a.store.SaveAgent(&a.info); err != nil {
			a.log.Error("the agent's id cannot be recorded", "error", err)
			a.end(err)
			return
		}
		a.log.Info("registered", "agent", id)
	case a.id() != id:
		err := fmt.Errorf("the master registered the agent as %s, but it is %s; start it with an empty --work_dir to make it a new agent", id, a.id())
		a.log.Error("the master does not take this agent", "error", err)
		a.end(err)
		return
	default:
		a.log.Info("registered again", "agent", id)
	}
	a.master.out = out
	a.registeredOnce.Do(func() { close(a.registered) })
	for _, c := range a.master.early {
		a.tell(c)
	}
	a.master.early = nil
	a.updates.Resume()
}

// disconnected is called at the end of each session.
func (a *Agent) disconnected(out *outbox) {
	if a.master.out == out {
		a.master.out = nil
		a.updates.Pause()
	}
}

// message passes data of a scheduler on to its executor.
func (a *Agent) message(m *link.FrameworkMessage) {
	fw := a.frameworks[m.FrameworkID.Value]
	if fw == nil || fw.executors[m.ExecutorID] == nil || fw.executors[m.ExecutorID].state != running {
		a.log.Warn("a message is dropped: no such executor, or it does not run", "framework", m.FrameworkID.Value, "executor", m.ExecutorID)
		return
	}
	a.send(fw.executors[m.ExecutorID], &xexec.Event{Type: xexec.Event_MESSAGE, Message: &xexec.Event_Message{Data: m.Data}})
}

func (a *Agent) updateFramework(info *mesos.FrameworkInfo) {
	fw := a.frameworks[info.GetID().GetValue()]
	if fw == nil {
		return
	}
	fw.info = *info
	if fw.checkpoint() {
		if err := a.store.SaveFramework(a.id(), &fw.info); err != nil {
			a.log.Error("a framework cannot be recorded", "framework", fw.id, "error", err)
		}
	}
	// It has subscribed again: what it missed need not wait for the next repetition.
	a.updates.SendAgain(fw.id)
}

// reconcile tells the master of tasks that it believes to be here and are not.
func (a *Agent) reconcile(tasks []link.ReconcileTask) {
	for _, r := range tasks {
		fw := a.frameworks[r.FrameworkID.Value]
		s := status{mesos.TASK_LOST, mesos.REASON_RECONCILIATION, "Reconciliation: task unknown to the agent"}
		if fw != nil {
			if _, t := fw.findTask(r.TaskID); t != nil {
				continue
			}
			if fw.partitionAware() {
				s.state = mesos.TASK_DROPPED
			}
		}
		a.agentUpdate(r.FrameworkID.Value, nil, r.ExecutorID, r.TaskID, s)
	}
}

// masterShutdown ends the agent and all that it runs, because the master says so.
func (a *Agent) masterShutdown(why string) {
	a.log.Error("the master shuts this agent down", "reason", why)
	if a.stopping {
		return
	}
	err := fmt.Errorf("%w: %s", errMasterSaidSo, why)
	a.work.Go(func() {
		a.stopExecutors(true)
		if ferr := a.store.ForgetAgent(); ferr != nil {
			a.log.Error("the next agent will be taken for this one", "error", ferr)
		}
		a.end(err)
	})
}
