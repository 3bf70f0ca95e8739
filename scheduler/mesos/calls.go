package mesos

import (
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// Task names a task and its agent for Reconcile.
type Task struct{ TaskID, AgentID string }

// Accept takes offers of one agent for operations. refuse is how long what is
// left of them is not to be offered again.
func Accept(offers []string, operations []mesos.Offer_Operation, refuse time.Duration) *scheduler.Call {
	return &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{
		OfferIDs: offerIDs(offers), Operations: operations, Filters: filters(refuse),
	}}
}

// LaunchGroup is the operation that starts all tasks of a group or none.
func LaunchGroup(executor mesos.ExecutorInfo, tasks []mesos.TaskInfo) mesos.Offer_Operation {
	return mesos.Offer_Operation{Type: mesos.Offer_Operation_LAUNCH_GROUP, LaunchGroup: &mesos.Offer_Operation_LaunchGroup{
		Executor: executor, TaskGroup: mesos.TaskGroupInfo{Tasks: tasks},
	}}
}

// Decline gives offers back; they are not offered again for the given time.
func Decline(offers []string, refuse time.Duration) *scheduler.Call {
	return &scheduler.Call{Type: scheduler.Call_DECLINE, Decline: &scheduler.Call_Decline{OfferIDs: offerIDs(offers), Filters: filters(refuse)}}
}

// Kill asks for the end of a task. grace overrides the executor's own notion
// when it is positive: the task's own policy is not passed on by the master.
func Kill(taskID, agentID string, grace time.Duration) *scheduler.Call {
	k := &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: taskID}}
	if agentID != "" {
		k.AgentID = &mesos.AgentID{Value: agentID}
	}
	k.KillPolicy = KillPolicy(grace)
	return &scheduler.Call{Type: scheduler.Call_KILL, Kill: k}
}

// KillPolicy returns nil for a grace period that is not positive.
func KillPolicy(grace time.Duration) *mesos.KillPolicy {
	if grace <= 0 {
		return nil
	}
	return &mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: grace.Nanoseconds()}}
}

// Shutdown ends an executor and all its tasks.
func Shutdown(executorID, agentID string) *scheduler.Call {
	return &scheduler.Call{Type: scheduler.Call_SHUTDOWN, Shutdown: &scheduler.Call_Shutdown{
		ExecutorID: mesos.ExecutorID{Value: executorID}, AgentID: mesos.AgentID{Value: agentID},
	}}
}

// Message carries data to an executor. It is answered by the executor, if at
// all, with a Messaged; Mesos promises neither that it arrives nor that it tells when it does not.
func Message(executorID, agentID string, data []byte) *scheduler.Call {
	return &scheduler.Call{Type: scheduler.Call_MESSAGE, Message: &scheduler.Call_Message{
		ExecutorID: mesos.ExecutorID{Value: executorID}, AgentID: mesos.AgentID{Value: agentID}, Data: data,
	}}
}

// Acknowledge tells that a status is stored. Only one with a UUID may be acknowledged.
func Acknowledge(s *mesos.TaskStatus) *scheduler.Call {
	return &scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE, Acknowledge: &scheduler.Call_Acknowledge{
		AgentID: *s.AgentID, TaskID: s.TaskID, UUID: s.UUID,
	}}
}

// Reconcile asks for the states of the given tasks, or, without any, of all that the master knows.
func Reconcile(tasks []Task) *scheduler.Call {
	r := &scheduler.Call_Reconcile{}
	for _, t := range tasks {
		x := scheduler.Call_Reconcile_Task{TaskID: mesos.TaskID{Value: t.TaskID}}
		if t.AgentID != "" {
			x.AgentID = &mesos.AgentID{Value: t.AgentID}
		}
		r.Tasks = append(r.Tasks, x)
	}
	return &scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: r}
}

// Revive asks for offers again, whatever was declined or suppressed.
func Revive() *scheduler.Call { return &scheduler.Call{Type: scheduler.Call_REVIVE} }

// Suppress asks for no more offers.
func Suppress() *scheduler.Call { return &scheduler.Call{Type: scheduler.Call_SUPPRESS} }

func offerIDs(ids []string) []mesos.OfferID {
	out := make([]mesos.OfferID, len(ids))
	for i, id := range ids {
		out[i].Value = id
	}
	return out
}

// filters always sets a time: without one the master takes five seconds, while 0 means none.
func filters(refuse time.Duration) *mesos.Filters {
	s := max(refuse, 0).Seconds()
	return &mesos.Filters{RefuseSeconds: &s}
}
