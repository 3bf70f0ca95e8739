package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"pgregory.net/rapid"

	"tandem/api"
)

// world is what a runtime has made on the agent: it says what is there, whatever the
// runtime answers.
type world struct {
	mu sync.Mutex
	// there are the tasks and sandboxes that were made and not removed; runs those of them that run.
	there, runs map[string]bool
	// fails counts the steps of a task that are to fail, by "step id"; those that fail late have had their effect.
	fails map[string]bool
	late  bool
	// back is when the daemon is back; before, calls wait for it, or say that they cannot tell.
	back  time.Time
	deaf  bool
	ended map[string]bool // with exit code 0
}

// away waits for a daemon that is away, as long as the caller wants it.
func (w *world) away(ctx context.Context) error {
	for {
		w.mu.Lock()
		left, deaf := time.Until(w.back), w.deaf
		w.mu.Unlock()
		switch {
		case left <= 0:
			return ctx.Err()
		case deaf:
			return errors.New("nobody can tell")
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// step does what a step does, and fails it before or after that where the script says so.
func (w *world) step(ctx context.Context, name, id string, takes time.Duration, effect func()) error {
	if err := w.away(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := w.fails[name+" "+id]
	delete(w.fails, name+" "+id)
	if !fail || w.late {
		effect()
	}
	if fail {
		return fmt.Errorf("%s of %s fails", name, id)
	}
	return ctx.Err()
}

// rule makes a rig's runtime live in the world.
func (w *world) rule(r *rig, takes func() time.Duration) {
	rt := r.runtime
	rt.prepare = func(ctx context.Context, t *Task, _ func(string)) error {
		return w.step(ctx, "prepare", t.ID, takes(), func() {})
	}
	rt.sandbox = func(ctx context.Context, t *Task) error {
		return w.step(ctx, "sandbox", t.ID, takes(), func() { w.there[t.ID] = true })
	}
	rt.create = func(ctx context.Context, t *Task) error {
		return w.step(ctx, "create", t.ID, takes(), func() { w.there[t.ID] = true })
	}
	rt.start = func(ctx context.Context, id string) error {
		return w.step(ctx, "start", id, takes(), func() { w.runs[id] = w.there[id] })
	}
	rt.wait = func(ctx context.Context, _ string) error { return w.away(ctx) }
	rt.stop = func(ctx context.Context, id string, grace time.Duration) error {
		return w.step(ctx, "stop", id, min(takes(), grace), func() { delete(w.runs, id) })
	}
	rt.remove = func(ctx context.Context, id string) error {
		return w.step(ctx, "remove", id, takes(), func() {
			if w.runs[id] {
				panic("what runs is removed: " + id)
			}
			delete(w.there, id)
		})
	}
}

// happening is one event of a script.
type happening struct {
	after      time.Duration
	kind, task int
	long       time.Duration
}

var happenings = []string{"finish", "finish", "finish", "fail", "vanish", "vanish", "kill", "kill soon", "step fails", "step fails late", "daemon away", "daemon deaf", "agent drops", "agent away", "acknowledgements stop"}

// TestTaskgroupsEndWhateverHappens: with ends, kills, steps that fail, a daemon and an
// agent that are away for a while in any order, each task gets one terminal update, not
// before nothing of it is left, and in the end nothing is left at all.
func TestTaskgroupsEndWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		lifecycles := rapid.SliceOfN(rapid.SampledFrom([]string{api.LifecycleInit, api.LifecycleSidecar, api.LifecycleMain}), 0, 4).Draw(rt, "others")
		lifecycles = append(lifecycles, api.LifecycleMain)
		kinds := rapid.SliceOfN(rapid.Bool(), len(lifecycles), len(lifecycles)).Draw(rt, "containers")
		slow := rapid.SliceOfN(rapid.IntRange(0, 3), 8, 8).Draw(rt, "seconds of the steps")
		calm := rapid.IntRange(0, 40).Draw(rt, "seconds before")
		late := rapid.Bool().Draw(rt, "late")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) happening {
			return happening{
				time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond, rapid.IntRange(0, len(happenings)-1).Draw(rt, "what"),
				rapid.IntRange(0, len(lifecycles)-1).Draw(rt, "task"), time.Duration(rapid.IntRange(1, 12).Draw(rt, "s")) * time.Second,
			}
		}), 0, 14).Draw(rt, "script")
		var wrong []string
		inBubble(t, nil, func(r *rig) {
			m := &model{rig: r, w: &world{there: map[string]bool{}, runs: map[string]bool{}, fails: map[string]bool{}, ended: map[string]bool{}, late: late}}
			m.live(lifecycles, kinds, slow, calm, script)
			wrong = m.wrong
		})
		if len(wrong) > 0 {
			for _, h := range script {
				rt.Logf("after %s: %s of t%d, %s", h.after, happenings[h.kind], h.task, h.long)
			}
			rt.Fatalf("%v", wrong)
		}
	})
}

// model is a run of a script.
type model struct {
	*rig
	w     *world
	ids   []string
	wrong []string
}

func (m *model) live(lifecycles []string, containers []bool, slow []int, calm int, script []happening) {
	var mu sync.Mutex
	n := 0
	m.w.rule(m.rig, func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		n++
		return time.Duration(slow[n%len(slow)]) * time.Second
	})
	var infos []mesos.TaskInfo
	for i, l := range lifecycles {
		id := fmt.Sprintf("t%d", i)
		change := []func(*api.TaskSpec){lifecycle(l), withGrace(4)}
		if containers[i] {
			change = append(change, bridged)
		}
		m.ids = append(m.ids, id)
		infos = append(infos, taskInfo(id, i, change...))
	}
	m.agent.launch(infos...)
	for range calm {
		m.pass(time.Second)
		for i, l := range lifecycles {
			if l == api.LifecycleInit {
				m.happen(happening{task: i}) // it finishes if it is its turn
			}
		}
	}
	for _, h := range script {
		m.pass(h.after)
		if !m.running() {
			break
		}
		m.happen(h)
		m.look()
	}
	// All that was away is back, and the scheduler wants the end.
	m.agent.set(func() { m.agent.withhold, m.agent.subscribeStatus = false, 0 })
	m.drop() // and with the next subscription what was not acknowledged is
	for end := time.Now().Add(time.Hour); m.running() && time.Now().Before(end); m.look() {
		for _, id := range m.ids {
			m.agent.kill(id, 0)
		}
		m.pass(7 * time.Second)
	}
	if m.running() {
		m.err("the executor goes on")
	}
	m.look()
	for _, id := range m.ids {
		if got := m.terminals(id); len(got) != 1 {
			m.err("%s has the terminal updates %v", id, got)
		}
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if len(m.w.there)+len(m.w.runs) > 0 {
		m.err("left: %v, running %v", m.w.there, m.w.runs)
	}
}

func (m *model) happen(h happening) {
	id := m.ids[h.task]
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	exits := func(x Exit) {
		if m.w.runs[id] && m.runtime.exits[id] != nil {
			delete(m.w.runs, id)
			m.w.ended[id] = x.Known && x.Code == 0
			m.runtime.exit(id, x)
		}
	}
	switch happenings[h.kind] {
	case "finish":
		exits(Exit{Known: true})
	case "fail":
		exits(Exit{Known: true, Code: 1})
	case "vanish":
		exits(Exit{})
	case "kill":
		m.agent.kill(id, 0)
	case "kill soon":
		m.agent.kill(id, time.Second)
	case "step fails", "step fails late":
		steps := []string{"prepare", "create", "start", "stop", "remove", "sandbox"}
		m.w.fails[steps[int(h.long/time.Second)%len(steps)]+" "+id] = true
	case "daemon away", "daemon deaf":
		m.w.back, m.w.deaf = time.Now().Add(h.long), happenings[h.kind] == "daemon deaf"
	case "agent drops":
		m.drop()
	case "agent away":
		m.agent.set(func() { m.agent.subscribeStatus = http.StatusServiceUnavailable })
		m.drop()
		time.AfterFunc(h.long, func() { m.agent.set(func() { m.agent.subscribeStatus = 0 }) })
	case "acknowledgements stop":
		m.agent.set(func() { m.agent.withhold = true })
		time.AfterFunc(h.long, func() { m.agent.set(func() { m.agent.withhold = false }); m.drop() })
	}
}

// drop ends the stream if there is one.
func (m *model) drop() {
	m.agent.mu.Lock()
	defer m.agent.mu.Unlock()
	if m.agent.end == nil {
		return
	}
	select {
	case <-m.agent.end:
	default:
		close(m.agent.end)
	}
}

func (m *model) terminals(id string) (states []string) {
	for _, s := range m.agent.of(id) {
		if terminal(s.GetState()) {
			states = append(states, s.GetState().String())
		}
	}
	return states
}

// look compares what the agent was told with what there is.
func (m *model) look() {
	for i, id := range m.ids {
		states := m.terminals(id)
		if len(states) == 0 {
			continue
		}
		m.w.mu.Lock()
		there, ended := m.w.there[id] || m.w.runs[id], m.w.ended[id]
		m.w.mu.Unlock()
		if there {
			m.err("%s is %v and still there", id, states)
		}
		if states[0] == mesos.TASK_FINISHED.String() && !ended && m.exec.tasks[id].lifecycle() != api.LifecycleSidecar {
			m.err("t%d is FINISHED without having finished", i)
		}
		if len(states) > 1 {
			m.err("%s is %v", id, states)
		}
	}
}

func (m *model) err(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}
