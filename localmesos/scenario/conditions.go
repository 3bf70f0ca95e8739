package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// condition is something that can be true. check returns what is not, in words.
type condition interface {
	check(ctx context.Context, r *runner) (string, error)
}

// conditions are the words that one begins with.
var conditions = map[string]func(*parser, *line) (condition, error){
	"tasks":     (*parser).tasksCondition,
	"task":      (*parser).taskCondition,
	"updates":   (*parser).updatesCondition,
	"history":   (*parser).historyCondition,
	"starts":    (*parser).countTask,
	"processes": (*parser).countTask,
	"agents":    (*parser).agentsCondition,
	"agent":     (*parser).agentCondition,
	"framework": (*parser).frameworkCondition,
	"offers":    (*parser).countFramework,
	"rescinded": (*parser).countFramework,
	"failures":  (*parser).countFramework,
}

// Conditions are the words that a condition begins with, sorted.
func Conditions() []string { return slices.Sorted(maps.Keys(conditions)) }

func (p *parser) condition(l *line) (condition, error) {
	word, err := l.next("a condition")
	if err != nil {
		return nil, err
	}
	parse, ok := conditions[word]
	if !ok {
		return nil, fmt.Errorf("%s: %w", l.verb, unknown("condition", word, Conditions()))
	}
	l.verb += " " + word
	return parse(p, l)
}

// waitStep waits until a condition is true, expectStep looks whether it is, and
// holdStep whether it stays so.
type (
	waitStep struct {
		c      condition
		within time.Duration
	}
	expectStep struct{ c condition }
	holdStep   struct {
		c    condition
		long time.Duration
	}
)

func (p *parser) wait(l *line) (action, error) {
	within, err := l.durationAfter("within", patience)
	if err != nil {
		return nil, err
	}
	c, err := p.condition(l)
	return &waitStep{c, within}, err
}

func (s *waitStep) run(ctx context.Context, r *runner) error {
	return r.until(ctx, s.within, func(ctx context.Context) (string, error) { return s.c.check(ctx, r) })
}

func (p *parser) expect(l *line) (action, error) {
	c, err := p.condition(l)
	return &expectStep{c}, err
}

func (s *expectStep) run(ctx context.Context, r *runner) error {
	problem, err := s.c.check(ctx, r)
	if err == nil && problem != "" {
		err = fmt.Errorf("%s", problem)
	}
	return err
}

func (p *parser) hold(l *line) (action, error) {
	d, err := l.durationAfter("for", 0)
	if err == nil && d == 0 {
		err = l.errorf(`"for" is missing: say for how long`)
	}
	if err != nil {
		return nil, err
	}
	c, err := p.condition(l)
	return &holdStep{c, d}, err
}

func (s *holdStep) run(ctx context.Context, r *runner) error {
	end := time.Now().Add(s.long)
	for time.Now().Before(end) {
		problem, err := s.c.check(ctx, r)
		if err != nil {
			return err
		}
		if problem != "" {
			return fmt.Errorf("it did not stay so: %s", problem)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// taskState reads TASK_RUNNING or running.
func (l *line) taskState(text string) (mesos.TaskState, error) {
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "TASK_") {
		name = "TASK_" + name
	}
	v, ok := mesos.TaskState_value[name]
	if !ok {
		return 0, fmt.Errorf("%s: %w", l.verb, unknown("state", name, slices.Sorted(maps.Keys(mesos.TaskState_value))))
	}
	return mesos.TaskState(v), nil
}

// tasksCondition: tasks running=3 lost=1
type stateCounts struct {
	framework string
	want      map[mesos.TaskState]amount
}

func (p *parser) tasksCondition(l *line) (condition, error) {
	c := &stateCounts{want: map[mesos.TaskState]amount{}}
	var err error
	if c.framework, err = p.of(l); err != nil {
		return nil, err
	}
	for _, w := range l.words {
		name, number, ok := strings.Cut(w, "=")
		if !ok {
			return nil, l.errorf("%q is not STATE=NUMBER, such as running=3", w)
		}
		state, err := l.taskState(name)
		if err != nil {
			return nil, err
		}
		if c.want[state], err = l.amount(number); err != nil {
			return nil, err
		}
	}
	if l.words = nil; len(c.want) == 0 {
		return nil, l.errorf("no state is given; use such as running=3")
	}
	return c, nil
}

func (c *stateCounts) check(_ context.Context, r *runner) (string, error) {
	f := r.frameworks[c.framework]
	f.mu.Lock()
	defer f.mu.Unlock()
	have := map[mesos.TaskState]int{}
	var all []string
	for name, t := range f.tasks {
		have[t.state()]++
		all = append(all, name+" "+t.state().String())
	}
	slices.Sort(all)
	var wrong []string
	for state, want := range c.want {
		if !want.ok(have[state]) {
			wrong = append(wrong, fmt.Sprintf("%d tasks are in %s, not %s", have[state], state, want))
		}
	}
	if len(wrong) == 0 {
		return "", nil
	}
	slices.Sort(wrong)
	return strings.Join(wrong, ", ") + " (" + strings.Join(all, ", ") + ")", nil
}

// oneTask: task t1 TASK_RUNNING; updates t1 TASK_RUNNING 2; history t1 TASK_STARTING TASK_RUNNING
type oneTask struct {
	framework, name string
	is              func(*task) string
}

func (p *parser) taskAnd(l *line) (*oneTask, error) {
	c := &oneTask{}
	var err error
	if c.framework, err = p.of(l); err == nil {
		c.name, err = p.task(l)
	}
	return c, err
}

func (c *oneTask) check(_ context.Context, r *runner) (string, error) {
	f := r.frameworks[c.framework]
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tasks[c.name]
	if t == nil {
		return fmt.Sprintf("framework %s has no task %s", c.framework, c.name), nil
	}
	return c.is(t), nil
}

func (p *parser) taskCondition(l *line) (condition, error) {
	c, err := p.taskAnd(l)
	if err != nil {
		return nil, err
	}
	text, err := l.next("state")
	if err != nil {
		return nil, err
	}
	want, err := l.taskState(text)
	c.is = func(t *task) string {
		if have := t.state(); have != want {
			message := ""
			if n := len(t.updates); n > 0 && t.updates[n-1].GetMessage() != "" {
				message = ": " + t.updates[n-1].GetMessage()
			}
			return fmt.Sprintf("task %s is %s, not %s%s", c.name, have, want, message)
		}
		return ""
	}
	return c, err
}

func (p *parser) updatesCondition(l *line) (condition, error) {
	c, err := p.taskAnd(l)
	if err != nil {
		return nil, err
	}
	if len(l.words) < 2 {
		return nil, l.errorf("state and number are missing, such as TASK_RUNNING 2")
	}
	want, err := l.taskState(l.words[0])
	if err != nil {
		return nil, err
	}
	number, err := l.amount(l.words[1])
	l.words = l.words[2:]
	c.is = func(t *task) string {
		n := 0
		for _, u := range t.updates {
			if u.GetState() == want {
				n++
			}
		}
		if !number.ok(n) {
			return fmt.Sprintf("%d updates told that task %s is %s, not %s", n, c.name, want, number)
		}
		return ""
	}
	return c, err
}

func (p *parser) historyCondition(l *line) (condition, error) {
	c, err := p.taskAnd(l)
	if err != nil {
		return nil, err
	}
	var want []string
	for _, w := range l.words {
		s, err := l.taskState(w)
		if err != nil {
			return nil, err
		}
		want = append(want, s.String())
	}
	if l.words = nil; len(want) == 0 {
		return nil, l.errorf("no state is given")
	}
	c.is = func(t *task) string {
		if have := t.history(); !slices.Equal(have, want) {
			return fmt.Sprintf("the states of task %s were %s, not %s", c.name, orNothing(have), orNothing(want))
		}
		return ""
	}
	return c, nil
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}
