package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"tandem/api"
)

// Limits of the messages of the framework.
const (
	// messageLimit is the longest that one may take.
	messageLimit = 30 * time.Second
	// longMessageLimit is that for those that wait for the task's own programs or
	// copy its files.
	longMessageLimit = 2 * time.Minute
	// messageQueue is how many may wait for those before them.
	messageQueue = 16
	// messageMemory is how many answers are kept for those that are asked twice.
	messageMemory = 64
	// answerTries is how often an answer is sent that the agent does not take.
	answerTries = 3
)

// messages are those of the framework, done one after another in their order,
// by one worker beside the loop.
type messages struct {
	queue chan messageJob
	// answers holds the latest ids, with nil while one is under way.
	answers map[string]*api.MessageResult
	order   []string
	// amounts are what tasks have since a change, by their ids; the worker's alone.
	amounts map[string]api.ResourceUpdate
	// sessions is how many are open.
	sessions atomic.Int32
}

type messageJob struct {
	result api.MessageResult
	do     func(context.Context, *api.MessageResult) error
}

// messageDone is the worker's report to the loop.
type messageDone struct{ result api.MessageResult }

// message takes the data of a MESSAGE. What is no message of ours is passed
// over: another framework may have words of its own for its executors.
func (e *Executor) message(data []byte) {
	var m api.Message
	if len(data) > api.MaxMessage || json.Unmarshal(data, &m) != nil || m.Version == "" {
		e.log.Warn("message from the framework is not understood, ignored", "bytes", len(data))
		return
	}
	q := &e.messages
	if q.queue == nil {
		q.queue, q.answers = make(chan messageJob, messageQueue), map[string]*api.MessageResult{}
		q.amounts = map[string]api.ResourceUpdate{}
		e.workers.Go(e.doMessages)
	}
	result := api.MessageResult{Version: api.TaskSpecVersion, ID: m.ID, Type: m.Type}
	if before, seen := q.answers[m.ID]; seen {
		if before != nil {
			e.enqueue(messageJob{result: *before})
		}
		return
	}
	do, err := e.plan(&m, &result)
	if err != nil {
		do = func(context.Context, *api.MessageResult) error { return err }
	}
	if e.enqueue(messageJob{result: result, do: do}) && m.ID != "" {
		q.answers[m.ID] = nil
		if q.order = append(q.order, m.ID); len(q.order) > messageMemory {
			delete(q.answers, q.order[0])
			q.order = q.order[1:]
		}
	}
}

// enqueue hands a message to the worker; false when there are too many before it.
// The framework then gets no answer and asks again.
func (e *Executor) enqueue(j messageJob) bool {
	select {
	case e.messages.queue <- j:
		return true
	default:
		e.log.Warn("too many messages from the framework, one is dropped", "id", j.result.ID)
		return false
	}
}

// plan finds out what a message asks for. What it returns runs beside the loop.
func (e *Executor) plan(m *api.Message, result *api.MessageResult) (func(context.Context, *api.MessageResult) error, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	t, err := e.meant(m.Task)
	if err != nil {
		return nil, err
	}
	result.Task = t.id
	if t.state != stateRunning || t.runtime == nil {
		return nil, fmt.Errorf("task %q does not run (it is %s)", t.name(), t.state)
	}
	return e.planTask(t, m)
}

// meant finds the task that a message names.
func (e *Executor) meant(name string) (*task, error) {
	var found []*task
	var names []string
	for _, t := range e.order {
		names = append(names, t.name())
		if t.id == name || t.name() == name || name == "" {
			found = append(found, t)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, fmt.Errorf("task %q is not here; there are %s", name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("which task is meant? name one of %s", strings.Join(names, ", "))
}

// doMessages is the worker.
func (e *Executor) doMessages() {
	for {
		select {
		case j := <-e.messages.queue:
			e.doMessage(j)
		case <-e.work.Done():
			return
		}
	}
}

func (e *Executor) doMessage(j messageJob) {
	if j.do != nil {
		ctx, cancel := context.WithTimeout(e.work, limitOf(j.result.Type))
		err := j.do(ctx, &j.result)
		cancel()
		if err != nil {
			j.result.Error = err.Error()
		}
		e.log.Info("message from the framework", "id", j.result.ID, "type", string(j.result.Type), "task", j.result.Task, "error", j.result.Error)
		if !e.post(messageDone{j.result}) {
			return
		}
	}
	data, err := json.Marshal(j.result)
	if err != nil {
		e.log.Error("answer cannot be encoded", "error", err)
		return
	}
	for try := 1; ; try++ {
		err := e.opts.Link.Message(e.work, data)
		if err == nil || errors.Is(err, context.Canceled) {
			return
		}
		e.log.Warn("answer to a message not delivered", "id", j.result.ID, "error", err)
		if try == answerTries {
			return // it will be asked again
		}
		select {
		case <-time.After(time.Second):
		case <-e.work.Done():
			return
		}
	}
}

// messageDone keeps an answer for whoever asks again.
func (e *Executor) messageDone(m messageDone) {
	if _, known := e.messages.answers[m.result.ID]; known {
		e.messages.answers[m.result.ID] = &m.result
	}
}
