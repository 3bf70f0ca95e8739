package master

import (
	"net/http"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

func TestOffersByCapability(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	startAgent(t, m, nil)
	for _, c := range []struct {
		name, fields, role string
		allocation, full   bool
	}{
		{"one role", `"role":"*"`, "*", false, false},
		{"multi role", multiRole, "*", true, false},
		{"refined", `"capabilities":[{"type":"MULTI_ROLE"},{"type":"RESERVATION_REFINEMENT"}],"roles":["web"]`, "web", true, true},
	} {
		f := subscribe(t, m, "", c.fields)
		o := f.offer(t)
		if (o.AllocationInfo != nil) != c.allocation || o.AllocationInfo.GetRole() != map[bool]string{true: c.role}[c.allocation] {
			t.Errorf("%s: allocation_info %v", c.name, o.AllocationInfo)
		}
		if o.URL.GetPath() != "/slave(1)" || o.URL.Address.Port != 5051 {
			t.Errorf("%s: url %v", c.name, o.URL)
		}
		if o.Resources[0].Name != "ports" || len(o.Resources) != 4 {
			t.Errorf("%s: resources %v", c.name, o.Resources)
		}
		for _, r := range o.Resources {
			if (r.Role == nil) != c.full || (r.AllocationInfo != nil) != c.allocation {
				t.Errorf("%s: resource %v", c.name, r)
			}
		}
		f.must(t, "TEARDOWN", "")
		f.waitEnd(t)
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.HeartbeatInterval = 30 * time.Millisecond })
	f := subscribe(t, m, "", multiRole)
	for range 3 {
		f.next(t, "HEARTBEAT", ofType(scheduler.Event_HEARTBEAT))
	}
}

func TestProtobufFramework(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	startAgent(t, m, nil)
	call := &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &mesos.FrameworkInfo{User: "root", Name: "p"}}}
	b, err := wire.Marshal(wire.Protobuf, call)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": string(wire.Protobuf), "Accept": string(wire.Protobuf)}, b, func(b []byte) scheduler.Event {
		var e scheduler.Event
		if _, err := wire.Unmarshal(wire.Protobuf, b, &e); err != nil {
			t.Error(err)
		}
		return e
	})
	if got := r.header.Get("Content-Type"); got != string(wire.Protobuf) {
		t.Errorf("Content-Type %q", got)
	}
	r.next(t, "OFFERS", ofType(scheduler.Event_OFFERS))
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	url := m.URL() + "/api/v1/scheduler"
	good := map[string]string{"Content-Type": "application/json", "Accept": "application/json"}
	const framework = `{"type":"SUBSCRIBE","subscribe":{"framework_info":{"user":"u","name":"n"}}}`
	for _, c := range []struct {
		name, method, body string
		header             map[string]string
		status             int
		want               string
	}{
		{"GET", "GET", "", good, 405, "405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'."},
		{"no type", "POST", framework, nil, 400, "Expecting 'Content-Type' to be present"},
		{"text", "POST", framework, map[string]string{"Content-Type": "text/plain"}, 415, "Expecting 'Content-Type' of application/json or application/x-protobuf"},
		{"accept", "POST", framework, map[string]string{"Content-Type": "application/json", "Accept": "text/html"}, 406, "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'"},
		{"empty", "POST", "", good, 400, "Failed to parse body into JSON: syntax error at line 1 near: "},
		{"no call", "POST", "{}", good, 400, "Failed to validate scheduler::Call: Expecting 'type' to be present"},
		{"UNKNOWN", "POST", `{"type":"UNKNOWN","framework_id":{"value":"x"}}`, good, 400, "Framework cannot be found"},
		{"no user", "POST", `{"type":"SUBSCRIBE","subscribe":{"framework_info":{"name":"n"}}}`, good, 400, "Failed to convert JSON into Call protobuf: Missing required fields: subscribe.framework_info.user"},
		{"stream id", "POST", framework, map[string]string{"Content-Type": "application/json", "Mesos-Stream-Id": "x"}, 400, "Subscribe calls should not include the 'Mesos-Stream-Id' header"},
		{"ids differ", "POST", `{"type":"SUBSCRIBE","framework_id":{"value":"a"},"subscribe":{"framework_info":{"user":"u","name":"n"}}}`, good, 400, "Failed to validate scheduler::Call: 'framework_id' differs from 'subscribe.framework_info.id'"},
		{"no id", "POST", `{"type":"REVIVE"}`, good, 400, "Failed to validate scheduler::Call: Expecting 'framework_id' to be present"},
		{"unknown id", "POST", `{"type":"REVIVE","framework_id":{"value":"x"}}`, good, 400, "Framework cannot be found"},
		{"no kill", "POST", `{"type":"KILL","framework_id":{"value":"x"}}`, good, 400, "Failed to validate scheduler::Call: Expecting 'kill' to be present"},
		{"uuid", "POST", `{"type":"ACKNOWLEDGE","framework_id":{"value":"x"},"acknowledge":{"agent_id":{"value":"a"},"task_id":{"value":"t"},"uuid":"AAAA"}}`, good, 400, "Failed to validate scheduler::Call: Not a valid UUID"},
	} {
		status, body := request(t, c.method, url, c.header, c.body)
		if status != c.status || body != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.name, status, body, c.status, c.want)
		}
	}
	for _, path := range []string{"/api/v1/scheduler/", "/master/api/v1/scheduler"} {
		if status, body := post(t, m.URL()+path, good, `{"type":"REVIVE","framework_id":{"value":"x"}}`); status != 400 || body != "Framework cannot be found" {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if status, body := post(t, m.URL()+"/api/v1/no-such-endpoint", good, `{}`); status != 400 || body != "Failed to validate master::Call: Expecting 'type' to be present" {
		t.Errorf("unknown path: %d %q", status, body)
	}
}

func TestStreamChecks(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	f := subscribe(t, m, "", multiRole+`,"failover_timeout":60`)
	url, body := m.URL()+"/api/v1/scheduler", `{"type":"REVIVE","framework_id":{"value":"`+f.id+`"}}`
	if status, text := post(t, url, map[string]string{"Content-Type": "application/json"}, body); status != 400 || !strings.HasPrefix(text, "All non-subscribe calls should include") {
		t.Errorf("%d %q", status, text)
	}
	if status, text := post(t, url, map[string]string{"Content-Type": "application/json", "Mesos-Stream-Id": "x"}, body); status != 400 || !strings.HasPrefix(text, "The stream ID 'x' included") {
		t.Errorf("%d %q", status, text)
	}
	f.must(t, "REVIVE", `"revive":{"roles":["no-such-role"]}`)
	f.must(t, "SUPPRESS", `"suppress":{"roles":["no-such-role"]}`)
	f.must(t, "REQUEST", `"request":{"requests":[]}`)
	if status, _ := f.call(t, "UNKNOWN", ""); status != 501 {
		t.Errorf("UNKNOWN: %d", status)
	}
	f.cancel()
	waitFor(t, "403", func() bool { status, _ := f.call(t, "REVIVE", ""); return status == http.StatusForbidden })
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, patience)
}

func TestBadFrameworkInfo(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	const capable = `"capabilities":[{"type":"MULTI_ROLE"}],`
	for fields, want := range map[string]string{
		capable + `"role":"a","roles":["b"]`: "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable",
		`"roles":["b"]`:                      "'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable",
		capable + `"roles":["a b"]`:          "'FrameworkInfo.roles' contains invalid role: Role component 'a b' is invalid because it contains backspace or whitespace",
		capable + `"roles":["a","a"]`:        "'FrameworkInfo.roles' contains duplicate items: { a }",
		capable + `"roles":["/a"]`:           "'FrameworkInfo.roles' contains invalid role: Role '/a' cannot start with a slash",
		`"role":"-a"`:                        "'FrameworkInfo.role' is not a valid role: Role component '-a' is invalid because it begins with a dash",
	} {
		c := trySubscribe(t, m, "", fields)
		e := c.next(t, "ERROR", ofType(scheduler.Event_ERROR))
		if !strings.HasPrefix(e.Error.Message, want[:min(len(want), len(e.Error.Message))]) {
			t.Errorf("%s: %q, want %q", fields, e.Error.Message, want)
		}
		c.waitEnd(t)
	}
}

func TestFiltersReviveSuppress(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	o := f.offer(t)
	decline := func(o mesos.Offer, filters string) {
		f.must(t, "DECLINE", `"decline":{"offer_ids":[{"value":"`+o.ID.Value+`"}]`+filters+`}`)
	}
	decline(o, `,"filters":{"refuse_seconds":0}`)
	o = f.offer(t)
	began := time.Now()
	decline(o, `,"filters":{"refuse_seconds":0.3}`)
	o = f.offer(t)
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("offered again after %v", d)
	}
	decline(o, "")
	decline(o, "")
	f.none(t, "an offer that was declined for 5 s", 150*time.Millisecond, ofType(scheduler.Event_OFFERS))
	f.must(t, "REVIVE", "")
	o = f.offer(t)
	f.must(t, "REVIVE", "")
	f.must(t, "SUPPRESS", "")
	f.none(t, "a second offer or RESCIND", 100*time.Millisecond, ofType(scheduler.Event_OFFERS, scheduler.Event_RESCIND))
	decline(o, `,"filters":{"refuse_seconds":0}`)
	f.none(t, "an offer while suppressed", 150*time.Millisecond, ofType(scheduler.Event_OFFERS))
	f.must(t, "REVIVE", `"revive":{"roles":["*"]}`)
	f.offer(t)
}

func TestTwoFrameworksShare(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	startAgent(t, m, nil)
	a := subscribe(t, m, "", multiRole)
	o := a.offer(t)
	b := subscribe(t, m, "", multiRole)
	// What one leaves goes to the other, which has nothing.
	a.launch(t, o, taskJSON("t", o.AgentID.Value, executorJSON("x")))
	rest := resource.Of(b.offer(t).Resources).Unallocate()
	if want := "ports:[31000-32000]; cpus:3.8; mem:4032; disk:10240"; rest.String() != want {
		t.Errorf("rest %s, want %s", rest, want)
	}
}

func TestLaunch(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	o := f.offer(t)
	f.launch(t, o, taskJSON("t1", a.id, executorJSON("x")), taskJSON("t2", a.id, executorJSON("x")))
	for _, id := range []string{"t1", "t2"} {
		run := a.want(t, link.EventRun).Run
		if run.Group || run.Generated || len(run.Tasks) != 1 || run.Tasks[0].TaskID.Value != id {
			t.Fatalf("%+v", run)
		}
		x := run.Tasks[0].Executor
		if x == nil || x.FrameworkID.GetValue() != f.id || x.Resources[0].AllocationInfo.GetRole() != "*" || run.Tasks[0].Resources[0].AllocationInfo.GetRole() != "*" {
			t.Errorf("not completed: %v", run.Tasks[0])
		}
		if !run.Executor.Equal(*x) {
			t.Errorf("executors differ: %v %v", run.Executor, x)
		}
	}
	if rest := resource.Of(f.offer(t).Resources).Unallocate().String(); rest != "ports:[31000-32000]; cpus:3.7; mem:4000; disk:10240" {
		t.Errorf("rest: %s", rest)
	}
	a.report(t, f.id, "x", "t1", mesos.TASK_RUNNING)
	if got := f.update(t, "t1"); describe(got) != "TASK_RUNNING SOURCE_EXECUTOR +executor +uuid" {
		t.Error(describe(got))
	}
	uuid := a.report(t, f.id, "x", "t1", mesos.TASK_FINISHED)
	f.update(t, "t1")
	if rest := resource.Of(f.offer(t).Resources).Unallocate().String(); rest != "cpus:0.1; mem:32" {
		t.Errorf("what the task gave back: %s", rest)
	}
	f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t1"}}]}`)
	if got := describe(f.update(t, "t1")); got != "TASK_FINISHED SOURCE_MASTER +executor REASON_RECONCILIATION Reconciliation: Latest task state" {
		t.Error(got)
	}
	f.must(t, "ACKNOWLEDGE", ack(a.id, "t1", uuid))
	if got := a.want(t, link.EventAcknowledge).Acknowledge; got.TaskID != "t1" || string(got.UUID) != string(uuid) {
		t.Errorf("%+v", got)
	}
	f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t1"},"agent_id":{"value":"`+a.id+`"}}]}`)
	if got := describe(f.update(t, "t1")); got != "TASK_LOST SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is unknown to the agent" {
		t.Error(got)
	}
	a.call(t, link.Call{Type: link.CallExited, Exited: &link.ExitedExecutor{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x", Status: 768}})
	failure := f.next(t, "FAILURE", ofType(scheduler.Event_FAILURE)).Failure
	if failure.ExecutorID.GetValue() != "x" || failure.GetStatus() != 768 || failure.AgentID.GetValue() != a.id {
		t.Errorf("%v", failure)
	}
}

func ack(agent, task string, uuid []byte) string {
	b, _ := wire.MarshalJSON(&scheduler.Call_Acknowledge{AgentID: mesos.AgentID{Value: agent}, TaskID: mesos.TaskID{Value: task}, UUID: uuid})
	return `"acknowledge":` + string(b)
}

func TestCommandTask(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, `,"command":{"value":"sleep 1"}`))
	run := a.want(t, link.EventRun).Run
	if !run.Generated || run.Executor.ExecutorID.Value != "t" || run.Tasks[0].Executor != nil {
		t.Errorf("%+v", run)
	}
	if rest := resource.Of(f.offer(t).Resources).Unallocate().String(); rest != "ports:[31000-32000]; cpus:3.9; mem:4064; disk:10240" {
		t.Errorf("rest: %s", rest)
	}
}

func TestKillShutdownMessage(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")+`,"kill_policy":{"grace_period":{"nanoseconds":1}}`))
	f.must(t, "KILL", `"kill":{"task_id":{"value":"t"}}`)
	if k := a.want(t, link.EventKill).Kill; k.TaskID != "t" || k.KillPolicy != nil {
		t.Errorf("%+v", k)
	}
	f.must(t, "KILL", `"kill":{"task_id":{"value":"t"},"kill_policy":{"grace_period":{"nanoseconds":5}}}`)
	if k := a.want(t, link.EventKill).Kill; k.KillPolicy.GetGracePeriod().GetNanoseconds() != 5 {
		t.Errorf("%+v", k)
	}
	f.must(t, "SHUTDOWN", `"shutdown":{"executor_id":{"value":"x"},"agent_id":{"value":"`+a.id+`"}}`)
	a.want(t, link.EventShutdownExecutor)
	f.must(t, "MESSAGE", `"message":{"executor_id":{"value":"x"},"agent_id":{"value":"`+a.id+`"},"data":""}`)
	if got := a.want(t, link.EventMessage).Message; got.ExecutorID != "x" || len(got.Data) != 0 {
		t.Errorf("%+v", got)
	}
	a.call(t, link.Call{Type: link.CallMessage, Message: &link.FrameworkMessage{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x"}})
	if got := f.next(t, "MESSAGE", ofType(scheduler.Event_MESSAGE)).Message; got.Data == nil || len(got.Data) != 0 {
		t.Errorf("%+v", got)
	}
	for _, rest := range []string{`"shutdown":{"executor_id":{"value":"x"},"agent_id":{"value":"no"}}`} {
		f.must(t, "SHUTDOWN", rest)
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	for _, c := range []struct {
		capability            string
		unknown, unknownAgent string
	}{
		{"", "TASK_LOST", "TASK_LOST"},
		{`,{"type":"PARTITION_AWARE"}`, "TASK_GONE", "TASK_UNKNOWN"},
	} {
		f := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"}`+c.capability+`],"roles":["*"]`)
		f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
		ask := func(task, agent string) string {
			rest := `"reconcile":{"tasks":[{"task_id":{"value":"` + task + `"}`
			if agent != "" {
				rest += `,"agent_id":{"value":"` + agent + `"}`
			}
			f.must(t, "RECONCILE", rest+"}]}")
			return describe(f.update(t, task))
		}
		const tail = " SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is unknown"
		for _, want := range [][3]string{
			{"t", "", "TASK_STAGING SOURCE_MASTER +executor REASON_RECONCILIATION Reconciliation: Latest task state"},
			{"t", "no-such-agent", "TASK_STAGING SOURCE_MASTER +executor REASON_RECONCILIATION Reconciliation: Latest task state"},
			{"u1", a.id, c.unknown + tail + " to the agent"},
			{"u2", "", c.unknownAgent + tail},
			{"u3", "no-such-agent", c.unknownAgent + tail},
		} {
			if got := ask(want[0], want[1]); got != want[2] {
				t.Errorf("%v: %s", want, got)
			}
		}
		f.must(t, "RECONCILE", `"reconcile":{"tasks":[]}`)
		f.update(t, "t")
		f.must(t, "TEARDOWN", "")
	}
}
