// Package fault holds the faults that an embedded master or agent is to show on
// purpose: streams that break or lag, updates that get lost or come twice,
// answers of 503, a process that hangs, dies or is started again, a machine that
// is lost or boots anew.
//
// It is for tests, and for people who want to see what a framework does about
// them. A Set is what one master or agent has to suffer; Client and /faults bring
// faults there from outside. Nothing of it may have any effect on a master or an
// agent that was not started with faults enabled, and no fault may outlive its
// time limit or the process that it is in.
package fault

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what goes wrong.
type Kind string

// The kinds of faults.
const (
	// Cut breaks streams; with a duration also everything new of the same clients.
	Cut Kind = "cut"
	// Delay holds back each event of a stream for By.
	Delay Kind = "delay"
	// Drop loses messages, Duplicate sends them twice.
	Drop      Kind = "drop"
	Duplicate Kind = "duplicate"
	// Unavailable answers 503.
	Unavailable Kind = "unavailable"
	// Freeze is as SIGSTOP: no answers, connections stay open. Clearing it thaws.
	Freeze Kind = "freeze"
	// PauseOffers makes no offers. Clearing it resumes.
	PauseOffers Kind = "pause-offers"
	// Rescind takes offers back that a framework holds.
	Rescind Kind = "rescind"
	// Kill ends the process as SIGKILL would; executors stay.
	Kill Kind = "kill"
	// Restart is Kill and, after By, a new start on the same directory.
	Restart Kind = "restart"
	// Lose is the machine's end: the agent and all that it ran are gone at once.
	Lose Kind = "lose"
	// Reboot is Lose and, after By, a new start of the machine: a new boot id.
	Reboot Kind = "reboot"
)

// Part is a part of the HTTP interface.
type Part string

// The parts. Agent is the link between master and agents, on either side.
const (
	Scheduler Part = "scheduler"
	Executor  Part = "executor"
	Agent     Part = "agent"
	Operator  Part = "operator"
)

// Message is what Drop and Duplicate are about.
type Message string

// The messages: task status updates on their way to the framework, and the
// framework's acknowledgements on their way to the agent.
const (
	Update          Message = "update"
	Acknowledgement Message = "acknowledgement"
)

// Role is whose faults a set holds.
type Role string

// The roles.
const (
	OnMaster Role = "master"
	OnAgent  Role = "agent"
)

// Limits of durations.
const (
	// DefaultFor is how long a lasting fault lasts that says nothing else.
	DefaultFor = time.Minute
	// MaxFor is the longest that any fault lasts.
	MaxFor = time.Hour
	// MaxTimes is the most often that a fault strikes.
	MaxTimes = 1_000_000
)

// Fault is one fault. Empty filters match everything.
type Fault struct {
	// ID is given by the set, from 1.
	ID   int  `json:"id,omitempty"`
	Kind Kind `json:"kind"`
	// Part is the stream of Cut and Delay, and what Unavailable is about (empty: all).
	Part Part `json:"part,omitempty"`
	// Message is what Drop and Duplicate are about; Update when empty.
	Message Message `json:"message,omitempty"`
	// Framework is an id or a name, Agent an id, a host name or host:port.
	Framework string `json:"framework,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Executor  string `json:"executor,omitempty"`
	Task      string `json:"task,omitempty"`
	// State is that of the update, such as TASK_RUNNING; of an acknowledgement that
	// of the update that it is for.
	State string `json:"state,omitempty"`
	// Offer is the id of one offer to rescind.
	Offer string `json:"offer,omitempty"`
	// Times is how often it strikes before it ends by itself; 0 is as long as it lasts.
	Times int `json:"times,omitempty"`
	// For is how long it lasts, By how late events are or how long a process is away.
	For Duration `json:"for,omitempty"`
	By  Duration `json:"by,omitempty"`

	// What the set tells of it: where it is, when it began and ends, how often
	// it took effect, and why it is over.
	On    string    `json:"on,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	Hits  int       `json:"hits"`
	Ended string    `json:"ended,omitempty"`
}

// Duration is a time.Duration that is written as text: "1.5s".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

func join[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = string(x)
	}
	return strings.Join(texts, ", ")
}

// String is the fault in a line, for people.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	for _, x := range []struct{ name, value string }{{"", string(f.Part)}, {"", string(f.Message)}, {"framework=", f.Framework}, {"agent=", f.Agent},
		{"executor=", f.Executor}, {"task=", f.Task}, {"state=", f.State}, {"offer=", f.Offer}} {
		if x.value != "" {
			fmt.Fprintf(&b, " %s%s", x.name, x.value)
		}
	}
	if f.By > 0 {
		fmt.Fprintf(&b, " by %s", time.Duration(f.By))
	}
	if f.Times > 0 {
		fmt.Fprintf(&b, " %d times", f.Times)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %s", time.Duration(f.For))
	}
	return b.String()
}
