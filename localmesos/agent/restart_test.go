package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/group"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/link"
)

// restart kills an agent as kill -9 would and starts the next one in its place:
// same directory, same port.
func restart(t *testing.T, a *Agent, meanwhile func()) *Agent {
	t.Helper()
	f := a.flags
	f.Port = int(a.info.GetPort())
	a.Kill()
	if meanwhile != nil {
		meanwhile()
	}
	b := startAgent(t, f)
	waitRegistered(t, b)
	return b
}

// quiet waits until the agent has taken all acknowledgements.
func quiet(t *testing.T, a *Agent) {
	t.Helper()
	eventually(t, "all is acknowledged", func() bool {
		n := -1
		a.loop.do(a.ctx, func() { n = len(a.updates.Keys()) })
		return n == 0
	})
}

func TestRestartKeepsExecutorsAndTasks(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "ok", "t1"))
	quiet(t, a)
	before := processes(t, a)["x1"]
	b := restart(t, a, nil)
	subs := m.subscriptions()
	s := subs[len(subs)-1]
	if len(subs) != 2 || s.AgentInfo.GetID().GetValue() != m.id || len(s.Executors) != 1 || len(s.Tasks) != 1 || len(s.Frameworks) != 1 {
		t.Fatalf("registration: %+v", s)
	}
	if task := s.Tasks[0]; task.State != mesos.TASK_RUNNING || task.ExecutorID != "x1" || string(task.Info.Data) != "task data" || task.StatusUpdateUUID != nil {
		t.Errorf("task: %+v", task)
	}
	if !before.Alive() || processes(t, b)["x1"] != before {
		t.Error("another process")
	}
	m.running(runOf(true, "x1", "ok", "t2"))
	m.kill("t1")
	m.ack(m.update("t1", mesos.TASK_KILLED))
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{FrameworkID: mesos.FrameworkID{Value: "f1"}, ExecutorID: "x1"}})
	if e := m.exited("x1"); e.Status != 0 {
		t.Errorf("status %d of an executor that an earlier agent started", e.Status)
	}
	m.ack(m.update("t2", mesos.TASK_FAILED))
}

func TestUnacknowledgedUpdateSurvives(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "ok", "t1"))
	first := m.update("t1", mesos.TASK_RUNNING)
	m.kill("t1")
	fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "notes"), "KILL")
	eventually(t, "the second update is taken", func() bool {
		b, _ := os.ReadFile(a.store.TaskLog(runID(a, "x1")))
		return bytes.Contains(b, []byte("TASK_KILLED"))
	})
	restart(t, a, nil)
	again := m.update("t1", mesos.TASK_RUNNING)
	if !bytes.Equal(again.Status.UUID, first.Status.UUID) || again.LatestState != mesos.TASK_KILLED {
		t.Errorf("uuid %x, not %x; latest %s", again.Status.UUID, first.Status.UUID, again.LatestState)
	}
	m.ack(again)
	m.ack(m.update("t1", mesos.TASK_KILLED))
}

// runID is where an executor's checkpoints are, read before the agent is killed.
func runID(a *Agent, executor string) store.Run {
	var r store.Run
	a.loop.do(a.ctx, func() { r = a.frameworks["f1"].executors[executor].run })
	return r
}

func TestWhatHappenedWhileTheAgentWasAway(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x-quit", "ok", "t-quit"))
	m.running(runOf(true, "x-hang", "hang", "t-hang"))
	m.running(runOf(true, "x-away", "away", "t-away"))
	m.run(runOf(true, "x-silent", "silent", "t-silent"))
	fileWith(t, filepath.Join(sandboxOf(t, a, "x-silent"), "notes"), "LAUNCH")
	quiet(t, a)
	ids := processes(t, a)
	b := restart(t, a, func() { killProcess(t, ids["x-quit"]) })
	if e := m.exited("x-hang"); e.Status != 9 {
		t.Errorf("x-hang: status %d", e.Status)
	}
	want := map[string]struct {
		state   mesos.TaskState
		message string
	}{
		"t-quit": {mesos.TASK_FAILED, "Executor terminated"},
		"t-hang": {mesos.TASK_LOST, "Executor did not reregister within 2secs"},
		"t-away": {mesos.TASK_FINISHED, ""},
	}
	for task, w := range want {
		var u link.StatusUpdate
		eventually(t, task, func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, c := range m.calls {
				if c.Type == link.CallUpdate && c.Update.Status.TaskID.Value == task && c.Update.Status.GetState() == w.state {
					u = *c.Update
					return true
				}
			}
			return false
		})
		if u.Status.GetMessage() != w.message {
			t.Errorf("%s: %q", task, u.Status.GetMessage())
		}
	}
	if !m.without(func(c link.Call) bool { return c.Type == link.CallExited && c.Exited.ExecutorID == "x-quit" }) {
		t.Error("the end of an executor that was gone before was told")
	}
	if ids["x-hang"].Alive() || !ids["x-silent"].Alive() {
		t.Error("the wrong executor was ended")
	}
	for _, task := range m.subscriptions()[1].Tasks {
		if task.Info.TaskID.Value == "t-silent" && task.State != mesos.TASK_STAGING {
			t.Errorf("t-silent: %s", task.State)
		}
	}
	m.kill("t-silent")
	m.update("t-silent", mesos.TASK_KILLED)
	_ = b
}

func TestTaskTakenButNotHandedOver(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "ok", "t1"))
	// The agent dies between the recording of a task and its delivery.
	var err error
	a.loop.do(a.ctx, func() {
		e := a.frameworks["f1"].executors["x1"]
		info := runOf(true, "x1", "ok", "t2").Tasks[0]
		err = a.updates.Take(&info, "", a.store.TaskLog(e.run))
	})
	if err != nil {
		t.Fatal(err)
	}
	restart(t, a, nil)
	if u := m.update("t2", mesos.TASK_LOST); u.Status.GetReason() != mesos.REASON_AGENT_RESTARTED {
		t.Errorf("reason %s", u.Status.GetReason())
	}
}

func TestAgentKilledBeforeTheExecutorSubscribed(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "mute", "t1"))
	id := alive(t, a, "x1")
	restart(t, a, nil)
	if u := m.update("t1", mesos.TASK_LOST); u.Status.GetReason() != mesos.REASON_EXECUTOR_REREGISTRATION_TIMEOUT {
		t.Errorf("reason %s", u.Status.GetReason())
	}
	eventually(t, "the executor is gone", func() bool { return !id.Alive() })
}

// An executor that comes to the next agent without a task has nothing to wait for.
func TestExecutorThatNeverGotATaskIsShutDown(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "late", "t1"))
	id := alive(t, a, "x1")
	f := a.flags
	f.Port = int(a.info.GetPort())
	sandbox := sandboxOf(t, a, "x1")
	a.Kill()
	b := startAgent(t, f)
	if err := os.WriteFile(filepath.Join(sandbox, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitRegistered(t, b)
	if u := m.update("t1", mesos.TASK_LOST); u.Status.GetReason() != mesos.REASON_AGENT_RESTARTED {
		t.Errorf("reason %s", u.Status.GetReason())
	}
	fileWith(t, filepath.Join(sandbox, "notes"), "SHUTDOWN")
	eventually(t, "the executor is gone", func() bool { return !id.Alive() })
}

func TestExecutorOfFrameworkWithoutCheckpointIsEnded(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "fork", "t1"))
	pid := processes(t, a)["x1"]
	restart(t, a, nil)
	eventually(t, "the orphan is gone", func() bool { return !pid.Alive() })
	if s := m.subscriptions()[1]; len(s.Tasks)+len(s.Executors)+len(s.Frameworks) != 0 {
		t.Errorf("registration: %+v", s)
	}
}

func TestMasterAwayAndBack(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "ok", "t1"))
	first := m.update("t1", mesos.TASK_RUNNING)
	m.hangUp()
	again := m.update("t1", mesos.TASK_RUNNING)
	if !bytes.Equal(first.Status.UUID, again.Status.UUID) {
		t.Error("another uuid")
	}
	notes := fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "notes"), "LAUNCH")
	if strings.Contains(notes, "disconnected") {
		t.Error("the executor noticed")
	}
	if s := m.subscriptions()[1]; s.Tasks[0].StatusUpdateUUID == nil || s.Tasks[0].State != mesos.TASK_RUNNING {
		t.Errorf("task: %+v", s.Tasks[0])
	}
}

func TestAnotherBoot(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	id := processes(t, a)["x1"]
	container := runID(a, "x1").Container
	b := restart(t, a, func() {
		s, err := store.Open(f.WorkDir, f.Logger)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.SaveBootID("another boot"); err != nil {
			t.Fatal(err)
		}
	})
	if s := m.subscriptions()[1]; s.AgentInfo.GetID().GetValue() != m.id || len(s.Tasks) != 0 {
		t.Errorf("registration: %+v", s)
	}
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	// It is of this boot after all.
	c, err := b.launcher.Find(container, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
}

func TestExecutorReconnectsAfterItsConnectionBroke(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "ok", "t1"))
	a.loop.do(a.ctx, func() { a.frameworks["f1"].executors["x1"].stream.Close() })
	m.running(runOf(true, "x1", "ok", "t2"))
	notes := fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "notes"), "disconnected")
	if n := strings.Count(notes, "LAUNCH"); n > 2 {
		t.Errorf("%d launches", n)
	}
}

func TestKilledWhileAnExecutorWasBeingStarted(t *testing.T) {
	t.Parallel()
	for name, withContainer := range map[string]bool{"before its container was recorded": false, "before its process was": true} {
		m := newMaster(t)
		f := testFlags(t, m)
		a := startAgent(t, f)
		waitRegistered(t, a)
		restart(t, a, func() {
			s, err := store.Open(f.WorkDir, f.Logger)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			run := runOf(true, "x1", "ok", "t1")
			id := store.Run{Agent: m.id, Framework: "f1", Executor: "x1", Container: newUUIDText()}
			var later group.Group
			defer later.Close()
			for _, err := range []error{s.SaveFramework(m.id, &run.Framework), s.SaveExecutor(id, store.Executor{Info: &run.Executor, Container: id.Container}),
				s.MakeRun(id), updates.New(nil, f.Logger, &later, nil).Take(&run.Tasks[0], "", s.TaskLog(id))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if withContainer {
				if err := s.SaveContainer(store.Container{Run: id}); err != nil {
					t.Fatal(err)
				}
			}
		})
		u := m.update("t1", mesos.TASK_FAILED)
		if u.Status.GetReason() != mesos.REASON_EXECUTOR_TERMINATED {
			t.Errorf("%s: %s", name, u.Status.GetReason())
		}
		m.ack(u)
	}
}
