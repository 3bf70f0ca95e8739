package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

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
	if f.Message == Acknowledgement && f.Executor != "" {
		bad("an acknowledgement names no executor; leave it out")
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
