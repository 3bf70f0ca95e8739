package master

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/link"
)

func TestFailover(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	const keep = multiRole + `,"failover_timeout":60`
	f := subscribe(t, m, "", keep)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	held := f.offer(t)
	g := subscribe(t, m, f.id, keep)
	if e := f.next(t, "ERROR", ofType(scheduler.Event_ERROR)); e.Error.Message != "Framework failed over" {
		t.Error(e.Error.Message)
	}
	f.waitEnd(t)
	if g.id != f.id {
		t.Errorf("id %s, want %s", g.id, f.id)
	}
	if status, _ := f.call(t, "REVIVE", ""); status != 400 {
		t.Errorf("the old stream id: %d", status)
	}
	a.want(t, link.EventUpdateFramework)
	g.launch(t, held, taskJSON("stale", a.id, executorJSON("x")))
	if got := describe(g.update(t, "stale")); !strings.HasPrefix(got, "TASK_LOST SOURCE_MASTER REASON_INVALID_OFFERS") {
		t.Error(got)
	}
	g.offer(t)
	g.none(t, "RESCIND", 50*time.Millisecond, ofType(scheduler.Event_RESCIND))
	g.must(t, "KILL", `"kill":{"task_id":{"value":"t"}}`)
	a.want(t, link.EventKill)
	// Name and roles change, the user does not.
	h := subscribe(t, m, f.id, `"capabilities":[{"type":"MULTI_ROLE"}],"roles":["other"],"failover_timeout":60,"checkpoint":true`)
	if o := h.offer(t); o.AllocationInfo.GetRole() != "other" {
		t.Errorf("%v", o.AllocationInfo)
	}
	var info mesos.FrameworkInfo
	m.loop.do(func() { info = m.frameworks[f.id].info })
	if info.GetCheckpoint() || info.Roles[0] != "other" {
		t.Errorf("%v", info)
	}
}

func TestFrameworkRemoval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir }
	m := startMaster(t, durable)
	a := startAgent(t, m, nil)
	gone := map[string]string{}
	for name, fields := range map[string]string{"no timeout": multiRole, "timeout": multiRole + `,"failover_timeout":0.1`, "negative": multiRole + `,"failover_timeout":-1`} {
		f := subscribe(t, m, "", fields)
		f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
		f.cancel()
		if id := a.want(t, link.EventShutdownFramework).ShutdownFramework.Value; id != f.id {
			t.Errorf("%s: %s", name, id)
		}
		gone[name] = f.id
	}
	f := subscribe(t, m, "", multiRole+`,"failover_timeout":60`)
	f.must(t, "TEARDOWN", "")
	f.waitEnd(t)
	if status, body := f.call(t, "REVIVE", ""); status != 400 || body != "Framework cannot be found" {
		t.Errorf("%d %s", status, body)
	}
	gone["torn down"] = f.id
	removed := func(m *Master) {
		t.Helper()
		for name, id := range gone {
			c := trySubscribe(t, m, id, multiRole)
			if e := c.next(t, "ERROR", ofType(scheduler.Event_ERROR)); e.Error.Message != "Framework has been removed" {
				t.Errorf("%s: %s", name, e.Error.Message)
			}
			c.waitEnd(t)
		}
	}
	removed(m)
	if got := subscribe(t, m, "made-up", multiRole).id; got != "made-up" {
		t.Errorf("a made-up id became %s", got)
	}
	m.Kill()
	removed(startMaster(t, durable))
}

func TestAgentDisconnects(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	plain := subscribe(t, m, "", multiRole)
	plain.launchOnly(t, taskJSON("p", a.id, executorJSON("x")))
	kept := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	kept.launchOnly(t, taskJSON("k", a.id, executorJSON("x")))
	run := a.next(t, "RUN of k", func(e link.Event) bool { return e.Run != nil && e.Run.Tasks[0].TaskID.Value == "k" }).Run
	a.report(t, kept.id, "x", "k", mesos.TASK_RUNNING)
	kept.update(t, "k")
	holder := subscribe(t, m, "", multiRole)
	holder.offer(t)
	a.vanish()
	holder.next(t, "RESCIND", ofType(scheduler.Event_RESCIND))
	if got := describe(plain.update(t, "p")); got != "TASK_LOST SOURCE_MASTER +executor Agent 127.0.0.1 disconnected REASON_AGENT_DISCONNECTED" {
		t.Error(got)
	}
	kept.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
	if got := kept.update(t, "k"); got.GetState() != mesos.TASK_RUNNING {
		t.Error(describe(got))
	}
	plain.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"p"}}]}`)
	if got := describe(plain.update(t, "p")); got != "TASK_LOST SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is unknown" {
		t.Error(got)
	}
	// It comes back with the executor, and without the task.
	b := startAgent(t, m, &link.Subscribe{
		AgentInfo:  mesos.AgentInfo{ID: &mesos.AgentID{Value: a.id}},
		Frameworks: []mesos.FrameworkInfo{run.Framework},
		Executors:  []link.Executor{{FrameworkID: mesos.FrameworkID{Value: kept.id}, Info: run.Executor}},
	})
	if got := b.want(t, link.EventReconcile).Reconcile; len(got) != 1 || got[0].TaskID != "k" {
		t.Errorf("%+v", got)
	}
	if b.id != a.id {
		t.Errorf("id %s, want %s", b.id, a.id)
	}
	if status := a.call(t, link.Call{Type: link.CallPong, PongFor: new(uint64)}); status != 409 {
		t.Errorf("the old stream's call: %d", status)
	}
	rest := resource.Of(holder.offer(t).Resources).Unallocate().String()
	if rest != "ports:[31000-32000]; cpus:3.8; mem:4032; disk:10240" {
		t.Errorf("offered after it came back: %s", rest)
	}
}

func TestAgentUnreachable(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.AgentPingTimeout, f.MaxAgentPingTimeouts = 100*time.Millisecond, 10 })
	a := startAgent(t, m, nil)
	// Pings that are answered keep it.
	stop := a.answerPings(t)
	f := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	f.launchOnly(t, taskJSON("t", a.id, executorJSON("x")))
	aware := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"},{"type":"PARTITION_AWARE"}],"roles":["*"],"checkpoint":true`)
	aware.launchOnly(t, taskJSON("u", a.id, executorJSON("x")))
	runs := map[string]*link.Run{}
	for range 2 {
		r := a.want(t, link.EventRun).Run
		runs[r.Framework.ID.Value] = r
	}
	f.none(t, "an update", 1200*time.Millisecond, ofType(scheduler.Event_UPDATE))
	stop()
	a.vanish()
	if got := describe(f.update(t, "t")); got != "TASK_LOST SOURCE_MASTER +executor +unreachable REASON_AGENT_REMOVED health check timed out" {
		t.Error(got)
	}
	if got := describe(aware.update(t, "u")); got != "TASK_UNREACHABLE SOURCE_MASTER +executor +unreachable REASON_AGENT_REMOVED health check timed out" {
		t.Error(got)
	}
	for _, c := range []*client{f, aware} {
		if e := c.next(t, "FAILURE", ofType(scheduler.Event_FAILURE)).Failure; e.ExecutorID != nil || e.AgentID.GetValue() != a.id {
			t.Errorf("%v", e)
		}
	}
	f.must(t, "KILL", `"kill":{"task_id":{"value":"t"}}`)
	if got := describe(f.update(t, "t")); got != "TASK_LOST SOURCE_MASTER +unreachable REASON_RECONCILIATION Reconciliation: Task is unreachable" {
		t.Error(got)
	}
	f.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
	f.none(t, "an update", 50*time.Millisecond, ofType(scheduler.Event_UPDATE))

	sub := &link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: a.id}}}
	for id, r := range runs {
		sub.Frameworks = append(sub.Frameworks, r.Framework)
		sub.Executors = append(sub.Executors, link.Executor{FrameworkID: mesos.FrameworkID{Value: id}, Info: r.Executor})
		sub.Tasks = append(sub.Tasks, link.Task{FrameworkID: mesos.FrameworkID{Value: id}, ExecutorID: "x", Info: r.Tasks[0], State: mesos.TASK_RUNNING})
	}
	startAgent(t, m, sub)
	for task, c := range map[string]*client{"t": f, "u": aware} {
		if got := describe(c.update(t, task)); got != "TASK_RUNNING SOURCE_MASTER +executor REASON_AGENT_REREGISTERED Unreachable agent re-reregistered" {
			t.Error(got)
		}
	}
}

func TestMasterRestart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		registry string
		silent   bool
	}{{RegistryLog, true}, {RegistryInMemory, false}} {
		t.Run(c.registry, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			start := func() *Master { return startMaster(t, func(f *Flags) { f.Registry, f.WorkDir = c.registry, dir }) }
			m := start()
			a := startAgent(t, m, nil)
			const fields = multiRole + `,"checkpoint":true,"failover_timeout":60`
			f := subscribe(t, m, "", fields)
			f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
			run := a.want(t, link.EventRun).Run
			m.Kill()
			m = start()
			g := subscribe(t, m, f.id, fields)
			g.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t"}},{"task_id":{"value":"t"},"agent_id":{"value":"`+a.id+`"}}]}`)
			if c.silent {
				g.none(t, "an answer", 50*time.Millisecond, ofType(scheduler.Event_UPDATE))
			} else {
				for range 2 {
					if got := describe(g.update(t, "t")); got != "TASK_LOST SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is unknown" {
						t.Error(got)
					}
				}
			}
			startAgent(t, m, &link.Subscribe{
				AgentInfo:  mesos.AgentInfo{ID: &mesos.AgentID{Value: a.id}},
				Frameworks: []mesos.FrameworkInfo{run.Framework},
				Executors:  []link.Executor{{FrameworkID: mesos.FrameworkID{Value: f.id}, Info: run.Executor}},
				Tasks:      []link.Task{{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x", Info: run.Tasks[0], State: mesos.TASK_RUNNING}},
			})
			if !c.silent {
				if got := describe(g.update(t, "t")); got != "TASK_RUNNING SOURCE_MASTER +executor REASON_AGENT_REREGISTERED Unknown agent reregistered" {
					t.Error(got)
				}
			}
			if rest := resource.Of(g.offer(t).Resources).Unallocate().String(); rest != "ports:[31000-32000]; cpus:3.8; mem:4032; disk:10240" {
				t.Errorf("offered: %s", rest)
			}
			g.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
			if got := describe(g.update(t, "t")); got != "TASK_RUNNING SOURCE_MASTER +executor REASON_RECONCILIATION Reconciliation: Latest task state" {
				t.Error(got)
			}
		})
	}
}

// TestEndOfTheMaster: that a master ends, in whatever way, is no reason to
// remove frameworks, not even those without a failover timeout.
func TestEndOfTheMaster(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Master){"Close": func(m *Master) { m.Close() }, "Kill": (*Master).Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			durable := func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir }
			m := startMaster(t, durable)
			a := startAgent(t, m, nil)
			f := subscribe(t, m, "", multiRole)
			f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
			a.want(t, link.EventRun)
			end(m)
			f.waitEnd(t)
			a.waitEnd(t)
			a.mu.Lock()
			for _, e := range a.events {
				if e.Type == link.EventShutdownFramework {
					t.Error("the agent was told to end the framework")
				}
			}
			a.mu.Unlock()
			if got := subscribe(t, startMaster(t, durable), f.id, multiRole).id; got != f.id {
				t.Errorf("id %s, want %s", got, f.id)
			}
		})
	}
}

// TestRecoveredFramework: an agent tells a new master of a framework, which then comes.
func TestRecoveredFramework(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	info := mesos.FrameworkInfo{User: "root", Name: "n", ID: &mesos.FrameworkID{Value: "old"}}
	task := mesos.TaskInfo{TaskID: mesos.TaskID{Value: "t"}, AgentID: mesos.AgentID{Value: "agent"}}
	startAgent(t, m, &link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: "agent"}}, Frameworks: []mesos.FrameworkInfo{info},
		Tasks: []link.Task{{FrameworkID: *info.ID, Info: task, State: mesos.TASK_RUNNING}}})
	if status, _ := post(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": "application/json"}, `{"type":"REVIVE","framework_id":{"value":"old"}}`); status != 403 {
		t.Errorf("%d", status)
	}
	f := subscribe(t, m, "old", multiRole)
	f.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
	f.update(t, "t")
}

func TestNewAgentAtTheSameAddress(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	a.vanish()
	waitFor(t, "disconnected", func() bool {
		gone := false
		m.loop.do(func() { gone = m.agents[a.id].state == agentDisconnected })
		return gone
	})
	b := startAgent(t, m, nil)
	if a.id == b.id {
		t.Error("a new agent got an old id")
	}
	if got := describe(f.update(t, "t")); got != "TASK_LOST SOURCE_MASTER +executor Agent 127.0.0.1 removed: a new agent registered at the same address REASON_AGENT_REMOVED" {
		t.Error(got)
	}
}

// TestNewAgentAfterRestart: an agent that lost its work directory takes the
// place of the one that the registry knows at its address.
func TestNewAgentAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir }
	m := startMaster(t, durable)
	a := startAgent(t, m, nil)
	m.Kill()
	m = startMaster(t, durable)
	if b := startAgent(t, m, nil); a.id == b.id {
		t.Error("a new agent got an old id")
	}
	m.loop.do(func() {
		if len(m.recovered) != 0 {
			t.Errorf("still waiting for %v", m.recovered)
		}
	})
}

func TestRegistryFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags := Flags{WorkDir: dir}
	m := startMaster(t, func(f *Flags) { *f = flags })
	if _, err := New(flags); err == nil || !strings.Contains(err.Error(), "in use by another master") {
		t.Errorf("a second master in one directory: %v", err)
	}
	m.Close()
	if err := os.WriteFile(filepath.Join(dir, "registry.json"), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(flags); err == nil || !strings.Contains(err.Error(), "of a later program") {
		t.Errorf("a later registry: %v", err)
	}
	for _, bad := range []Flags{{}, {Registry: "x"}, {Registry: RegistryInMemory, IP: "x"}, {Registry: RegistryInMemory, Port: -1}, {WorkDir: "/dev/null/x"},
		{Registry: RegistryInMemory, AgentPingTimeout: -1}, {Registry: RegistryInMemory, MaxAgentPingTimeouts: -1}} {
		if m, err := New(bad); err == nil {
			m.Close()
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestTransitions walks every cell of the tables: what is in them leads to the
// state that the words of the states promise, what is not is ignored.
func TestTransitions(t *testing.T) {
	t.Parallel()
	for state := frameworkRecovered; state <= frameworkRemoved; state++ {
		for event := frameworkSubscribes; event <= frameworkEnds; event++ {
			f := &framework{state: state}
			ok := f.step(event)
			want, known := state, true
			switch {
			case state == frameworkRemoved:
				known = false
			case event == frameworkSubscribes:
				want = frameworkConnected
			case event == frameworkEnds:
				want = frameworkRemoved
			case state == frameworkConnected:
				want = frameworkDisconnected
			default:
				known = false
			}
			if ok != known || f.state != want {
				t.Errorf("framework %d, event %d: %v, %d", state, event, ok, f.state)
			}
		}
	}
	for state := agentConnected; state <= agentRemoved; state++ {
		for event := agentSubscribes; event <= agentLeaves; event++ {
			a := &agent{state: state}
			ok := a.step(event)
			want, known := state, true
			switch {
			case state == agentRemoved:
				known = false
			case event == agentSubscribes:
				want = agentConnected
			case event == agentLeaves:
				want = agentRemoved
			case event == agentStreamEnds && state == agentConnected:
				want = agentDisconnected
			case event == agentPingsTimeOut && state != agentUnreachable:
				want = agentUnreachable
			default:
				known = false
			}
			if ok != known || a.state != want {
				t.Errorf("agent %d, event %d: %v, %d", state, event, ok, a.state)
			}
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	a.report(t, f.id, "x", "t", mesos.TASK_RUNNING)
	f.update(t, "t")
	for path, want := range map[string]string{
		"/state": `"cpus":0.1`, "/master/state": f.id, "/slaves": `"active":true`, "/frameworks": `"connected":true`, "/tasks": `"state":"TASK_RUNNING"`,
		"/tasks?task_id=no": `{"tasks":[]}`, "/slaves?slave_id=no": `"slaves":[]`, "/version": Version, "/flags": `"registry":"in_memory"`, "/health": "", "/tasks?limit=0": `"tasks":[]`,
		"/state-summary": `"TASK_RUNNING":1`, "/roles": `"name":"*"`, "/metrics/snapshot": `"master/tasks_running":1.0`, "/system/stats.json": `"cpus_total"`,
		"/quota": "{}", "/weights": "[]", "/maintenance/status": "{}",
	} {
		if status, body := request(t, "GET", m.URL()+path, nil, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := request(t, "GET", m.URL()+"/state.json", nil, ""); status != 404 || body != "404 Not Found." {
		t.Errorf("%d %s", status, body)
	}
	json := map[string]string{"Content-Type": "application/json", "Accept": "application/json"}
	for _, call := range []string{"GET_HEALTH", "GET_VERSION", "GET_FLAGS", "GET_MASTER", "GET_AGENTS", "GET_FRAMEWORKS", "GET_EXECUTORS", "GET_TASKS", "GET_STATE", "GET_ROLES", "GET_LOGGING_LEVEL"} {
		if status, body := post(t, m.URL()+"/api/v1", json, `{"type":"`+call+`"}`); status != 200 || !strings.Contains(body, `"type":"`+call+`"`) {
			t.Errorf("%s: %d %s", call, status, body)
		}
	}
	if status, _ := post(t, m.URL()+"/teardown", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "frameworkId="+f.id); status != 200 {
		t.Errorf("teardown: %d", status)
	}
	f.waitEnd(t)
}

// TestHostileAgentMessages: nothing an agent sends may end the master.
func TestHostileAgentMessages(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	for _, kind := range []link.CallType{link.CallUpdate, link.CallExited, link.CallMessage, link.CallPong, "NO_SUCH"} {
		if status := a.call(t, link.Call{Type: kind}); status != 202 {
			t.Errorf("%s: %d", kind, status)
		}
	}
	f := subscribe(t, m, "", multiRole)
	// An update without a state cannot be encoded as protobuf; it is dropped or passed on, no more.
	a.call(t, link.Call{Type: link.CallUpdate, Update: &link.StatusUpdate{FrameworkID: mesos.FrameworkID{Value: f.id}}})
	f.must(t, "REVIVE", "")
	if status, _ := post(t, m.URL()+link.Path+"/call", map[string]string{"Content-Type": "application/json"}, "{"); status != 400 {
		t.Errorf("%d", status)
	}
	if status, _ := post(t, m.URL()+link.Path+"/subscribe", map[string]string{"Content-Type": "text/plain"}, "{}"); status != 415 {
		t.Errorf("an agent of a web page: %d", status)
	}
	a.call(t, link.Call{Type: link.CallUnregister, Unregist: &mesos.AgentID{Value: a.id}})
	a.waitEnd(t)
}
