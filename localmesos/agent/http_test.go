package agent

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xagent "github.com/mesos/mesos-go/api/v1/lib/agent"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/internal/recordio"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

func do(t *testing.T, method, url, contentType, accept, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	return do(t, http.MethodGet, url, "", "", "")
}

func TestExecutorAPIErrors(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "ok", "t1"))
	const j, failed = "application/json", "Failed to validate Executor::Call: "
	good := base64.StdEncoding.EncodeToString(newUUID())
	ids := func(x string) string { return `"executor_id":{"value":"` + x + `"},"framework_id":{"value":"f1"}` }
	update := func(status string) string {
		return `{"type":"UPDATE",` + ids("x1") + `,"update":{"status":{` + status + `}}}`
	}
	base := `"task_id":{"value":"t1"},"state":"TASK_RUNNING","source":"SOURCE_EXECUTOR"`
	for _, c := range []struct {
		name, method, contentType, accept, body string
		status                                  int
		text                                    string
	}{
		{name: "GET", method: "GET", status: 405, text: "405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'."},
		{name: "no type", contentType: "-", status: 400, text: "Expecting 'Content-Type' to be present"},
		{name: "charset", contentType: j + "; charset=utf-8", status: 415, text: "Expecting 'Content-Type' of application/json or application/x-protobuf"},
		{name: "accept", accept: "text/html", body: `{"type":"SUBSCRIBE",` + ids("x1") + `,"subscribe":{}}`, status: 406, text: "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'"},
		{name: "empty", status: 400, text: "Failed to parse body into JSON: syntax error at line 1 near: "},
		{name: "missing type", body: `{` + ids("x1") + `}`, status: 400, text: failed + "Expecting 'type' to be present"},
		{name: "no subscribe", body: `{"type":"SUBSCRIBE",` + ids("x1") + `}`, status: 400, text: failed + "Expecting 'subscribe' to be present"},
		{name: "framework", body: `{"type":"SUBSCRIBE","executor_id":{"value":"x1"},"framework_id":{"value":"f2"},"subscribe":{}}`, status: 400, text: "Framework cannot be found"},
		{name: "executor", body: `{"type":"SUBSCRIBE",` + ids("x2") + `,"subscribe":{}}`, status: 400, text: "Executor cannot be found"},
		{name: "no update", body: `{"type":"UPDATE",` + ids("x1") + `}`, status: 400, text: failed + "Expecting 'update' to be present"},
		{name: "no uuid", body: update(base), status: 400, text: failed + "Expecting 'uuid' to be present"},
		{name: "short uuid", body: update(base + `,"uuid":"AAAA"`), status: 400, text: failed + "Not a valid UUID"},
		{name: "no source", body: update(`"task_id":{"value":"t1"},"state":"TASK_RUNNING","uuid":"` + good + `"`), status: 400,
			text: failed + "Received Call from executor x1 of framework f1 with invalid source, expecting 'SOURCE_EXECUTOR'"},
		{name: "staging", body: update(`"task_id":{"value":"t1"},"state":"TASK_STAGING","source":"SOURCE_EXECUTOR","uuid":"` + good + `"`), status: 400,
			text: failed + "Received TASK_STAGING from executor x1 of framework f1 which is not allowed"},
		{name: "other executor", body: update(base + `,"uuid":"` + good + `","executor_id":{"value":"x2"}`), status: 400,
			text: failed + "ExecutorID in Call: x1 does not match ExecutorID in TaskStatus: x2"},
		{name: "no message", body: `{"type":"MESSAGE",` + ids("x1") + `}`, status: 400, text: failed + "Expecting 'message' to be present"},
		{name: "heartbeat of anybody", body: `{"type":"HEARTBEAT",` + ids("x9") + `}`, status: 202},
		{name: "unknown", body: `{"type":"UNKNOWN",` + ids("x1") + `}`, status: 501, text: "501 Not Implemented."},
	} {
		method, contentType := "POST", j
		if c.method != "" {
			method = c.method
		}
		if c.contentType != "" {
			contentType = strings.TrimPrefix(c.contentType, "-")
		}
		for _, path := range []string{"/api/v1/executor", "/slave(1)/api/v1/executor/"} {
			if status, text := do(t, method, a.URL()+path, contentType, c.accept, c.body); status != c.status || text != c.text {
				t.Errorf("%s: %d %q, not %d %q", c.name, status, text, c.status, c.text)
			}
		}
	}
	// Of an unknown task: passed on as it is.
	if status, text := do(t, "POST", a.URL()+"/api/v1/executor", j, "", update(`"task_id":{"value":"t9"},"state":"TASK_RUNNING","source":"SOURCE_EXECUTOR","uuid":"`+good+`"`)); status != 202 {
		t.Errorf("an unknown task: %d %s", status, text)
	}
	if u := m.update("t9", mesos.TASK_RUNNING); u.Status.ContainerStatus != nil || u.Status.ExecutorID != nil || u.Status.AgentID == nil || u.Status.Timestamp == nil {
		t.Errorf("an unknown task: %+v", u.Status)
	}
	// A uuid twice: taken, and not passed on again.
	for _, text := range []string{"first", "second"} {
		do(t, "POST", a.URL()+"/api/v1/executor", j, "", update(base+`,"message":"`+text+`","uuid":"`+good+`"`))
	}
	m.next("the first", func(c link.Call) bool { return c.Type == link.CallUpdate && c.Update.Status.GetMessage() == "first" })
	m.kill("t1")
	if !m.without(func(c link.Call) bool { return c.Type == link.CallUpdate && c.Update.Status.GetMessage() == "second" }) {
		t.Error("the second was passed on")
	}
}

func TestSecondSubscriptionEndsTheFirst(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	r := runOf(false, "x1", "mute", "t1")
	r.Framework.Capabilities = []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}
	m.run(r)
	eventually(t, "the executor is there", func() bool { return len(processes(t, a)) == 1 })
	for _, mt := range []wire.MediaType{wire.JSON, wire.Protobuf} {
		call := &xexec.Call{Type: xexec.Call_SUBSCRIBE, Subscribe: &xexec.Call_Subscribe{}}
		call.ExecutorID.Value, call.FrameworkID.Value = "x1", "f1"
		open := func() (*http.Response, *recordio.Reader) {
			b, err := wire.Marshal(mt, call)
			if err != nil {
				t.Fatal(err)
			}
			req, _ := http.NewRequest(http.MethodPost, a.URL()+"/api/v1/executor", bytes.NewReader(b))
			req.Header.Set("Content-Type", string(mt))
			req.Header.Set("Accept", string(mt))
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != string(mt) {
				t.Fatalf("%v %+v", err, resp)
			}
			t.Cleanup(func() { resp.Body.Close() })
			return resp, wire.NewRecordReader(resp.Body)
		}
		read := func(r *recordio.Reader) *xexec.Event {
			t.Helper()
			b, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			ev := &xexec.Event{}
			if _, err := wire.Unmarshal(mt, b, ev); err != nil {
				t.Fatal(err)
			}
			return ev
		}
		_, first := open()
		if ev := read(first); ev.Type != xexec.Event_SUBSCRIBED || ev.Subscribed.ContainerID == nil ||
			ev.Subscribed.AgentInfo.GetID().GetValue() != m.id || ev.Subscribed.FrameworkInfo.GetID().GetValue() != "f1" {
			t.Errorf("first event: %+v", ev)
		}
		// Each time, because this executor does not say that it knows the task.
		if ev := read(first); ev.Type != xexec.Event_LAUNCH || string(ev.Launch.Task.Data) != "task data" {
			t.Errorf("second event: %+v", ev)
		}
		_, second := open()
		if ev := read(second); ev.Type != xexec.Event_SUBSCRIBED {
			t.Errorf("second stream: %+v", ev)
		}
		if _, err := first.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("the first stream: %v", err)
		}
	}
	a.loop.do(a.ctx, func() { a.shutdownExecutor(a.frameworks["f1"].executors["x1"]) })
}

func TestStateAndOperatorCalls(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(true, "x1", "ok", "t1"))
	_, text := get(t, a.URL()+"/slave(1)/state/")
	var s struct {
		ID         string         `json:"id"`
		Attributes map[string]any `json:"attributes"`
		Resources  map[string]any `json:"resources"`
		Frameworks []struct {
			Executors []struct {
				Container string
				Directory string
				Tasks     []struct {
					ID, State string
					Statuses  []struct {
						ContainerStatus struct {
							NetworkInfos []any `json:"network_infos"`
						} `json:"container_status"`
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if s.ID != m.id || s.Attributes["zone"] != "a" || s.Attributes["slots"] != 4.0 || s.Resources["ports"] != "[31000-32000]" || s.Resources["cpus"] != 4.0 {
		t.Errorf("state: %s", text)
	}
	x := s.Frameworks[0].Executors[0]
	if x.Directory != sandboxOf(t, a, "x1") || x.Tasks[0].State != "TASK_RUNNING" || len(x.Tasks[0].Statuses[0].ContainerStatus.NetworkInfos) != 1 {
		t.Errorf("executor: %+v", x)
	}
	for path, want := range map[string]string{"/health": "", "/version": `"version":"1.12.0"`, "/flags": `"executor_shutdown_grace_period":"2secs"`,
		"/containers/": `"mem_rss_bytes"`, "/metrics/snapshot": `"slave/tasks_running":1,`, "/monitor/statistics": `"executor_id":"x1"`} {
		if status, text := get(t, a.URL()+path); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := get(t, a.URL()+"/state.json"); status != 404 || text != "404 Not Found." {
		t.Errorf("state.json: %d %s", status, text)
	}
	if status, _ := do(t, "POST", a.URL()+"/state", "", "", ""); status != 405 {
		t.Errorf("POST /state: %d", status)
	}
	for _, call := range []string{"GET_HEALTH", "GET_VERSION", "GET_FLAGS", "GET_AGENT", "GET_CONTAINERS", "GET_FRAMEWORKS", "GET_EXECUTORS", "GET_TASKS", "GET_STATE", "GET_METRICS", "GET_LOGGING_LEVEL"} {
		for _, mt := range []wire.MediaType{wire.JSON, wire.Protobuf} {
			status, text := do(t, "POST", a.URL()+"/api/v1", "application/json", string(mt), `{"type":"`+call+`"}`)
			var r xagent.Response
			if _, err := wire.Unmarshal(mt, []byte(text), &r); status != 200 || err != nil || r.Type.String() != call {
				t.Errorf("%s %s: %d %v %s", mt, call, status, err, r.Type)
			}
		}
	}
	if status, text := do(t, "POST", a.URL()+"/api/v1/no-such", "application/json", "", `{}`); status != 400 || text != "Failed to validate agent::Call: Expecting 'type' to be present" {
		t.Errorf("no type: %d %s", status, text)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "ok", "t1"))
	dir := sandboxOf(t, a, "x1")
	secret := filepath.Join(t.TempDir(), "secret")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, "secret")
	write(filepath.Join(dir, "sub", "file"), "0123456789äöü")
	for name, to := range map[string]string{"out": secret, "up": "../../../../../../../../../../etc/passwd", "dir": "/etc", "in": "sub/file"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path, rest string) (int, string) {
		return get(t, a.URL()+"/files/read?path="+url.QueryEscape(path)+rest)
	}
	virtual := "/frameworks/f1/executors/x1/runs/latest"
	for _, base := range []string{dir, filepath.Join(filepath.Dir(dir), "latest"), virtual,
		"/frameworks/f1/executors/x1/runs/" + filepath.Base(dir), strings.TrimPrefix(virtual, "/")} {
		for _, c := range []struct{ path, rest, want string }{
			{"sub/file", "&offset=0&length=4", `{"data":"0123","offset":0}`},
			{"sub/file", "&offset=8", `{"data":"89äöü","offset":8}`},
			{"sub/file", "&offset=0&length=11", `{"data":"0123456789","offset":0}`}, // not half a letter
			{"sub/file", "", `{"data":"","offset":16}`},
			{"sub/file", "&offset=99", `{"data":"","offset":99}`},
			{"in", "&offset=0&length=1", `{"data":"0","offset":0}`},
		} {
			if status, text := read(base+"/"+c.path, c.rest); status != 200 || text != c.want {
				t.Errorf("%s/%s%s: %d %s, not %s", base, c.path, c.rest, status, text, c.want)
			}
		}
		for _, bad := range []string{"/out", "/up", "/dir/passwd", "/../../../../../../../../../../etc/passwd", "/nothing", "/.."} {
			for _, ep := range []string{"read", "browse", "download"} {
				status, text := get(t, a.URL()+"/files/"+ep+"?offset=0&path="+url.QueryEscape(base+bad))
				if status < 400 || strings.Contains(text, "secret") && !strings.Contains(text, bad) || strings.Contains(text, "root:") {
					t.Errorf("%s %s%s: %d %s", ep, base, bad, status, text)
				}
			}
		}
	}
	for _, bad := range []string{"", "/etc/passwd", "/", ".", a.store.Work(), a.store.Work() + "/meta/boot_id", a.store.Work() + "/slaves/../meta/boot_id", "/slave/log",
		a.store.Work() + "/slaves/x/frameworks/y/executors/z/runs/latest"} {
		if status, text := read(bad, "&offset=0"); status < 400 {
			t.Errorf("%q: %d %s", bad, status, text)
		}
	}
	if status, _ := read(dir+"/sub/file", "&offset=x"); status != 400 {
		t.Errorf("offset x: %d", status)
	}
	_, text := get(t, a.URL()+"/files/browse?path="+url.QueryEscape(dir))
	var list []struct {
		Path, Mode, UID, GID string
		Size, Nlink, Mtime   int
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, f := range list {
		if filepath.Dir(f.Path) != dir || f.Mtime == 0 || f.Nlink == 0 {
			t.Errorf("%+v", f)
		}
		byName[filepath.Base(f.Path)] = f.Mode
	}
	if byName["stdout"] != "-rw-r--r--" || byName["sub"] != "drwxr-xr-x" || byName["out"] != "lrwxrwxrwx" {
		t.Errorf("browse: %v", byName)
	}
	if status, text := get(t, a.URL()+"/files/download?path="+url.QueryEscape(dir+"/sub/file")); status != 200 || text != "0123456789äöü" {
		t.Errorf("download: %d %s", status, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 3*maxRead), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text := read(dir+"/big", "&offset=0&length=1000000000000"); len(text) > 7*maxRead {
		t.Errorf("%d bytes of answer", len(text))
	}
}
