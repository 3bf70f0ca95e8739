package api

import (
	"errors"
	"fmt"
	"strings"
)

// MessageType tells what a framework message asks an executor for.
type MessageType string

// The types of messages. An executor refuses any other.
const (
	// MessageSignal sends a signal to a task's first process.
	MessageSignal MessageType = "signal"
	// MessageResources changes what a running container may use.
	MessageResources MessageType = "resources"
)

var messageTypes = []string{string(MessageSignal), string(MessageResources)}

// MaxMessage is the most bytes that an executor reads of a message.
const MaxMessage = 64 << 10

// Message is what a framework sends to an executor as the JSON data of a Mesos
// MESSAGE. Each is answered by one MessageResult with its id. Messages may be
// lost on either way: one without an answer is sent again with the same id, and
// an executor that has seen it answers without doing it twice.
type Message struct {
	// Version is TaskSpecVersion; an executor refuses others.
	Version string `json:"version"`
	// ID is chosen by the sender, unique for the executor.
	ID   string      `json:"id"`
	Type MessageType `json:"type"`
	// Task is the id or the name of the task that is meant; it may be empty when
	// the taskgroup has only one.
	Task string `json:"task,omitempty"`
	// Signal is for MessageSignal: a name such as SIGHUP or HUP, or a number.
	Signal string `json:"signal,omitempty"`
	// Resources is for MessageResources.
	Resources *ResourceUpdate `json:"resources,omitempty"`
}

// ResourceUpdate holds the amounts from now on. They replace all that was set
// before; a limit of 0 is none for CPUs, and for memory it is the request.
type ResourceUpdate struct {
	Requests TaskResources `json:"requests"`
	Limits   TaskResources `json:"limits"`
}

// MessageResult is an executor's answer.
type MessageResult struct {
	Version string      `json:"version"`
	ID      string      `json:"id"`
	Type    MessageType `json:"type"`
	// Task is the id of the task, when one was found.
	Task string `json:"task,omitempty"`
	// Error says why it was not done; empty means that it was.
	Error string `json:"error,omitempty"`
}

// Check says what is wrong with a message apart from the task that it names.
func (m *Message) Check() error {
	switch {
	case m.Version != TaskSpecVersion:
		return fmt.Errorf("version %q of a message is unknown, this executor understands %s", clip(m.Version), TaskSpecVersion)
	case m.ID == "" || len(m.ID) > 128:
		return errors.New("id of a message must have 1 to 128 characters")
	}
	switch m.Type {
	case MessageSignal:
		if m.Signal == "" {
			return errors.New("signal is missing; name one, such as SIGHUP")
		}
	case MessageResources:
		if m.Resources == nil {
			return errors.New("resources are missing")
		}
		return m.Resources.check()
	default:
		return fmt.Errorf("type %q of a message is unknown; this executor understands %s%s", clip(string(m.Type)), strings.Join(messageTypes, ", "), didYouMean(string(m.Type), messageTypes))
	}
	return nil
}

func (u *ResourceUpdate) check() error {
	var errs Errors
	for _, x := range []struct {
		path           string
		request, limit float64
		most           float64
	}{
		{"cpus", u.Requests.CPUs, u.Limits.CPUs, 1 << 20}, {"memMB", u.Requests.MemMB, u.Limits.MemMB, 1 << 40},
	} {
		for side, v := range map[string]float64{"requests": x.request, "limits": x.limit} {
			if v < 0 || v > x.most {
				errs.Add("resources."+side+"."+x.path, v, "is no sensible amount")
			}
		}
		if x.limit > 0 && x.request > x.limit {
			errs.Add("resources.requests."+x.path, x.request, "is more than the limit of %v", x.limit)
		}
	}
	return errs.Sorted()
}
