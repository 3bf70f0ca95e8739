package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/testkit"
	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/cmdexec"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

func TestMain(m *testing.M) {
	switch script := os.Getenv("AGENT_TEST_EXECUTOR"); script {
	case "":
		testkit.SideBySide(8)
		code := m.Run()
		container.NewLauncher(testCgroup).Close()
		os.Exit(code)
	case "command":
		os.Exit(cmdexec.Main())
	default:
		executorMain(script)
	}
}

const testCgroup = "mesos-agent-test"

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// fakeMaster is the master's side of the link.
type fakeMaster struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	stream *wire.Stream
	id     string
	subs   []link.Subscribe
	calls  []link.Call
	seen   int // calls that a test has looked at
}

func newMaster(t *testing.T) *fakeMaster {
	m := &fakeMaster{t: t, id: newUUIDText() + "-S0"}
	m.server = httptest.NewServer(m)
	t.Cleanup(m.server.Close)
	return m
}

func (m *fakeMaster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case link.Path + "/subscribe":
		var s link.Subscribe
		if err := json.Unmarshal(body, &s); err != nil {
			m.t.Errorf("subscribe: %v", err)
		}
		stream := wire.NewStream(wire.JSON)
		m.mu.Lock()
		m.subs = append(m.subs, s)
		m.stream = stream
		id := m.id
		m.mu.Unlock()
		m.sendTo(stream, link.Event{Type: link.EventRegistered, Registered: &link.Registered{AgentID: mesos.AgentID{Value: id}, TotalPingTimeoutSeconds: 75}})
		stream.Serve(r.Context(), w, map[string]string{link.StreamHeader: "s"})
	case link.Path + "/call":
		for in := json.NewDecoder(bytes.NewReader(body)); in.More(); {
			var c link.Call
			if err := in.Decode(&c); err != nil {
				m.t.Errorf("call: %v", err)
				break
			}
			m.mu.Lock()
			m.calls = append(m.calls, c)
			m.mu.Unlock()
		}
		w.WriteHeader(http.StatusAccepted)
	}
}

func (m *fakeMaster) sendTo(s *wire.Stream, ev link.Event) {
	b, err := json.Marshal(ev)
	if err != nil {
		m.t.Fatal(err)
	}
	s.SendRecord(b)
}

func (m *fakeMaster) send(ev link.Event) {
	m.mu.Lock()
	s := m.stream
	m.mu.Unlock()
	m.sendTo(s, ev)
}

// newID is the id of the next agent that has none.
func (m *fakeMaster) newID(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = id
}

// hangUp breaks the stream as a dying master does.
func (m *fakeMaster) hangUp() {
	m.mu.Lock()
	s := m.stream
	m.mu.Unlock()
	s.Close()
}

func (m *fakeMaster) subscriptions() []link.Subscribe {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]link.Subscribe(nil), m.subs...)
}

// next waits for the next call that matches; those before it are passed over.
func (m *fakeMaster) next(what string, match func(link.Call) bool) link.Call {
	m.t.Helper()
	var found link.Call
	eventually(m.t, what, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i := m.seen; i < len(m.calls); i++ {
			if match(m.calls[i]) {
				found, m.seen = m.calls[i], i+1
				return true
			}
		}
		return false
	})
	return found
}

// update waits for an update of a task in a state.
func (m *fakeMaster) update(task string, state mesos.TaskState) link.StatusUpdate {
	m.t.Helper()
	c := m.next(fmt.Sprintf("%s of %s", state, task), func(c link.Call) bool {
		return c.Type == link.CallUpdate && c.Update.Status.TaskID.Value == task && c.Update.Status.GetState() == state
	})
	return *c.Update
}

// ack acknowledges an update.
func (m *fakeMaster) ack(u link.StatusUpdate) {
	m.send(link.Event{Type: link.EventAcknowledge, Acknowledge: &link.Acknowledge{FrameworkID: u.FrameworkID,
		TaskID: u.Status.TaskID.Value, UUID: u.Status.UUID}})
}

func (m *fakeMaster) exited(executor string) link.ExitedExecutor {
	m.t.Helper()
	c := m.next("the end of "+executor, func(c link.Call) bool { return c.Type == link.CallExited && c.Exited.ExecutorID == executor })
	return *c.Exited
}

// without tells that no call so far matches.
func (m *fakeMaster) without(match func(link.Call) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if match(c) {
			return false
		}
	}
	return true
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// testFlags are flags for an agent that tests of its own process start.
func testFlags(t *testing.T, m *fakeMaster) Flags {
	f := DefaultFlags()
	f.IP, f.Port, f.Hostname = "127.0.0.1", 0, "host-1"
	f.Master, f.WorkDir = m.server.URL, t.TempDir()
	f.Resources = "cpus:4;mem:4096;disk:10240;ports:[31000-32000]"
	f.Attributes = "zone:a;slots:4;window:[1-5,8-9]"
	f.ExecutorShutdownGracePeriod = 2 * time.Second
	f.ExecutorReregistrationTimeout = 2 * time.Second // an agent that recovers always waits that long
	f.CgroupsRoot = testCgroup
	f.CommandExecutor = []string{os.Args[0]}
	f.Logger = slog.New(slog.NewTextHandler(&testLog{t: t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return f
}

// testLog shows the agent's log when a test fails.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	done bool
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// startAgent starts an agent and ends it, and all that it runs, with the test.
func startAgent(t *testing.T, f Flags, change ...func(*Agent)) *Agent {
	t.Helper()
	a, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(a)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = a.Shutdown(ctx)
	})
	return a
}

func waitRegistered(t *testing.T, a *Agent) {
	t.Helper()
	select {
	case <-a.Registered():
	case <-time.After(patience):
		t.Fatal("not registered")
	}
}

// registered starts an agent with a master that has admitted it. The flags are
// those of testFlags, changed by edit unless that is nil.
func registered(t *testing.T, edit func(*Flags)) (*fakeMaster, *Agent) {
	t.Helper()
	m := newMaster(t)
	f := testFlags(t, m)
	if edit != nil {
		edit(&f)
	}
	a := startAgent(t, f)
	waitRegistered(t, a)
	return m, a
}

// ---- launching

func frameworkInfo(id string, checkpoint bool) mesos.FrameworkInfo {
	return mesos.FrameworkInfo{ID: &mesos.FrameworkID{Value: id}, Name: "f", User: "root", Checkpoint: &checkpoint, Roles: []string{"*"}}
}

func scalars(cpus, mem float64) []mesos.Resource {
	kind, role := mesos.SCALAR, "*"
	alloc := &mesos.Resource_AllocationInfo{Role: &role}
	return []mesos.Resource{
		{Name: "cpus", Type: &kind, Scalar: &mesos.Value_Scalar{Value: cpus}, AllocationInfo: alloc},
		{Name: "mem", Type: &kind, Scalar: &mesos.Value_Scalar{Value: mem}, AllocationInfo: alloc},
	}
}

// runOf is a Run of tasks on an executor that follows a script of executorMain.
func runOf(checkpoint bool, executor, script string, tasks ...string) *link.Run {
	no, self, name := false, os.Args[0], "AGENT_TEST_EXECUTOR"
	r := &link.Run{Framework: frameworkInfo("f1", checkpoint), Executor: mesos.ExecutorInfo{Type: mesos.ExecutorInfo_CUSTOM,
		ExecutorID: mesos.ExecutorID{Value: executor}, FrameworkID: &mesos.FrameworkID{Value: "f1"}, Resources: scalars(0.1, 32),
		Command: &mesos.CommandInfo{Shell: &no, Value: &self, Arguments: []string{"test-executor"},
			Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: name, Value: &script}}}}}}
	for _, id := range tasks {
		r.Tasks = append(r.Tasks, mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}, Resources: scalars(0.1, 32),
			Executor: &r.Executor, Data: []byte("task data")})
	}
	return r
}

func (m *fakeMaster) run(r *link.Run) { m.send(link.Event{Type: link.EventRun, Run: r}) }

func (m *fakeMaster) kill(task string) {
	m.send(link.Event{Type: link.EventKill, Kill: &link.Kill{FrameworkID: mesos.FrameworkID{Value: "f1"}, TaskID: task}})
}

// running starts a task and acknowledges all up to TASK_RUNNING.
func (m *fakeMaster) running(r *link.Run) {
	m.t.Helper()
	m.run(r)
	for _, task := range r.Tasks {
		m.ack(m.update(task.TaskID.Value, mesos.TASK_RUNNING))
	}
}

func sandboxOf(t *testing.T, a *Agent, executor string) string {
	t.Helper()
	var links []string
	eventually(t, "the sandbox of "+executor, func() bool {
		links, _ = filepath.Glob(filepath.Join(a.store.Work(), "slaves", "*", "frameworks", "f1", "executors", executor, "runs", "latest"))
		return len(links) == 1
	})
	dir, err := filepath.EvalSymlinks(links[0])
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// lines waits for a file with some text and returns it.
func fileWith(t *testing.T, path, text string) string {
	t.Helper()
	var b []byte
	eventually(t, fmt.Sprintf("%q in %s", text, path), func() bool {
		b, _ = os.ReadFile(path)
		return bytes.Contains(b, []byte(text))
	})
	return string(b)
}
