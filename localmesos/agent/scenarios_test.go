package agent

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/link"
)

// The scenarios of recovery that every agent must master with executors of the
// v1 API: one that has unacknowledged updates, one that never subscribed, one
// that ended, one that does not come back, and clean-up mode.

func TestRecoverExecutorWithUnacknowledgedUpdates(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "away", "t1"))
	first := m.update("t1", mesos.TASK_RUNNING) // the framework does not acknowledge it
	before := processes(t, a)["x1"]
	b := restart(t, a, func() {
		// The executor makes another one that no agent has seen.
		fileWith(t, filepath.Join(a.store.Work(), "slaves", m.id, "frameworks/f1/executors/x1/runs/latest/notes"), "disconnected")
	})
	again := m.update("t1", mesos.TASK_RUNNING)
	if !bytes.Equal(first.Status.UUID, again.Status.UUID) || again.LatestState != mesos.TASK_FINISHED {
		t.Errorf("uuid %x, not %x; latest state %s", again.Status.UUID, first.Status.UUID, again.LatestState)
	}
	m.ack(again)
	m.ack(m.update("t1", mesos.TASK_FINISHED))
	if !before.Alive() {
		t.Error("the executor is gone")
	}
	// It goes on, with another task.
	r := runOf(true, "x1", "away", "t2")
	m.running(r)
	if processes(t, b)["x1"] != before {
		t.Error("another executor")
	}
	if !m.without(isExit) {
		t.Error("an end was told")
	}
}

func TestRecoverUnregisteredExecutor(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	r := runOf(true, "x1", "mute", "t1")
	r.Framework.Capabilities = []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_PARTITION_AWARE}}
	m.run(r)
	id := alive(t, a, "x1")
	restart(t, a, nil)
	u := m.update("t1", mesos.TASK_GONE)
	if u.Status.GetReason() != mesos.REASON_EXECUTOR_REREGISTRATION_TIMEOUT || u.Status.GetSource() != mesos.SOURCE_AGENT {
		t.Errorf("%s %s", u.Status.GetReason(), u.Status.GetSource())
	}
	m.ack(u)
	eventually(t, "the executor is gone", func() bool { return !id.Alive() })
}

func TestRecoverTerminatedExecutor(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "fork", "t1"))
	quiet(t, a)
	id := processes(t, a)["x1"]
	daemon := strings.TrimSpace(fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "daemon"), "\n"))
	b := restart(t, a, func() {
		killProcess(t, id)
		eventually(t, "the executor is gone", func() bool { return !id.Alive() })
	})
	u := m.update("t1", mesos.TASK_FAILED)
	if u.Status.GetReason() != mesos.REASON_EXECUTOR_TERMINATED || u.Status.GetMessage() != "Executor terminated" {
		t.Errorf("%s %q", u.Status.GetReason(), u.Status.GetMessage())
	}
	if !m.without(isExit) {
		t.Error("a FAILURE, which Apache Mesos does not send for it")
	}
	m.ack(u)
	eventually(t, "what it left is gone, from the machine and from the records", func() bool {
		ids, err := b.store.Frameworks(b.id())
		_, proc := os.Stat("/proc/" + daemon)
		return err == nil && len(ids) == 0 && os.IsNotExist(proc)
	})
}

func TestRecoverExecutorThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "hang", "t1"))
	quiet(t, a)
	id := processes(t, a)["x1"]
	restart(t, a, nil)
	if e := m.exited("x1"); e.Status != 9 {
		t.Errorf("status %d", e.Status)
	}
	u := m.update("t1", mesos.TASK_LOST)
	if u.Status.GetReason() != mesos.REASON_EXECUTOR_REREGISTRATION_TIMEOUT || u.Status.GetMessage() != "Executor did not reregister within 2secs" {
		t.Errorf("%s %q", u.Status.GetReason(), u.Status.GetMessage())
	}
	if id.Alive() {
		t.Error("the executor is still there")
	}
}

func TestCleanUpMode(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	f.ExecutorShutdownGracePeriod = 300 * time.Millisecond
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "good", "ok", "t1"))
	m.running(runOf(true, "bad", "stubborn", "t2"))
	m.running(runOf(true, "away", "hang", "t3"))
	quiet(t, a)
	ids, notes := processes(t, a), filepath.Join(sandboxOf(t, a, "good"), "notes")
	before := len(m.subscriptions())
	f.Port, f.Recover = int(a.info.GetPort()), RecoverCleanup
	a.Kill()
	b := startAgent(t, f)
	select {
	case <-b.Done():
	case <-time.After(patience):
		t.Fatal("the agent did not end")
	}
	if err := b.Err(); err != nil {
		t.Errorf("it ended with an error: %v", err)
	}
	for name, id := range ids {
		if id.Alive() {
			t.Errorf("executor %s is still there", name)
		}
	}
	fileWith(t, notes, "SHUTDOWN")
	if len(m.subscriptions()) != before {
		t.Error("the agent went to the master")
	}
	// The next one is another agent.
	f.Recover = RecoverReconnect
	m.newID(newUUIDText() + "-S1")
	waitRegistered(t, startAgent(t, f))
	subs := m.subscriptions()
	if s := subs[len(subs)-1]; s.AgentInfo.ID != nil || len(s.Executors)+len(s.Tasks)+len(s.Frameworks) != 0 {
		t.Errorf("registration: %+v", s)
	}
}

// Until executors had their time the agent cannot tell what is here.
func TestWhileExecutorsComeBack(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "hang", "t1"))
	quiet(t, a)
	f.Port, f.ExecutorReregistrationTimeout = int(a.info.GetPort()), MaxReregistrationTimeout
	a.Kill()
	b := startAgent(t, f)
	const text = "Agent has not finished recovery"
	if status, body := call(t, b, `{"type":"MESSAGE","framework_id":{"value":"f1"},"executor_id":{"value":"x1"},"message":{"data":"YQ=="}}`, ""); status != http.StatusServiceUnavailable || body != text {
		t.Errorf("MESSAGE: %d %s", status, body)
	}
	if status, body := get(t, b.URL()+"/state"); status != http.StatusServiceUnavailable || body != text {
		t.Errorf("/state: %d %s", status, body)
	}
	if status, body := do(t, http.MethodPost, b.URL()+"/api/v1", "application/json", "", `{"type":"GET_TASKS"}`); status != http.StatusServiceUnavailable || body != text {
		t.Errorf("GET_TASKS: %d %s", status, body)
	}
	if status, _ := get(t, b.URL()+"/health"); status != http.StatusOK {
		t.Errorf("/health: %d", status)
	}
}

func TestExecutorThatHasNotSubscribed(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.run(runOf(true, "x1", "mute", "t1"))
	eventually(t, "the executor is there", func() bool { return len(processes(t, a)) == 1 })
	if status, body := call(t, a, `{"type":"MESSAGE","framework_id":{"value":"f1"},"executor_id":{"value":"x1"},"message":{"data":"YQ=="}}`, ""); status != http.StatusForbidden || body != "Executor is not subscribed" {
		t.Errorf("%d %s", status, body)
	}
}

// A command that ends while its agent recovers is told all the same.
func TestCommandThatEndsWhileTheAgentRecovers(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	f.ExecutorEnvironment = map[string]string{"AGENT_TEST_EXECUTOR": "command"}
	a := startAgent(t, f)
	waitRegistered(t, a)
	command := "while ! test -e go; do sleep 0.02; done"
	r := runOf(true, "t1", "", "t1")
	r.Generated, r.Executor = true, mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: "t1"}, FrameworkID: &mesos.FrameworkID{Value: "f1"}}
	r.Tasks[0].Executor, r.Tasks[0].Command = nil, &mesos.CommandInfo{Value: &command}
	m.run(r)
	m.ack(m.update("t1", mesos.TASK_STARTING))
	m.ack(m.update("t1", mesos.TASK_RUNNING))
	quiet(t, a)
	sandbox := sandboxOf(t, a, "t1")
	f.Port = int(a.info.GetPort())
	a.Kill()
	b := startAgent(t, f)
	eventually(t, "the executor is back", func() bool {
		back := false
		b.loop.do(b.ctx, func() { back = b.frameworks["f1"].executors["t1"].stream != nil })
		return back
	})
	if err := os.WriteFile(filepath.Join(sandbox, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.ack(m.update("t1", mesos.TASK_FINISHED))
}

func TestStrictRefusesDamagedCheckpoints(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	quiet(t, a)
	run := runID(a, "x1")
	a.Kill()
	for _, path := range []string{filepath.Join(a.store.Work(), "meta/slaves", m.id, "frameworks/f1/framework.info"), a.store.TaskLog(run)} {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/3] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		f.Strict = true
		b, err := New(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--strict") {
			t.Errorf("%s: %v", path, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, bad) {
			t.Errorf("%s was changed: %v", path, err)
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := startAgent(t, f)
	waitRegistered(t, b)
	if s := m.subscriptions(); len(s[len(s)-1].Tasks) != 1 {
		t.Errorf("registration: %+v", s[len(s)-1])
	}
	m.send(link.Event{Type: link.EventShutdownFramework, ShutdownFramework: &mesos.FrameworkID{Value: "f1"}})
}
