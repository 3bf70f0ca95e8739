package executor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/executor/agentlink"
)

// updates are the status updates that the agent has not acknowledged, and the
// tasks of which it has acknowledged nothing yet, both in the order in which
// they came. All go into the next SUBSCRIBE, with the uuids that they have.
type updates struct {
	list  []*update
	tasks []mesos.TaskInfo
	// busy is the update that the sender has in hand.
	busy *update
	// pausing is set while sending waits after a failure.
	pausing bool
	failed  int
	outbox  chan mesos.TaskStatus
}

// update is one status on its way to the agent.
type update struct {
	task   *task
	status mesos.TaskStatus
	// generation is the connection by which it went last; 0 is none.
	generation uint64
	// times counts how often it went by that connection.
	times  int
	resend *timer
	// over is set once the update is acknowledged or given up.
	over bool
}

// sent is what became of the update in hand.
type sent struct {
	err error
}

// resendAfter is the pause before an update that the agent took, but did not
// acknowledge, goes again; it doubles each time. Agents acknowledge at once.
const resendAfter = 10 * time.Second

// send delivers updates one at a time, so that they arrive in their order; it runs beside the loop.
func (e *Executor) send() {
	defer e.workers.Done()
	for {
		select {
		case status := <-e.updates.outbox:
			e.post(sent{e.opts.Link.Update(e.work, status)})
		case <-e.work.Done():
			return
		}
	}
}

// add queues an update. One that tells of progress and was never sent is replaced
// by the next, and so is one that tells of the task's health: a flapping check
// must not fill the queue while the agent is away.
func (e *Executor) add(t *task, status mesos.TaskStatus) {
	if aboutChecks(&status) {
		for _, u := range slices.Backward(e.updates.list) {
			if u.task != t {
				continue
			}
			// What went by a connection that is gone may have arrived; the agent
			// then has both, in their order.
			if (u.generation == 0 || !e.conn.up) && u != e.updates.busy && aboutChecks(&u.status) {
				e.timers.stop(u.resend)
				*u = update{task: t, status: status}
				return
			}
			break
		}
	}
	if status.GetState() == mesos.TASK_STARTING {
		for i, u := range e.updates.list {
			if u.task == t && u.generation == 0 && u != e.updates.busy && u.status.GetState() == mesos.TASK_STARTING {
				e.updates.list[i].status = status
				return
			}
		}
	}
	e.updates.list = append(e.updates.list, &update{task: t, status: status})
}

// flush gives the sender the first update that has not gone by this connection.
func (e *Executor) flush() {
	u := &e.updates
	if !e.conn.up || u.busy != nil || u.pausing {
		return
	}
	for _, next := range u.list {
		if next.generation != e.conn.generation {
			u.busy = next
			next.generation, next.times = e.conn.generation, 1
			// The sender holds nothing when busy is nil, so this never waits.
			u.outbox <- next.status
			return
		}
	}
}

// sent handles the sender's answer.
func (e *Executor) sent(m sent) {
	u := e.updates.busy
	e.updates.busy = nil
	if u == nil {
		return
	}
	if u.over {
		return // the acknowledgement came before the answer
	}
	if m.err == nil {
		e.updates.failed, e.conn.denied = 0, nil
		e.awaitAcknowledgement(u)
		return
	}
	if errors.Is(m.err, context.Canceled) {
		return
	}
	e.log.Warn("update not delivered", "task", u.task.id, "state", u.status.GetState().String(), "error", m.err)
	if agentlink.Denied(m.err) {
		u.generation = 0
		e.tokenDenied(m.err)
		return
	}
	if agentlink.Refused(m.err) {
		// It would be refused each time, and would spoil the next SUBSCRIBE.
		e.drop(u)
		e.settled(u)
		return
	}
	u.generation = 0
	e.updates.pausing = true
	e.updates.failed++
	e.timers.after(firstDelay(e.updates.failed), func() { e.updates.pausing = false })
}

// awaitAcknowledgement sends u once more if the agent does not acknowledge it.
func (e *Executor) awaitAcknowledgement(u *update) {
	wait := resendAfter << min(u.times-1, 6)
	e.timers.stop(u.resend)
	var again func()
	again = func() {
		u.resend = nil
		if e.conn.up && u.generation == e.conn.generation && e.updates.busy == nil {
			e.log.Warn("update not acknowledged, sending it again", "task", u.task.id, "after", wait)
			times := u.times
			e.updates.busy = u
			u.times = times + 1
			e.updates.outbox <- u.status
		} else {
			u.resend = e.timers.after(time.Second, again)
		}
	}
	u.resend = e.timers.after(wait, again)
}

// acknowledged handles ACKNOWLEDGED. One for an update that is not waiting, such
// as a second one for the same uuid, changes nothing.
func (e *Executor) acknowledged(taskID string, uuid []byte) {
	for i := range e.updates.tasks {
		if e.updates.tasks[i].TaskID.Value == taskID {
			e.updates.tasks = append(e.updates.tasks[:i], e.updates.tasks[i+1:]...)
			break
		}
	}
	for _, u := range e.updates.list {
		if u.task.id == taskID && bytes.Equal(u.status.UUID, uuid) {
			e.conn.denied = nil
			e.drop(u)
			e.settled(u)
			return
		}
	}
}

// settled tells the task that the agent knows its end.
func (e *Executor) settled(u *update) {
	if terminal(u.status.GetState()) {
		e.deliver(u.task, eventAcknowledged)
	}
}

func (e *Executor) drop(u *update) {
	u.over = true
	e.timers.stop(u.resend)
	for i := range e.updates.list {
		if e.updates.list[i] == u {
			e.updates.list = append(e.updates.list[:i], e.updates.list[i+1:]...)
			return
		}
	}
}

// unacknowledged returns what SUBSCRIBE carries, and counts the updates as gone by that connection.
func (u *updates) unacknowledged(generation uint64) ([]mesos.TaskInfo, []executor.Call_Update) {
	tasks := append([]mesos.TaskInfo(nil), u.tasks...)
	statuses := make([]executor.Call_Update, len(u.list))
	for i, x := range u.list {
		statuses[i] = executor.Call_Update{Status: x.status}
		x.generation, x.times = generation, 1
	}
	return tasks, statuses
}

// terminal tells whether a state is a task's last.
func terminal(s mesos.TaskState) bool {
	switch s {
	case mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_ERROR, mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE:
		return true
	default:
		return false
	}
}

// newUUID returns 16 raw bytes, random, of version 4 (RFC 9562).
func newUUID() []byte {
	b := make([]byte, 16)
	rand.Read(b) // never fails, see crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}
