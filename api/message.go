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
	// MessageExec opens a session in a running container, for a command beside the task.
	MessageExec MessageType = "exec"
)

var messageTypes = []string{string(MessageSignal), string(MessageResources), string(MessageExec)}

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
	Resources *ResourceChange `json:"resources,omitempty"`
	// Exec is for MessageExec.
	Exec *ExecRequest `json:"exec,omitempty"`
}

// ExecRequest is a command to be run in a container, as its user, in its
// directory and with its environment.
type ExecRequest struct {
	Command []string `json:"command"`
	// Stdin tells that it gets input; without it, it reads nothing.
	Stdin bool `json:"stdin,omitempty"`
	// TTY gives it a terminal of Width and Height characters; 0 leaves the size open.
	TTY    bool   `json:"tty,omitempty"`
	Width  uint16 `json:"width,omitempty"`
	Height uint16 `json:"height,omitempty"`
}

// ExecSession is where a session waits for whoever asked for it, for some
// seconds: a TCP port at the agent's address, whose first bytes must be the
// token and a line feed. It takes one connection.
type ExecSession struct {
	Port  int    `json:"port"`
	Token string `json:"token"`
}

// ResourceChange says which amounts are to change. What is absent stays as the
// executor has it: as the task was started, or as an earlier change left it.
type ResourceChange struct {
	Requests ResourceAmounts `json:"requests,omitzero"`
	Limits   ResourceAmounts `json:"limits,omitzero"`
}

// ResourceAmounts are cores and MiB of memory; nil means no change.
type ResourceAmounts struct {
	CPUs  *float64 `json:"cpus,omitempty"`
	MemMB *float64 `json:"memMB,omitempty"`
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
	// Resources are what the task has from now on, after MessageResources.
	Resources *ResourceUpdate `json:"resources,omitempty"`
	// Exec is where the session is, after MessageExec.
	Exec *ExecSession `json:"exec,omitempty"`
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
	case MessageExec:
		if m.Exec == nil || len(m.Exec.Command) == 0 || m.Exec.Command[0] == "" {
			return errors.New("exec has no command; give one, such as /bin/sh")
		}
	default:
		return fmt.Errorf("type %q of a message is unknown; this executor understands %s%s", clip(string(m.Type)), strings.Join(messageTypes, ", "), didYouMean(string(m.Type), messageTypes))
	}
	return nil
}

func (c *ResourceChange) check() error {
	if *c == (ResourceChange{}) {
		return errors.New("resources name no amount that is to change")
	}
	var errs Errors
	for _, x := range []struct {
		path string
		v    *float64
		most float64
	}{
		{"requests.cpus", c.Requests.CPUs, maxCPUs}, {"limits.cpus", c.Limits.CPUs, maxCPUs},
		{"requests.memMB", c.Requests.MemMB, maxMemMB}, {"limits.memMB", c.Limits.MemMB, maxMemMB},
	} {
		if x.v != nil && (*x.v < 0 || *x.v > x.most) {
			errs.Add("resources."+x.path, *x.v, "is no sensible amount")
		}
	}
	errs = append(errs, exceeding("cpus", value(c.Requests.CPUs), value(c.Limits.CPUs))...)
	errs = append(errs, exceeding("memMB", value(c.Requests.MemMB), value(c.Limits.MemMB))...)
	return errs.Sorted()
}

// The largest amounts that make any sense.
const (
	maxCPUs  = 1 << 20
	maxMemMB = 1 << 40
)

// Apply returns what comes of the change, with before as the amounts until now.
func (c *ResourceChange) Apply(before ResourceUpdate) (ResourceUpdate, error) {
	after := before
	for _, x := range []struct {
		to   *float64
		from *float64
	}{
		{&after.Requests.CPUs, c.Requests.CPUs}, {&after.Limits.CPUs, c.Limits.CPUs},
		{&after.Requests.MemMB, c.Requests.MemMB}, {&after.Limits.MemMB, c.Limits.MemMB},
	} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
	errs := append(exceeding("cpus", after.Requests.CPUs, after.Limits.CPUs), exceeding("memMB", after.Requests.MemMB, after.Limits.MemMB)...)
	if err := errs.Sorted(); err != nil {
		return before, fmt.Errorf("%w; change both", err)
	}
	return after, nil
}

// exceeding is the error of a request above its limit.
func exceeding(path string, request, limit float64) (errs Errors) {
	if limit > 0 && request > limit {
		errs.Add("resources.requests."+path, request, "is more than the limit of %v", limit)
	}
	return errs
}

func value(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}
