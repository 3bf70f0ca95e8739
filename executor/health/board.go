package health

import (
	"container/heap"
	"fmt"
	"time"

	"tandem/api"
)

// Board knows the checks of all tasks: when each is due, and what is known by
// it. It does nothing by itself, has no clock, and belongs to one event loop.
type Board struct {
	tasks map[string]*taskChecks
	queue queue
	// epoch is when the first task came; checks are due on a grid that begins there.
	epoch time.Time
}

// taskChecks are the checks of one task.
type taskChecks struct {
	id    string
	start time.Time
	list  []*progress
}

// progress is where one check is.
type progress struct {
	task  *taskChecks
	check *Check
	state state
	// failures in a row that count.
	failures uint32
	message  string
	value    *int
	told     bool
	// muted is set while the check cannot be made and that was logged.
	muted bool
	due   time.Time
	// index is the place in the queue, -1 when it is not there: it is being made, or is over.
	index int
}

// Probe is one check that is due.
type Probe struct {
	TaskID string
	Check  *Check
	at     *progress
}

// Verdict is what a check made of a task.
type Verdict uint8

// The verdicts.
const (
	// Unclear: the check could not be made, so nothing is known that was not before.
	Unclear Verdict = iota
	Passed
	Failed
)

// Outcome is what came of one check.
type Outcome struct {
	Verdict Verdict
	// Message says why it failed or could not be made.
	Message string
	// Value is the exit code of a COMMAND, the status code of an answer to HTTP, 1
	// or 0 for a TCP connection that was accepted or not; nil when there was
	// none within the time.
	Value *int
}

// Change is something to tell about a task.
type Change struct {
	TaskID string
	// Health is set when the task has become healthy or unhealthy as a whole.
	Health bool
	// Dead is set when the task is to end.
	Dead bool
	// Observed is set when an Observation has a new value.
	Observed bool
	// Message says which check found what, for people.
	Message string
}

// NewBoard returns a board without tasks.
func NewBoard() *Board { return &Board{tasks: map[string]*taskChecks{}} }

// Add takes the checks of a task that has just started. A task that is known is
// taken anew.
func (b *Board) Add(id string, checks []Check, now time.Time) {
	b.Remove(id)
	if b.epoch.IsZero() {
		b.epoch = now
	}
	t := &taskChecks{id: id, start: now}
	for i := range checks {
		p := &progress{task: t, check: &checks[i], due: now.Add(checks[i].Delay)}
		t.list = append(t.list, p)
		heap.Push(&b.queue, p)
	}
	b.tasks[id] = t
}

// Remove forgets a task. What comes of its checks later changes nothing.
func (b *Board) Remove(id string) {
	t := b.tasks[id]
	if t == nil {
		return
	}
	delete(b.tasks, id)
	for _, p := range t.list {
		if p.index >= 0 {
			heap.Remove(&b.queue, p.index)
		}
	}
}

// Next returns when the next check is due; false when none waits.
func (b *Board) Next() (time.Time, bool) {
	if len(b.queue) == 0 {
		return time.Time{}, false
	}
	return b.queue[0].due, true
}

// Take returns the check that has been due for longest, or false when none is.
// Done must follow.
func (b *Board) Take(now time.Time) (Probe, bool) {
	if len(b.queue) == 0 || b.queue[0].due.After(now) {
		return Probe{}, false
	}
	p, ok := heap.Pop(&b.queue).(*progress)
	return Probe{TaskID: p.task.id, Check: p.check, at: p}, ok
}

// Done takes what came of a check; false means that there is nothing to tell.
func (b *Board) Done(pr Probe, o Outcome, now time.Time) (Change, bool) {
	p, t := pr.at, pr.at.task
	if b.tasks[t.id] != t {
		return Change{}, false
	}
	defer func() {
		if p.state != dead {
			p.due = b.onGrid(now.Add(p.check.Interval), p.check.Interval)
			heap.Push(&b.queue, p)
		}
	}()
	if p.check.Kind == Observation {
		return p.observe(o)
	}
	if o.Verdict == Unclear {
		return Change{}, false
	}
	before := b.Health(t.id)
	c := transitions[p.check.Kind][p.state][p.event(o, now)]
	p.state = c.next
	p.message = o.Message
	if c.do == none {
		return Change{}, false
	}
	after := b.Health(t.id)
	change := Change{TaskID: t.id, Dead: c.do == end, Message: p.words()}
	change.Health = !same(before, after)
	return change, change.Health || change.Dead
}

// onGrid puts a time off by at most a twentieth of the interval and a quarter of
// a second, so that the checks of many tasks wake the processor together.
func (b *Board) onGrid(due time.Time, interval time.Duration) time.Time {
	step := min(interval/20, 250*time.Millisecond)
	if step <= 0 {
		return due
	}
	if over := due.Sub(b.epoch) % step; over > 0 {
		return due.Add(step - over)
	}
	return due
}

// event counts the outcome and says what it is for the table.
func (p *progress) event(o Outcome, now time.Time) event {
	if o.Verdict == Passed {
		p.failures = 0
		return success
	}
	if p.state == unknown && p.failures == 0 && now.Sub(p.task.start) <= p.check.Grace {
		return early
	}
	most := p.check.Limit
	if most == 0 && p.check.Kind == Readiness {
		most = 1
	}
	if p.failures++; most > 0 && p.failures >= most {
		return limit
	}
	return failure
}

// observe compares with the value before; one that could not be had is a change, too.
func (p *progress) observe(o Outcome) (Change, bool) {
	if o.Verdict == Unclear || p.told && same(p.value, o.Value) {
		return Change{}, false
	}
	first := !p.told
	p.value, p.told = o.Value, true
	if first && o.Value == nil {
		// An update without a value went out when the task began.
		return Change{}, false
	}
	return Change{TaskID: p.task.id, Observed: true}, true
}

// words say what the check has found.
func (p *progress) words() string {
	what := "health check "
	if p.check.Kind == Readiness {
		what = "readiness check "
	}
	switch {
	case p.state == healthy:
		return what + p.check.String() + " succeeded"
	case p.state == dead && p.failures > 1:
		return fmt.Sprintf("%s%s failed %d times in a row, last: %s", what, p.check, p.failures, p.message)
	}
	return what + p.check.String() + " failed: " + p.message
}

// Health is true when all checks of a task are content, false when one is
// not, nil while that is not known, or when there is none.
func (b *Board) Health(id string) *bool {
	t := b.tasks[id]
	if t == nil {
		return nil
	}
	var passed, waiting bool
	for _, p := range t.list {
		switch {
		case p.check.Kind == Observation:
		case p.state == unhealthy, p.state == dead:
			return new(false)
		case p.state == unknown:
			waiting = true
		default:
			passed = true
		}
	}
	if passed && !waiting {
		return new(true)
	}
	return nil
}

// Observed returns the latest value of a task's Observation; nil when there is none.
func (b *Board) Observed(id string) *int {
	if t := b.tasks[id]; t != nil {
		for _, p := range t.list {
			if p.check.Kind == Observation {
				return p.value
			}
		}
	}
	return nil
}

// Report returns what is known by each check of a task, without Observations.
func (b *Board) Report(id string) []api.CheckReport {
	t := b.tasks[id]
	if t == nil {
		return nil
	}
	var out []api.CheckReport
	for _, p := range t.list {
		if p.check.Kind == Observation {
			continue
		}
		r := api.CheckReport{Type: p.check.Type, Probe: api.ProbeLiveness}
		if p.check.Kind == Readiness {
			r.Probe = api.ProbeReadiness
		}
		switch p.state {
		case healthy:
			r.Healthy = new(true)
		case unhealthy, dead:
			r.Healthy, r.Message = new(false), p.message
		default:
		}
		out = append(out, r)
	}
	return out
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// queue is a heap of checks, the earliest first.
type queue []*progress

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for container/heap.
func (q *queue) Push(x any) {
	p, ok := x.(*progress)
	if !ok {
		return
	}
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop is for container/heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	p.index = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}
