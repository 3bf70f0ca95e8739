package cmdexec

import (
	"context"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// pending is an update that the agent has not confirmed.
type pending struct {
	status mesos.TaskStatus
	sent   bool
}

// Pauses before an update is sent again that the agent did not take.
const (
	resendMin = 100 * time.Millisecond
	resendMax = 5 * time.Second
)

// update makes a status and sends it after those before it.
func (x *executor) update(ctx context.Context, state mesos.TaskState, reason *mesos.TaskStatus_Reason, text string) {
	source, now := mesos.SOURCE_EXECUTOR, float64(time.Now().UnixMicro())/1e6
	s := mesos.TaskStatus{TaskID: x.task.TaskID, ExecutorID: &mesos.ExecutorID{Value: x.cfg.executor}, State: &state,
		Source: &source, Reason: reason, UUID: newUUID(), Timestamp: &now}
	if text != "" {
		s.Message = &text
	}
	x.unacked = append(x.unacked, pending{status: s})
	if x.resend == nil {
		x.flush(ctx)
	}
}

// flush sends what has not been sent, in order, and plans the next attempt
// if the agent does not take it: for as long as it recovers it refuses updates,
// and nothing but this brings them to it once it is done.
func (x *executor) flush(ctx context.Context) {
	x.resend = nil
	for i := range x.unacked {
		p := &x.unacked[i]
		if p.sent {
			continue
		}
		if err := x.agent.update(ctx, &p.status); err != nil {
			x.pause = min(max(2*x.pause, resendMin), resendMax)
			x.log.Warn("an update was not taken and comes again", "state", p.status.GetState(), "pause", x.pause, "error", err)
			x.resend = time.After(x.pause)
			return
		}
		p.sent, x.pause = true, 0
	}
}

// statuses are those that go with a subscription.
func (x *executor) statuses() []mesos.TaskStatus {
	out := make([]mesos.TaskStatus, 0, len(x.unacked))
	for _, p := range x.unacked {
		out = append(out, p.status)
	}
	return out
}

// allSent is called after a subscription, which takes all along.
func (x *executor) allSent() {
	for i := range x.unacked {
		x.unacked[i].sent = true
	}
	x.resend, x.pause = nil, 0
}

func (x *executor) acknowledged(uuid []byte) {
	for i := range x.unacked {
		if string(x.unacked[i].status.UUID) == string(uuid) {
			x.unacked = append(x.unacked[:i:i], x.unacked[i+1:]...)
			x.known = true
			return
		}
	}
}
