package scheduler

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
	"tandem/scheduler/wire"
)

// How messages to executors are sent. Mesos loses them without a word, on either
// way, so one without an answer is sent again under the same id; the executor
// does it once.
const (
	// messageWait is the longest that a request waits for its answer.
	messageWait = 20 * time.Second
	// longMessageWait is that for those that wait for the task's own programs or copy
	// its files.
	longMessageWait = 50 * time.Second
	// messageAgain is the time between two attempts; each is half to one and a half of it.
	messageAgain = time.Second
	// messagesAtOnce is how many may be under way to one executor. It queues so
	// many, and remembers a few times more.
	messagesAtOnce = 16
)

// message is one that waits for its answer.
type message struct {
	id, group, agent, nodeIP string
	// name is what people call the taskgroup.
	name string
	wait time.Duration
	data []byte
	// answer has room for one, and takes no second.
	answer chan api.MessageResult
}

// postMessage sends the message of the body to a taskgroup's executor and
// answers with its result. The id is chosen here.
func (s *Scheduler) postMessage(r *http.Request) (any, error) {
	var m api.Message
	if err := decodeBody(r, &m, `{"type": "signal", "signal": "SIGHUP"}`); err != nil {
		return nil, err
	}
	if m.Type == api.MessageExec {
		return nil, badRequest("a session is opened by .../exec")
	}
	if m.Type == api.MessageLogs {
		return nil, badRequest("logs are read by .../tasks/TASK/logs and listed by .../tasks/TASK/logfiles")
	}
	result, _, err := s.say(r.Context(), r.PathValue("namespace"), r.PathValue("name"), &m)
	return result, err
}

// say sends a message to a taskgroup's executor. It returns the result and the
// address of the agent.
func (s *Scheduler) say(ctx context.Context, namespace, name string, m *api.Message) (*api.MessageResult, string, error) {
	if m.Version == "" {
		m.Version = api.TaskSpecVersion
	}
	m.ID = rand.Text()
	if err := m.Check(); err != nil {
		return nil, "", badRequest("%v", err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, "", fmt.Errorf("encode the message: %w", err)
	}
	if len(data) > api.MaxMessage {
		return nil, "", badRequest("the message has %d bytes; at most %d are sent", len(data), api.MaxMessage)
	}
	w := &message{id: m.ID, wait: messageWait, data: data, answer: make(chan api.MessageResult, 1)}
	switch m.Type {
	case api.MessageReload, api.MessageRestart, api.MessageCommit:
		w.wait = longMessageWait
	default:
	}
	// It comes after the call below, even when that is given up and runs later.
	defer s.loop.post(input{do: func() error { delete(s.loop.messages, w.id); return nil }})
	if err := s.loop.call(ctx, func() error { return s.loop.openMessage(w, namespace, name, m) }); err != nil {
		return nil, "", err
	}
	result, err := s.awaitMessage(ctx, w)
	return result, w.nodeIP, err
}

// awaitMessage sends until there is an answer.
func (s *Scheduler) awaitMessage(ctx context.Context, w *message) (*api.MessageResult, error) {
	limit := time.NewTimer(w.wait)
	defer limit.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	connected := false
	for {
		select {
		case result := <-w.answer:
			if result.Error != "" {
				return nil, conflict("taskgroup %s: %s", w.name, result.Error)
			}
			return &result, nil
		case <-again.C:
			err := s.loop.call(ctx, func() (err error) {
				connected = s.loop.connected
				return s.loop.sendMessage(w)
			})
			if err != nil {
				return nil, err
			}
			again.Reset(messageAgain/2 + mathrand.N(messageAgain))
		case <-limit.C:
			why := "whether it was done is not known"
			if !connected {
				why = "the scheduler has no connection to a master; " + why
			}
			return nil, &apiError{http.StatusGatewayTimeout, wire.Problem{Code: wire.CodeTimeout, Message: fmt.Sprintf(
				"the executor of taskgroup %s has not answered a message within %s: %s", w.name, w.wait, why)}}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openMessage finds the executor of a taskgroup, by the name or the id of that,
// and expects an answer from it.
func (l *loop) openMessage(w *message, namespace, name string, m *api.Message) error {
	sl := l.findSlot(namespace, name)
	if sl == nil {
		return noGroup(name)
	}
	if !sl.live() {
		return conflict("taskgroup %s does not run, so there is nobody to send a message to", l.groupName(sl))
	}
	g := sl.Group
	if m.Resources != nil {
		if err := withinNeed(m.Resources, g.Need); err != nil {
			return err
		}
	}
	n := 0
	for _, other := range l.messages {
		if other.group == g.ID {
			n++
		}
	}
	if n >= messagesAtOnce {
		return &apiError{http.StatusServiceUnavailable, wire.Problem{Code: wire.CodeUnavailable, Message: fmt.Sprintf(
			"taskgroup %s has %d messages under way, which is as many as there may be; try again when they are answered", l.groupName(sl), n)}}
	}
	w.group, w.name, w.agent, w.nodeIP = g.ID, l.groupName(sl), g.AgentID, g.NodeIP
	l.messages[w.id] = w
	return nil
}

// withinNeed refuses requests that are more than Mesos has given to the whole
// taskgroup: others would be promised the same resources. Limits may be higher.
func withinNeed(c *api.ResourceChange, need placement.Resources) error {
	for _, x := range []struct {
		what string
		v    *float64
		have placement.Milli
	}{{"cpus", c.Requests.CPUs, need.CPUs}, {"memMB", c.Requests.MemMB, need.MemMB}} {
		if x.v != nil && placement.ToMilli(*x.v) > x.have {
			return conflict("requests.%s %v is more than the %v that Mesos has given to the taskgroup; raise the limit, or apply a changed artifact", x.what, *x.v, x.have.Float())
		}
	}
	return nil
}

// sendMessage makes the round send it, unless nobody is left to answer.
func (l *loop) sendMessage(w *message) error {
	for _, sl := range l.slots {
		for _, x := range sl {
			if x.Group != nil && x.Group.ID == w.group && x.live() {
				l.calls = append(l.calls, mesos.Message(w.group, w.agent, w.data))
				return nil
			}
		}
	}
	return conflict("taskgroup %s has ended before it answered a message", w.name)
}

// answered takes what an executor says. Only the one that was asked is heard.
func (l *loop) answered(e mesos.Messaged) {
	var result api.MessageResult
	if err := json.Unmarshal(e.Data, &result); err != nil || result.Version != api.TaskSpecVersion {
		l.log.Warn("message of an executor is not understood", "executor", e.ExecutorID, "agent", e.AgentID, "bytes", len(e.Data))
		return
	}
	w := l.messages[result.ID]
	if w == nil || w.group != e.ExecutorID || w.agent != e.AgentID {
		return // answered before, given up, or none of its business
	}
	select {
	case w.answer <- result:
	default: // it was sent twice and answered twice
	}
}
