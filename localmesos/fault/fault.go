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
	"errors"
	"fmt"
	"slices"
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
	// State is that of the update, such as TASK_RUNNING.
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

// rule says what a kind needs.
type rule struct {
	roles  []Role
	parts  map[Role][]Part // of which one is needed, unless noPart
	noPart bool            // no part means all
	// lasting faults have a duration, DefaultFor unless told; once is that none means "now, once".
	lasting, once bool
	times         bool
	filters       []string
	by            byRule
}

// byRule says whether By has a meaning.
type byRule int

const (
	noBy byRule = iota
	mayBy
	mustBy
)

var both = []Role{OnMaster, OnAgent}

// rules is all that is allowed; what it does not say is refused.
var rules = map[Kind]rule{
	Cut: {roles: both, parts: map[Role][]Part{OnMaster: {Scheduler, Agent, Operator}, OnAgent: {Executor, Agent, Operator}},
		once: true, filters: []string{"framework", "agent", "executor"}},
	Delay: {roles: both, parts: map[Role][]Part{OnMaster: {Scheduler, Agent, Operator}, OnAgent: {Executor, Operator}},
		lasting: true, filters: []string{"framework", "agent", "executor"}, by: mustBy},
	Drop:      {roles: both, lasting: true, times: true, filters: []string{"framework", "agent", "executor", "task", "state"}},
	Duplicate: {roles: both, lasting: true, times: true, filters: []string{"framework", "agent", "executor", "task", "state"}},
	Unavailable: {roles: both, parts: map[Role][]Part{OnMaster: {Scheduler, Agent, Operator}, OnAgent: {Executor, Operator}},
		noPart: true, lasting: true, times: true},
	Freeze:      {roles: both, lasting: true},
	PauseOffers: {roles: []Role{OnMaster}, lasting: true},
	Rescind:     {roles: []Role{OnMaster}, filters: []string{"framework", "agent", "offer"}, times: true},
	Kill:        {roles: both},
	Restart:     {roles: both, by: mayBy},
	Lose:        {roles: []Role{OnAgent}},
	Reboot:      {roles: []Role{OnAgent}, by: mayBy},
}

// Kinds are all kinds, sorted.
func Kinds() []Kind {
	out := make([]Kind, 0, len(rules))
	for k := range rules {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Parts are the parts that a kind may name for a role; none when it names none.
func Parts(k Kind, role Role) []Part { return rules[k].parts[role] }

// Allowed tells whether a kind exists for a role.
func Allowed(k Kind, role Role) bool { return slices.Contains(rules[k].roles, role) }

// Check returns the fault with its defaults, or all that is wrong with it on a
// master or an agent.
func (f Fault) Check(role Role) (Fault, error) {
	r, known := rules[f.Kind]
	if !known {
		return f, fmt.Errorf("fault kind %q is unknown; use one of %s", f.Kind, join(Kinds()))
	}
	if !Allowed(f.Kind, role) {
		return f, fmt.Errorf("fault %s: there is none on the %s; it is for the %s", f.Kind, role, join(r.roles))
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fault "+string(f.Kind)+": "+format, args...))
	}
	parts := r.parts[role]
	switch {
	case f.Part == "" && len(parts) > 0 && !r.noPart:
		bad("no part given; on the %s use one of %s", role, join(parts))
	case f.Part != "" && !slices.Contains(parts, f.Part):
		if len(parts) == 0 {
			bad("part %q has no meaning; leave it out", f.Part)
		} else {
			bad("part %q is not on the %s; use one of %s", f.Part, role, join(parts))
		}
	}
	f.checkFilters(r, bad)
	f.checkMessage(bad)
	f.checkDurations(r, bad)
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	if f.For == 0 && r.lasting {
		f.For = Duration(DefaultFor)
	}
	if f.Message == "" && (f.Kind == Drop || f.Kind == Duplicate) {
		f.Message = Update
	}
	return f, nil
}

func (f Fault) checkFilters(r rule, bad func(string, ...any)) {
	for _, x := range []struct{ name, value string }{{"framework", f.Framework}, {"agent", f.Agent}, {"executor", f.Executor},
		{"task", f.Task}, {"state", f.State}, {"offer", f.Offer}} {
		if x.value != "" && !slices.Contains(r.filters, x.name) {
			bad("%s %q has no meaning; leave it out", x.name, x.value)
		}
	}
	switch {
	case f.Times != 0 && !r.times:
		bad("times %d has no meaning; leave it out", f.Times)
	case f.Times < 0 || f.Times > MaxTimes:
		bad("times %d is not between 1 and %d", f.Times, MaxTimes)
	}
}

func (f Fault) checkMessage(bad func(string, ...any)) {
	about := f.Kind == Drop || f.Kind == Duplicate
	switch {
	case f.Message != "" && !about:
		bad("message %q has no meaning; leave it out", f.Message)
	case f.Message != "" && f.Message != Update && f.Message != Acknowledgement:
		bad("message %q is unknown; use %s or %s", f.Message, Update, Acknowledgement)
	}
	if f.Message == Acknowledgement && (f.State != "" || f.Executor != "") {
		bad("an acknowledgement names neither a state nor an executor; leave them out")
	}
	if f.State != "" && about && !knownState(f.State) {
		bad("state %q is unknown; use such as TASK_RUNNING", f.State)
	}
}

func (f Fault) checkDurations(r rule, bad func(string, ...any)) {
	switch d := time.Duration(f.For); {
	case d == 0:
	case !r.lasting && !r.once:
		bad("it has no duration; leave it out")
	case d < 0:
		bad("duration %s is negative", d)
	case d > MaxFor:
		bad("duration %s is more than %s", d, MaxFor)
	}
	switch d := time.Duration(f.By); {
	case d == 0 && r.by == mustBy:
		bad("it does not say by how much; give a duration such as 500ms")
	case d == 0:
	case r.by == noBy:
		bad("delay %s has no meaning; leave it out", d)
	case d < 0:
		bad("delay %s is negative", d)
	case d > MaxFor:
		bad("delay %s is more than %s", d, MaxFor)
	}
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
