package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/wire"
)

// Pauses between explicit reconciliations of tasks that Mesos has not answered
// for, and between rounds over all tasks (see Mesos's docs/reconciliation.md).
const (
	minAsk    = time.Second
	maxAsk    = 30 * time.Second
	fullRound = 10 * time.Minute
)

// Limits of what an executor may make the scheduler store of one task. With 64
// tasks to a taskgroup its record stays below store.MaxValue.
const (
	maxMessage = 2 << 10
	maxReport  = 8 << 10
)

// Handle implements mesos.Handler.
func (l *loop) Handle(ctx context.Context, e mesos.Event) error {
	switch e.(type) {
	case mesos.Subscribed, mesos.Removed:
		// The session goes on only when the framework id is stored.
		return l.call(ctx, func() error { l.handle(e); return nil })
	}
	l.post(input{do: func() error { l.handle(e); return nil }})
	return nil
}

func (l *loop) handle(e mesos.Event) {
	now := l.s.o.Now()
	switch e := e.(type) {
	case mesos.Subscribed:
		l.subscribed(e, now)
	case mesos.Disconnected:
		l.log.Warn("lost the master", "error", e.Reason)
		l.voidOffers()
		l.connection = connection{unanswered: map[string]string{}}
	case mesos.Removed:
		l.removed(e, now)
	case mesos.Offered:
		for i := range e.Offers {
			l.offered(&e.Offers[i])
		}
	case mesos.Rescinded:
		l.rescinded(e.OfferID)
	case mesos.Updated:
		l.s.metrics.updates.WithLabelValues(stateName(e.Status.GetState())).Inc()
		l.updated(&e.Status, now)
	case mesos.Failure:
		// Its tasks' updates follow; they decide.
		l.log.Info("Mesos reports a failure", "agent", e.AgentID, "executor", e.ExecutorID, "status", e.Status)
		if e.ExecutorID == "" {
			delete(l.agents, e.AgentID)
			delete(l.slaves, e.AgentID)
		}
	case mesos.Messaged:
		l.answered(e)
	case mesos.Refused:
		l.refused(e, now)
	}
}

func (l *loop) subscribed(e mesos.Subscribed, now time.Time) {
	if l.frameworkID != e.FrameworkID {
		l.mu.Lock()
		l.frameworkID = e.FrameworkID
		l.mu.Unlock()
		l.put(keyFramework, frameworkRecord{ID: e.FrameworkID})
	}
	l.voidOffers()
	l.connection = connection{connected: true, master: e.Master.String(), unanswered: map[string]string{}, agentsUnknown: true}
	clear(l.slaves)
	l.log.Info("subscribed", "framework", e.FrameworkID, "master", e.Master.Host)
	// A KILL may have been lost with the connection.
	for _, slots := range l.slots {
		for _, sl := range slots {
			if sl.live() && sl.Group.Kill != "" {
				sl.killAgain, sl.killEvery, sl.kills = time.Time{}, 0, 0
				l.touched[sl.Owner] = true
			}
		}
	}
	l.askForAll(now)
}

// askForAll begins an explicit reconciliation of every task that may be alive,
// and an implicit one, which finds tasks that are not known here.
func (l *loop) askForAll(now time.Time) {
	for id, sl := range l.tasks {
		for i := range sl.Group.Tasks {
			if t := &sl.Group.Tasks[i]; t.ID == id && !terminal(t.State) {
				l.unanswered[id] = sl.Group.AgentID
			}
		}
	}
	l.askAgain, l.askEvery = now, minAsk
	l.calls = append(l.calls, mesos.Reconcile(nil))
	l.nextFullRound = now.Add(fullRound)
}

// reconcile asks again for what Mesos has not answered, at growing intervals and without an end.
func (l *loop) reconcile(now time.Time) {
	if !l.connected {
		return
	}
	if !l.nextFullRound.After(now) {
		l.askForAll(now)
	}
	l.wakeAt(l.nextFullRound)
	if len(l.unanswered) == 0 {
		return
	}
	if !l.askAgain.After(now) {
		tasks := make([]mesos.Task, 0, len(l.unanswered))
		for id, agentID := range l.unanswered {
			tasks = append(tasks, mesos.Task{TaskID: id, AgentID: agentID})
		}
		l.calls = append(l.calls, mesos.Reconcile(tasks))
		l.askAgain = now.Add(l.askEvery)
		l.askEvery = min(2*l.askEvery, maxAsk)
	}
	l.wakeAt(l.askAgain)
}

// removed handles the end of the framework: all of its tasks are gone.
func (l *loop) removed(e mesos.Removed, now time.Time) {
	l.log.Error("the master has removed the framework; all its tasks are gone, subscribing as a new one", "message", e.Message)
	l.mu.Lock()
	l.frameworkID = ""
	l.mu.Unlock()
	l.drop(keyFramework)
	for ref, slots := range l.slots {
		for _, sl := range slots {
			if sl.live() {
				l.giveUp(sl, mesoslib.TASK_LOST, "the master has removed the framework: "+e.Message, now)
			}
		}
		l.touched[ref] = true
	}
}

// updated takes a status; it is acknowledged after the round's commit.
func (l *loop) updated(s *mesoslib.TaskStatus, now time.Time) {
	if len(s.UUID) > 0 && s.AgentID != nil {
		defer func() { l.calls = append(l.calls, mesos.Acknowledge(s)) }()
	}
	id := s.TaskID.Value
	delete(l.unanswered, id)
	sl := l.tasks[id]
	if sl == nil {
		// A task that was replaced while it was away, or of which a restored
		// store knows nothing: it must not run beside its successor.
		if !l.toldLate(s, now) {
			l.killStray(s)
		}
		return
	}
	var t *taskRecord
	for i := range sl.Group.Tasks {
		if sl.Group.Tasks[i].ID == id {
			t = &sl.Group.Tasks[i]
		}
	}
	if len(s.UUID) == 0 && sl.Group.Kill != "" && sl.kills > 0 && untouched(s.GetState()) {
		// Reconciliation says that it runs: the KILL got lost, for example at a
		// master that had no agent to pass it on to, unless the two have crossed.
		last := sl.killAgain.Add(-sl.killEvery)
		sl.killAgain, sl.killEvery, sl.kills = last.Add(time.Second), 0, 0
		l.touched[sl.Owner] = true
	}
	switch {
	case terminal(t.State):
		l.afterEnd(sl, t, s, now)
		return
	case t.State == s.GetState() && (equalUUID(t.UUID, s.UUID) || len(s.UUID) == 0 && sameHealth(t, s)):
		return // it came again; it is stored
	}
	before, health := sl.Group.State, t.Healthy
	l.absorb(sl, t, s, now)
	if t.State == mesoslib.TASK_RUNNING && t.Healthy != nil && (health == nil || *health != *t.Healthy) {
		l.healthEvent(sl, t)
	}
	l.touched[sl.Owner] = true
	l.saveSlot(sl)
	if g := sl.Group; g.State != before {
		level := "info"
		if g.State == wire.Failed || g.State == wire.Lost || g.State == wire.Unreachable {
			level = "warning"
		}
		l.event(sl.Owner, level, g.State, fmt.Sprintf("%s on %s%s", l.groupName(sl), g.Hostname, suffix(g.why())))
	}
}

// untouched tells whether a task in this state has not been asked to end.
func untouched(s mesoslib.TaskState) bool {
	return s == mesoslib.TASK_STAGING || s == mesoslib.TASK_STARTING || s == mesoslib.TASK_RUNNING
}

// killStray ends a task that must not run. What is not known to run is left
// alone: a KILL of it would be answered by the same status, without an end.
func (l *loop) killStray(s *mesoslib.TaskStatus) {
	switch s.GetState() {
	case mesoslib.TASK_STAGING, mesoslib.TASK_STARTING, mesoslib.TASK_RUNNING:
		l.log.Warn("killing a task that is not to run any more", "task", s.TaskID.Value, "state", stateName(s.GetState()))
		l.calls = append(l.calls, mesos.Kill(s.TaskID.Value, s.GetAgentID().GetValue(), 0))
	default:
	}
}

// afterEnd takes a status of a task that has ended. An end is final: the master
// knows a task no more that has ended and was acknowledged, and answers a late
// question or KILL by LOST or GONE. Only of a task that was presumed lost more
// can become known.
func (l *loop) afterEnd(sl *slot, t *taskRecord, s *mesoslib.TaskStatus, now time.Time) {
	if !terminal(s.GetState()) {
		l.killStray(s)
		return
	}
	// An end that reconciliation told comes again from the agent, with its reason and report.
	details := t.State == s.GetState() && len(s.UUID) > 0 && !equalUUID(t.UUID, s.UUID)
	if presumed(t.State) && !presumed(s.GetState()) || details {
		l.absorb(sl, t, s, now)
		l.touched[sl.Owner] = true
		l.saveSlot(sl)
	}
}

// toldLate takes the end of a task whose taskgroup is replaced already. After a
// time away the scheduler hears of ends by reconciliation first, which tells
// nothing but the state; the agent sends the update, with the reason and what is
// known of the exit, when its own pause is over. It returns false for other tasks.
func (l *loop) toldLate(s *mesoslib.TaskStatus, now time.Time) bool {
	if len(s.UUID) == 0 || !terminal(s.GetState()) {
		return false
	}
	for _, slots := range l.slots {
		for _, sl := range slots {
			if sl.last == nil {
				continue
			}
			for i := range sl.last.Tasks {
				t := &sl.last.Tasks[i]
				if t.ID != s.TaskID.Value {
					continue
				}
				known := equalUUID(t.UUID, s.UUID)
				if !known {
					l.absorbInto(sl.last, t, s, now)
				}
				if failed := t.State == mesoslib.TASK_FAILED || t.State == mesoslib.TASK_ERROR; failed && !known {
					l.event(sl.Owner, "warning", sl.last.State, fmt.Sprintf("%s on %s, told late: %s: %s%s",
						l.groupName(sl), sl.last.Hostname, t.Name, stateName(t.State), suffix(t.Message)))
				}
				return true
			}
		}
	}
	return false
}

// healthEvent tells people that a task has become healthy or is not any more.
func (l *loop) healthEvent(sl *slot, t *taskRecord) {
	if *t.Healthy {
		l.event(sl.Owner, "info", "Healthy", fmt.Sprintf("%s: %s is healthy", l.groupName(sl), t.Name))
		return
	}
	l.event(sl.Owner, "warning", "Unhealthy", fmt.Sprintf("%s: %s is not healthy%s", l.groupName(sl), t.Name, suffix(t.Message)))
}

func sameHealth(t *taskRecord, s *mesoslib.TaskStatus) bool {
	return s.Healthy == nil || t.Healthy != nil && *t.Healthy == *s.Healthy
}

func (l *loop) absorb(sl *slot, t *taskRecord, s *mesoslib.TaskStatus, now time.Time) {
	l.absorbInto(sl.Group, t, s, now)
}

// absorbInto takes what a status tells into the records of a task and its taskgroup.
func (l *loop) absorbInto(g *groupRecord, t *taskRecord, s *mesoslib.TaskStatus, now time.Time) {
	reconciled := len(s.UUID) == 0
	if t.State != s.GetState() || !reconciled {
		t.Message = clip(s.GetMessage(), maxMessage)
	}
	if t.State != s.GetState() {
		t.Changed = now
	}
	t.State = s.GetState()
	if s.Reason != nil && (!reconciled || *s.Reason != mesoslib.REASON_RECONCILIATION) {
		t.Reason = strings.TrimPrefix(s.Reason.String(), "REASON_")
	}
	if s.Healthy != nil {
		healthy := *s.Healthy
		t.Healthy = &healthy
	}
	if len(s.UUID) > 0 {
		t.UUID = s.UUID
	}
	if len(s.Data) > 0 {
		var r api.TaskReport
		switch err := json.Unmarshal(s.Data, &r); {
		case len(s.Data) > maxReport:
			l.log.Warn("a status carries a report that is too large; it is left out", "task", t.ID, "bytes", len(s.Data), "limit", maxReport)
		case err != nil || r.Version != api.TaskSpecVersion:
			l.log.Warn("a status carries data that is no report of a version known here", "task", t.ID, "version", r.Version, "error", err)
		default:
			t.Report = &r
		}
	}
	g.derive(now)
	g.Message = g.why()
}

// refused handles a call that the master answered by an error: nothing of it happened.
func (l *loop) refused(e mesos.Refused, now time.Time) {
	if e.Call.Type != mesosapi.Call_ACCEPT || e.Call.Accept == nil {
		return
	}
	// The offers are still held by this framework, and come to nobody else before they are given back.
	ids := make([]string, len(e.Call.Accept.OfferIDs))
	for i := range ids {
		ids[i] = e.Call.Accept.OfferIDs[i].Value
	}
	l.calls = append(l.calls, mesos.Decline(ids, refuseNoRoom))
	for i := range e.Call.Accept.Operations {
		group := e.Call.Accept.Operations[i].LaunchGroup
		if group == nil {
			continue
		}
		for j := range group.TaskGroup.Tasks {
			if sl := l.tasks[group.TaskGroup.Tasks[j].TaskID.Value]; sl != nil && sl.live() {
				l.giveUp(sl, mesoslib.TASK_ERROR, "the master refused the launch: "+e.Err.Error(), now)
				l.touched[sl.Owner] = true
			}
		}
	}
}

func stateName(s mesoslib.TaskState) string { return strings.TrimPrefix(s.String(), "TASK_") }
