package master

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// typedClient speaks one media type and listens to another.
type typedClient struct {
	*records[scheduler.Event]
	m    *Master
	id   string
	says wire.MediaType
}

func decodeAs(t *testing.T, mt wire.MediaType) func([]byte) scheduler.Event {
	return func(b []byte) scheduler.Event {
		var e scheduler.Event
		if _, err := wire.Unmarshal(mt, b, &e); err != nil {
			t.Errorf("event %q: %v", b, err)
		}
		return e
	}
}

func subscribeTyped(t *testing.T, m *Master, says, hears wire.MediaType) *typedClient {
	t.Helper()
	info := &mesos.FrameworkInfo{User: "root", Name: "typed", Roles: []string{"*"}, Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}
	body, err := wire.Marshal(says, &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: info}})
	if err != nil {
		t.Fatal(err)
	}
	c := &typedClient{m: m, says: says}
	c.records = open(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": string(says), "Accept": string(hears)}, body, decodeAs(t, hears))
	if got := c.header.Get("Content-Type"); got != string(hears) {
		t.Errorf("speaks %s, hears %s: Content-Type is %q", says, hears, got)
	}
	c.id = c.next(t, "SUBSCRIBED", ofType(scheduler.Event_SUBSCRIBED)).Subscribed.FrameworkID.Value
	return c
}

// must makes a call that is to be accepted, with an Accept that calls have no use for.
func (c *typedClient) must(t *testing.T, call *scheduler.Call, accept string) {
	t.Helper()
	call.FrameworkID = &mesos.FrameworkID{Value: c.id}
	body, err := wire.Marshal(c.says, call)
	if err != nil {
		t.Fatal(err)
	}
	status, text := post(t, c.m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": string(c.says), "Accept": accept, streamHeader: c.header.Get(streamHeader)}, string(body))
	if status != http.StatusAccepted {
		t.Fatalf("%v: %d %s", call.Type, status, text)
	}
}

// TestMediaTypesAreIndependent: all four pairs, with calls of every kind that frameworks need.
func TestMediaTypesAreIndependent(t *testing.T) {
	t.Parallel()
	for _, says := range []wire.MediaType{wire.JSON, wire.Protobuf} {
		for _, hears := range []wire.MediaType{wire.JSON, wire.Protobuf} {
			t.Run(string(says[12:]+" "+hears[12:]), func(t *testing.T) {
				t.Parallel()
				m := startMaster(t, nil)
				a := startAgent(t, m, nil)
				c := subscribeTyped(t, m, says, hears)
				o := c.next(t, "OFFERS", ofType(scheduler.Event_OFFERS)).Offers.Offers[0]
				if o.GetAllocationInfo().GetRole() != "*" || len(o.Resources) != 4 {
					t.Errorf("%v", o)
				}
				scalar, shell := mesos.SCALAR, "true"
				some := []mesos.Resource{{Name: "cpus", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: 0.1}}}
				x := &mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: "x"}, Command: &mesos.CommandInfo{Value: &shell}}
				task := mesos.TaskInfo{Name: "t", TaskID: mesos.TaskID{Value: "t"}, AgentID: o.AgentID, Resources: some, Executor: x, Data: []byte{0, 255, 1}}
				refuse := 0.0
				c.must(t, &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{
					OfferIDs: []mesos.OfferID{o.ID}, Filters: &mesos.Filters{RefuseSeconds: &refuse},
					Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: []mesos.TaskInfo{task}}}},
				}}, "text/html")
				if run := a.want(t, link.EventRun).Run; !bytes.Equal(run.Tasks[0].Data, task.Data) {
					t.Errorf("%v", run.Tasks)
				}
				uuid := a.report(t, c.id, "x", "t", mesos.TASK_RUNNING)
				s := c.next(t, "UPDATE", ofType(scheduler.Event_UPDATE)).Update.Status
				if s.GetState() != mesos.TASK_RUNNING || !bytes.Equal(s.UUID, uuid) {
					t.Errorf("%v", s)
				}
				c.must(t, &scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE, Acknowledge: &scheduler.Call_Acknowledge{AgentID: o.AgentID, TaskID: task.TaskID, UUID: uuid}}, "")
				c.must(t, &scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: &scheduler.Call_Reconcile{}}, "image/png")
				if s := c.next(t, "UPDATE", ofType(scheduler.Event_UPDATE)).Update.Status; s.GetReason() != mesos.REASON_RECONCILIATION {
					t.Errorf("%v", s)
				}
				c.must(t, &scheduler.Call{Type: scheduler.Call_RECONCILE_OPERATIONS, ReconcileOperations: &scheduler.Call_ReconcileOperations{
					Operations: []scheduler.Call_ReconcileOperations_Operation{{OperationID: mesos.OperationID{Value: "o"}}}}}, string(hears))
				c.next(t, "UPDATE_OPERATION_STATUS", ofType(scheduler.Event_UPDATE_OPERATION_STATUS))
				c.must(t, &scheduler.Call{Type: scheduler.Call_TEARDOWN}, "")
				c.waitEnd(t)
			})
		}
	}
}

// TestMalformedBodies: whatever comes is 400 with Mesos's words, and the master goes on.
func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	for _, c := range []struct {
		mt         wire.MediaType
		body, want string
	}{
		{wire.Protobuf, `{"type":"REVIVE"}`, "Failed to parse body into Call protobuf"},
		{wire.Protobuf, "\x12\xff\xff\xff\xff\x0f", "Failed to parse body into Call protobuf"},
		{wire.Protobuf, "", "Failed to validate scheduler::Call: Expecting 'type' to be present"},
		{wire.Protobuf, "\x10\xff\x01", "Failed to validate scheduler::Call: Expecting 'type' to be present"},
		{wire.JSON, "\x10\x01", "Failed to parse body into JSON: syntax error at line 1 near: "},
		{wire.JSON, strings.Repeat("[", 100_000), "Failed to parse body into JSON: syntax error at line 1 near: "},
		{wire.JSON, `{"type":"` + strings.Repeat("x", 1<<20) + `"}`, "Failed to validate scheduler::Call: Expecting 'type' to be present"},
		{wire.JSON, `{"type":"REVIVE","framework_id":{"value":"` + "\xff\xfe" + `"},"no_such":[[{}]]}`, "Framework cannot be found"},
	} {
		status, body := post(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": string(c.mt)}, c.body)
		if status != http.StatusBadRequest || body != c.want {
			t.Errorf("%.40q: %d %.200s, want %s", c.body, status, body, c.want)
		}
	}
	subscribe(t, m, "", multiRole)
}

// TestKeepAlive: calls share a connection, also after answers that are errors.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	transport := &http.Transport{MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	connections := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			connections++
		}
	}})
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
	}{
		{"POST", "/api/v1/scheduler", "application/json", `{"type":"REVIVE","framework_id":{"value":"x"}}`, 400},
		{"POST", "/api/v1/scheduler", "text/plain", strings.Repeat("x", 10_000), 415},
		{"GET", "/api/v1/scheduler", "", "", 405},
		{"PUT", "/api/v1/scheduler", "application/json", "{}", 405},
		{"GET", "/state", "", "", 200},
		{"POST", "/no/such/path", "application/json", "{}", 404},
		{"GET", "/health", "", "", 200},
	} {
		req, err := http.NewRequestWithContext(ctx, c.method, m.URL()+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.contentType)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s %s: %s, want %d", c.method, c.path, resp.Status, c.status)
		}
	}
	if connections != 1 {
		t.Errorf("%d connections", connections)
	}
}

// TestCompression: whole answers are compressed for who asks for it, streams are not.
func TestCompression(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	startAgent(t, m, nil)
	for path, want := range map[string]string{"/state": "gzip", "/version": ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding"); got != want || resp.ContentLength <= 0 {
			t.Errorf("%s: Content-Encoding %q, %d bytes", path, got, resp.ContentLength)
		}
	}
	r := open(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": "application/json", "Accept-Encoding": "gzip"},
		[]byte(`{"type":"SUBSCRIBE","subscribe":{"framework_info":{"user":"u","name":"n"}}}`), decodeEvent(t))
	if got := r.header.Get("Content-Encoding"); got != "" {
		t.Errorf("the stream is %s", got)
	}
	r.next(t, "OFFERS", ofType(scheduler.Event_OFFERS))
}
