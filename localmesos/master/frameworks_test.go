package master

import (
	"slices"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

func stateOf(m *Master, id string) (s frameworkState, there bool) {
	m.loop.do(func() {
		if f := m.frameworks[id]; f != nil {
			s, there = f.state, true
		}
	})
	return s, there
}

// TestFailoverTimeout: a framework has exactly as long as it asked for, and the
// time begins anew each time that it goes.
func TestFailoverTimeout(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	const fields = multiRole + `,"failover_timeout":604800`
	f := subscribe(t, m, "", fields)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	a.want(t, link.EventRun)
	leave := func(c *client) {
		t.Helper()
		c.cancel()
		waitFor(t, "disconnected", func() bool { s, _ := stateOf(m, f.id); return s == frameworkDisconnected })
	}
	const week = 7 * 24 * time.Hour
	leave(f)
	advance(m, week-time.Minute)
	if _, there := stateOf(m, f.id); !there {
		t.Fatal("removed a minute too early")
	}
	g := subscribe(t, m, f.id, fields)
	advance(m, week)
	if s, _ := stateOf(m, f.id); s != frameworkConnected {
		t.Fatal("the old timeout counts for a framework that is back")
	}
	g.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
	g.update(t, "t")
	leave(g)
	advance(m, week-time.Minute)
	if _, there := stateOf(m, f.id); !there {
		t.Fatal("the second absence is shorter than the first")
	}
	advance(m, time.Minute)
	if id := a.want(t, link.EventShutdownFramework).ShutdownFramework.Value; id != f.id {
		t.Error(id)
	}
	h := trySubscribe(t, m, f.id, fields)
	if e := h.next(t, "ERROR", ofType(scheduler.Event_ERROR)); e.Error.Message != "Framework has been removed" {
		t.Error(e.Error.Message)
	}
}

// TestHistories: what has ended is remembered, the latest of it, and no more.
func TestHistories(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.MaxCompletedFrameworks, f.MaxCompletedTasksPerFramework = 2, 3 })
	a := startAgent(t, m, nil)
	var ids []string
	for range 4 {
		f := subscribe(t, m, "", multiRole)
		ids = append(ids, f.id)
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			f.launch(t, f.offer(t), taskJSON(id, a.id, executorJSON("x")))
			uuid := a.report(t, f.id, "x", id, mesos.TASK_FINISHED)
			f.update(t, id)
			f.must(t, "ACKNOWLEDGE", ack(a.id, id, uuid))
		}
		f.must(t, "TEARDOWN", "")
		f.waitEnd(t)
	}
	_, r, _ := operate(t, m, wire.JSON, &apimaster.Call{Type: apimaster.Call_GET_STATE})
	var frameworks, tasks []string
	for _, f := range r.GetState.GetFrameworks.CompletedFrameworks {
		frameworks = append(frameworks, f.FrameworkInfo.ID.Value)
	}
	for _, x := range r.GetState.GetTasks.CompletedTasks {
		tasks = append(tasks, x.TaskID.Value)
	}
	if !slices.Equal(frameworks, ids[2:]) {
		t.Errorf("frameworks %v of %v", frameworks, ids)
	}
	if !slices.Equal(tasks, []string{"c", "d", "e", "c", "d", "e"}) {
		t.Errorf("tasks %v", tasks)
	}
}

func TestNoHistory(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) {
		f.MaxCompletedFrameworks, f.MaxCompletedTasksPerFramework, f.MaxUnreachableTasksPerFramework = none, none, none
	})
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	f.must(t, "TEARDOWN", "")
	f.waitEnd(t)
	m.loop.do(func() {
		if len(m.completed) != 0 {
			t.Errorf("%d frameworks are remembered", len(m.completed))
		}
	})
}

// TestUnreachableTasksAreBounded: the oldest are forgotten.
func TestUnreachableTasksAreBounded(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{2: 2, none: 0} {
		m := stillMaster(t, Flags{MaxUnreachableTasksPerFramework: most})
		f := m.testFramework("*")
		for i := range 4 {
			a := m.testAgent(t, int32(i), "cpus:1;mem:100")
			m.useAll(f)
			m.loseAgent(a, lostPings)
			for _, wrong := range audit(m) {
				t.Error(wrong)
			}
		}
		if len(f.unreachable) != want || len(f.tasks) != 0 {
			t.Errorf("at most %d: %d are kept", most, len(f.unreachable))
		}
		m.Close()
	}
}

// TestRecoveredFrameworkEnds: a framework that only an agent knows has at least
// agent_reregister_timeout, and its failover timeout if that is longer.
func TestRecoveredFrameworkEnds(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.AgentReregisterTimeout, f.AgentPingTimeout = 10*time.Minute, 1000*time.Hour })
	long := float64(3600)
	sub := knownAgent("agent")
	sub.Frameworks = []mesos.FrameworkInfo{{User: "u", Name: "short", ID: &mesos.FrameworkID{Value: "short"}},
		{User: "u", Name: "long", ID: &mesos.FrameworkID{Value: "long"}, FailoverTimeout: &long}}
	for _, id := range []string{"short", "long"} {
		sub.Tasks = append(sub.Tasks, link.Task{FrameworkID: mesos.FrameworkID{Value: id}, State: mesos.TASK_RUNNING,
			Info: mesos.TaskInfo{TaskID: mesos.TaskID{Value: "t"}, AgentID: mesos.AgentID{Value: "agent"}}})
	}
	a := startAgent(t, m, &sub)
	for _, step := range []struct {
		wait time.Duration
		ends string
	}{{10 * time.Minute, "short"}, {50 * time.Minute, "long"}} {
		advance(m, step.wait-time.Minute)
		a.none(t, "the end of a framework", 20*time.Millisecond, func(e link.Event) bool { return e.Type == link.EventShutdownFramework })
		advance(m, time.Minute)
		if id := a.want(t, link.EventShutdownFramework).ShutdownFramework.Value; id != step.ends {
			t.Errorf("%s ended, not %s", id, step.ends)
		}
	}
}
