package master

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// operate makes a call of the operator API and decodes the answer.
func operate(t *testing.T, m *Master, mt wire.MediaType, call *apimaster.Call) (int, *apimaster.Response, string) {
	t.Helper()
	body, err := wire.Marshal(mt, call)
	if err != nil {
		t.Fatal(err)
	}
	status, text := post(t, m.URL()+"/api/v1", map[string]string{"Content-Type": string(mt), "Accept": string(mt)}, string(body))
	if status != http.StatusOK || text == "" {
		return status, nil, text
	}
	var out apimaster.Response
	if _, err := wire.Unmarshal(mt, []byte(text), &out); err != nil {
		t.Fatalf("%s: %v in %q", call.Type, err, text)
	}
	return status, &out, text
}

// TestOperatorReads makes every call that reads, in both forms, on a master with something to tell.
func TestOperatorReads(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.Weights = "a=2" })
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	f.offer(t)
	a.report(t, f.id, "x", "t", mesos.TASK_RUNNING)
	f.update(t, "t")
	subscribe(t, m, "", multiRole).must(t, "TEARDOWN", "")
	checks := map[apimaster.Call_Type]func(*apimaster.Response) bool{
		apimaster.Call_GET_HEALTH:        func(r *apimaster.Response) bool { return r.GetHealth.Healthy },
		apimaster.Call_GET_VERSION:       func(r *apimaster.Response) bool { return r.GetVersion.VersionInfo.Version == Version },
		apimaster.Call_GET_LOGGING_LEVEL: func(r *apimaster.Response) bool { return r.GetLoggingLevel.Level == 0 },
		apimaster.Call_GET_FLAGS: func(r *apimaster.Response) bool {
			return slices.ContainsFunc(r.GetFlags.Flags, func(f mesos.Flag) bool { return f.Name == "weights" && f.GetValue() == "a=2" })
		},
		apimaster.Call_GET_METRICS: func(r *apimaster.Response) bool {
			return slices.ContainsFunc(r.GetMetrics.Metrics, func(x mesos.Metric) bool { return x.Name == "master/tasks_running" && x.GetValue() == 1 })
		},
		apimaster.Call_GET_MASTER: func(r *apimaster.Response) bool {
			return r.GetMaster.MasterInfo.ID == m.id && r.GetMaster.GetStartTime() > 0 && r.GetMaster.GetElectedTime() > 0
		},
		apimaster.Call_GET_AGENTS:     func(r *apimaster.Response) bool { return oneAgent(r.GetAgents, a.id) },
		apimaster.Call_GET_FRAMEWORKS: func(r *apimaster.Response) bool { return oneFramework(r.GetFrameworks, f.id) },
		apimaster.Call_GET_EXECUTORS: func(r *apimaster.Response) bool {
			return len(r.GetExecutors.Executors) == 1 && r.GetExecutors.Executors[0].AgentID.Value == a.id
		},
		apimaster.Call_GET_OPERATIONS: func(r *apimaster.Response) bool { return r.GetOperations != nil },
		apimaster.Call_GET_TASKS:      func(r *apimaster.Response) bool { return oneTask(r.GetTasks) },
		apimaster.Call_GET_STATE: func(r *apimaster.Response) bool {
			s := r.GetState
			return oneTask(s.GetTasks) && oneAgent(s.GetAgents, a.id) && oneFramework(s.GetFrameworks, f.id) && len(s.GetExecutors.Executors) == 1
		},
		apimaster.Call_GET_ROLES: func(r *apimaster.Response) bool {
			return len(r.GetRoles.Roles) == 1 && r.GetRoles.Roles[0].Name == "*" && r.GetRoles.Roles[0].Frameworks[0].Value == f.id
		},
		apimaster.Call_GET_WEIGHTS: func(r *apimaster.Response) bool {
			return len(r.GetWeights.WeightInfos) == 1 && r.GetWeights.WeightInfos[0].Weight == 2 && r.GetWeights.WeightInfos[0].GetRole() == "a"
		},
		apimaster.Call_GET_QUOTA:                func(r *apimaster.Response) bool { return len(r.GetQuota.Status.Infos) == 0 },
		apimaster.Call_GET_MAINTENANCE_STATUS:   func(r *apimaster.Response) bool { return r.GetMaintenanceStatus != nil },
		apimaster.Call_GET_MAINTENANCE_SCHEDULE: func(r *apimaster.Response) bool { return r.GetMaintenanceSchedule != nil },
	}
	for kind := range readers {
		if checks[kind] == nil {
			t.Errorf("%s has no check", kind)
		}
	}
	for kind, good := range checks {
		for _, mt := range []wire.MediaType{wire.JSON, wire.Protobuf} {
			status, r, text := operate(t, m, mt, &apimaster.Call{Type: kind, GetMetrics: &apimaster.Call_GetMetrics{}})
			if status != 200 || r.Type.String() != kind.String() || !good(r) {
				t.Errorf("%s as %s: %d %q", kind, mt, status, text)
			}
		}
	}
	if _, _, text := operate(t, m, wire.JSON, &apimaster.Call{Type: apimaster.Call_GET_STATE}); !strings.Contains(text, `"offer_constraints":{}`) || !strings.Contains(text, `"checkpoint":true`) {
		t.Errorf("fields that the Go types lack are not there: %s", text)
	}
}

func oneAgent(r *apimaster.Response_GetAgents, id string) bool {
	if len(r.Agents) != 1 {
		return false
	}
	cpus := func(l []mesos.Resource) (sum float64) {
		for _, r := range l {
			if r.Name == "cpus" {
				sum += r.Scalar.Value
			}
		}
		return sum
	}
	a := r.Agents[0]
	return a.AgentInfo.ID.Value == id && a.Active && !a.GetDeactivated() && len(a.Capabilities) == 8 && a.RegisteredTime.GetNanoseconds() > 0 &&
		cpus(a.TotalResources) == 4 && cpus(a.AllocatedResources) == 0.2 && cpus(a.OfferedResources) == 3.8
}

func oneFramework(r *apimaster.Response_GetFrameworks, id string) bool {
	return len(r.Frameworks) == 1 && len(r.CompletedFrameworks) == 1 && r.Frameworks[0].FrameworkInfo.ID.Value == id && r.Frameworks[0].Connected &&
		r.CompletedFrameworks[0].UnregisteredTime != nil && !r.CompletedFrameworks[0].Active
}

func oneTask(r *apimaster.Response_GetTasks) bool {
	return len(r.Tasks) == 1 && r.Tasks[0].GetState() == mesos.TASK_RUNNING && len(r.Tasks[0].Statuses) == 1 && r.Tasks[0].GetStatusUpdateState() == mesos.TASK_RUNNING
}

func TestOperatorRefusals(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	good := map[string]string{"Content-Type": "application/json"}
	for kind, field := range operatorNeeds {
		status, body := post(t, m.URL()+"/api/v1", good, `{"type":"`+kind.String()+`"}`)
		if status != 400 || body != "Failed to validate master::Call: Expecting '"+field+"' to be present" {
			t.Errorf("%s: %d %q", kind, status, body)
		}
	}
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"type":"UNKNOWN"}`, 501, "501 Not Implemented."},
		{`{"type":"SET_QUOTA","set_quota":{"quota_request":{}}}`, 501, "501 Not Implemented. The embedded master has no quotas; run Apache Mesos for that."},
		{`{"type":"SET_LOGGING_LEVEL","set_logging_level":{"level":1,"duration":{"nanoseconds":1}}}`, 501, "501 Not Implemented. The embedded master logs as its own flags say; run Apache Mesos for that."},
		{`{"type":"START_MAINTENANCE","start_maintenance":{"machines":[]}}`, 501, "501 Not Implemented. The embedded master has no maintenance; run Apache Mesos for that."},
		{`{"type":"RESERVE_RESOURCES","reserve_resources":{"agent_id":{"value":"a"},"resources":[]}}`, 501, "501 Not Implemented. The embedded master makes no reservations and no volumes; run Apache Mesos for that."},
		{`{"type":"DRAIN_AGENT","drain_agent":{"agent_id":{"value":"a"}}}`, 501, "501 Not Implemented. The embedded master does not drain or deactivate agents; run Apache Mesos for that."},
		{`{"type":"LIST_FILES","list_files":{"path":"/master/log"}}`, 404, ""},
		{`{"type":"READ_FILE","read_file":{"path":"/master/log","offset":0}}`, 404, ""},
		{`{"type":"TEARDOWN","teardown":{"framework_id":{"value":"x"}}}`, 400, "No framework found with specified ID"},
		{`{"type":"MARK_AGENT_GONE","mark_agent_gone":{"agent_id":{"value":"x"}}}`, 404, "Agent 'x' not found"},
		{`{"type":"MARK_AGENT_GONE","mark_agent_gone":{}}`, 400, "Failed to convert JSON into Call protobuf: Missing required fields: mark_agent_gone.agent_id"},
		{`{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":[{"role":"a","weight":-1}]}}`, 400, "Failed to validate update weights request JSON for role 'a': Invalid weight '-1': Weights must be positive"},
		{`{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":[{"role":"a b","weight":1}]}}`, 400, "Failed to validate update weights request JSON: Invalid role 'a b': Role component 'a b' is invalid because it contains backspace or whitespace"},
	} {
		if status, body := post(t, m.URL()+"/api/v1", good, c.body); status != c.status || body != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.body, status, body, c.status, c.want)
		}
	}
	for kind := range apimaster.Call_Type_name {
		kind := apimaster.Call_Type(kind)
		ways := 0
		for _, there := range []bool{readers[kind] != nil, actors[kind] != nil, unsupportedCalls[kind] != "", kind == apimaster.Call_UNKNOWN,
			kind == apimaster.Call_SUBSCRIBE, kind == apimaster.Call_LIST_FILES, kind == apimaster.Call_READ_FILE} {
			if there {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s is answered in %d ways", kind, ways)
		}
	}
}

func TestOldEndpoints(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.Weights = "a=2" })
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/reserve", "", 501, "501 Not Implemented. The embedded master makes no reservations and no volumes; run Apache Mesos for that."},
		{"POST", "/master/machine/down", "[]", 501, "501 Not Implemented. The embedded master has no maintenance; run Apache Mesos for that."},
		{"GET", "/machine/up", "", 405, "405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'."},
		{"GET", "/maintenance/schedule", "", 200, "{}"},
		{"GET", "/maintenance/status", "", 200, "{}"},
		{"POST", "/maintenance/schedule", "{}", 501, "501 Not Implemented. The embedded master has no maintenance; run Apache Mesos for that."},
		{"GET", "/quota", "", 200, "{}"},
		{"POST", "/quota", "{}", 501, "501 Not Implemented. The embedded master has no quotas; run Apache Mesos for that."},
		{"PUT", "/quota", "{}", 405, "405 Method Not Allowed. Expecting one of { 'GET', 'POST', 'DELETE' }, but received 'PUT'."},
		{"GET", "/weights", "", 200, `[{"weight":2.0,"role":"a"}]`},
		{"PUT", "/weights", `[{"weight":3.5,"role":"b"}]`, 200, ""},
		{"PUT", "/weights", `{`, 400, "Failed to parse update weights request JSON: unexpected end of JSON input"},
		{"GET", "/master/weights", "", 200, `[{"weight":2.0,"role":"a"},{"weight":3.5,"role":"b"}]`},
		{"DELETE", "/weights", "", 405, "405 Method Not Allowed. Expecting one of { 'GET', 'PUT' }, but received 'DELETE'."},
		{"GET", "/files/browse", "", 400, "Expecting 'path=value' in query.\n"},
		{"GET", "/files/read?path=/master/log", "", 404, ""},
		{"GET", "/files/debug", "", 200, "{}"},
		{"GET", "/health", "", 200, ""},
		{"GET", "/state.json", "", 404, "404 Not Found."},
		{"POST", "/teardown", "", 400, "Missing 'frameworkId' query parameter in the request body"},
	} {
		if status, body := request(t, c.method, m.URL()+c.path, nil, c.body); status != c.status || body != c.want {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, status, body, c.status, c.want)
		}
	}
	for _, path := range []string{"/state", "/master/state/", "/tasks", "/slaves", "/frameworks", "/roles", "/state-summary", "/metrics/snapshot", "/version", "/flags", "/system/stats.json"} {
		var v map[string]any
		status, body := request(t, "GET", m.URL()+path, nil, "")
		if err := json.Unmarshal([]byte(body), &v); status != 200 || err != nil || len(v) == 0 {
			t.Errorf("%s: %d %v %q", path, status, err, body)
		}
	}
}

func TestOperatorTeardown(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	status, _, text := operate(t, m, wire.Protobuf, &apimaster.Call{Type: apimaster.Call_TEARDOWN, Teardown: &apimaster.Call_Teardown{FrameworkID: mesos.FrameworkID{Value: f.id}}})
	if status != 200 || text != "" {
		t.Errorf("%d %q", status, text)
	}
	f.waitEnd(t)
	if id := a.want(t, link.EventShutdownFramework).ShutdownFramework.Value; id != f.id {
		t.Error(id)
	}
	_, r, _ := operate(t, m, wire.JSON, &apimaster.Call{Type: apimaster.Call_GET_TASKS})
	done := r.GetTasks.CompletedTasks
	if len(done) != 1 || len(done[0].Statuses) != 1 || describe(done[0].Statuses[0]) != "TASK_KILLED SOURCE_MASTER +executor Framework "+f.id+" removed REASON_FRAMEWORK_REMOVED" {
		t.Errorf("%+v", done)
	}
}

// TestWeightsOfRoles: a role of weight 3 gets three times as much as one of 1; a
// change takes back the offers that are out, and survives a restart.
func TestWeightsOfRoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(f *Flags) { f.Registry, f.WorkDir, f.Weights = RegistryLog, dir, "big=1" }
	m := startMaster(t, durable)
	f := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"}],"roles":["big","small"],"failover_timeout":60`)
	startAgent(t, m, nil)
	o := f.offer(t)
	set := `{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":[{"role":"big","weight":3}]}}`
	if status, body := post(t, m.URL()+"/api/v1", map[string]string{"Content-Type": "application/json"}, set); status != 200 || body != "" {
		t.Fatalf("%d %q", status, body)
	}
	if e := f.next(t, "RESCIND", ofType(scheduler.Event_RESCIND)); e.Rescind.OfferID != o.ID {
		t.Errorf("%v", e.Rescind)
	}
	m.Kill()
	m = startMaster(t, durable)
	if _, r, text := operate(t, m, wire.JSON, &apimaster.Call{Type: apimaster.Call_GET_WEIGHTS}); len(r.GetWeights.WeightInfos) != 1 || r.GetWeights.WeightInfos[0].Weight != 3 {
		t.Error(text)
	}
}
