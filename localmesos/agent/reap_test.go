package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/link"
)

// reapRig is an agent whose clock stands still, with one executor that has just
// ended by itself and left a daemon behind.
func reapRig(t *testing.T) (*fakeMaster, *Agent, *manualClock) {
	t.Helper()
	m := newMaster(t)
	clock := newManualClock()
	a := startAgent(t, testFlags(t, m), func(a *Agent) { a.clock = clock })
	clock.endWith(t, a)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	quiet(t, a)
	id := processes(t, a)["x1"]
	killProcess(t, id)
	eventually(t, "the process is gone", func() bool { return !id.Alive() })
	clock.waitForTimer(t, reapInterval)
	return m, a, clock
}

func isExit(c link.Call) bool { return c.Type == link.CallExited }

func TestAnEndIsToldNoSoonerThanByAPoll(t *testing.T) {
	t.Parallel()
	m, _, clock := reapRig(t)
	clock.advance(reapInterval - time.Millisecond)
	ping := uint64(7)
	m.send(link.Event{Type: link.EventPing, Ping: &ping})
	m.next("the answer to a ping", func(c link.Call) bool { return c.Type == link.CallPong })
	if !m.without(isExit) {
		t.Error("the end was told at once")
	}
	clock.advance(time.Millisecond)
	if e := m.exited("x1"); e.Status != 137<<8 {
		t.Errorf("status %d", e.Status)
	}
	m.update("t1", mesos.TASK_FAILED)
}

func TestTeardownRightAfterAnEndHidesIt(t *testing.T) {
	t.Parallel()
	m, a, clock := reapRig(t)
	m.send(link.Event{Type: link.EventShutdownFramework, ShutdownFramework: &mesos.FrameworkID{Value: "f1"}})
	eventually(t, "the teardown is taken", func() bool {
		ending := false
		a.loop.do(a.ctx, func() { ending = a.frameworks["f1"] == nil || a.frameworks["f1"].ending })
		return ending
	})
	clock.advance(reapInterval)
	eventually(t, "the framework is gone", func() bool {
		n := -1
		a.loop.do(a.ctx, func() { n = len(a.frameworks) })
		return n == 0
	})
	if !m.without(isExit) {
		t.Error("the master was told")
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	clock := newManualClock()
	a := startAgent(t, testFlags(t, m), func(a *Agent) { a.clock = clock })
	clock.endWith(t, a)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	notes := filepath.Join(sandboxOf(t, a, "x1"), "notes")
	for i := range 3 {
		clock.waitForTimer(t, heartbeatInterval)
		if b := fileWith(t, notes, "LAUNCH"); strings.Count(b, "HEARTBEAT") != i {
			t.Errorf("before the interval is over: %q", b)
		}
		clock.advance(heartbeatInterval)
		eventually(t, "a heartbeat", func() bool {
			b, err := os.ReadFile(notes)
			return err == nil && strings.Count(string(b), "HEARTBEAT") == i+1
		})
	}
	status, _ := call(t, a, `{"type":"HEARTBEAT","framework_id":{"value":"dummy"},"executor_id":{"value":"dummy"}}`, "")
	if status != http.StatusAccepted {
		t.Errorf("a HEARTBEAT of an executor: %d", status)
	}
}

// What can never be right is an ERROR event; the executor that is there goes on.
func TestInvalidUnacknowledgedUpdateIsAnErrorEvent(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "ok", "t1"))
	for want, status := range map[string]string{
		"Not a valid UUID":           `"uuid":"YQ==","source":"SOURCE_EXECUTOR","state":"TASK_RUNNING"`,
		"'uuid' to be present":       `"source":"SOURCE_EXECUTOR","state":"TASK_RUNNING"`,
		"invalid source":             `"uuid":"AAAAAAAAAAAAAAAAAAAAAA==","source":"SOURCE_AGENT","state":"TASK_RUNNING"`,
		"which is not allowed":       `"uuid":"AAAAAAAAAAAAAAAAAAAAAA==","source":"SOURCE_EXECUTOR","state":"TASK_STAGING"`,
		"does not match ExecutorID ": `"uuid":"AAAAAAAAAAAAAAAAAAAAAA==","source":"SOURCE_EXECUTOR","state":"TASK_RUNNING","executor_id":{"value":"x2"}`,
	} {
		code, body := call(t, a, `{"type":"SUBSCRIBE","framework_id":{"value":"f1"},"executor_id":{"value":"x1"},"subscribe":{"unacknowledged_tasks":[],
			"unacknowledged_updates":[{"status":{"task_id":{"value":"t1"},`+status+`}}]}}`, "")
		if code != http.StatusOK || !strings.Contains(body, `"ERROR"`) || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", want, code, body)
		}
	}
	m.kill("t1")
	m.ack(m.update("t1", mesos.TASK_KILLED))
}
