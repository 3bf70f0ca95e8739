package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/google/go-cmp/cmp"
	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apiagent "github.com/mesos/mesos-go/api/v1/lib/agent"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

func TestEncodesAsMesos(t *testing.T) {
	t.Parallel()
	state := mesos.TASK_RUNNING
	scalar := mesos.SCALAR
	for _, c := range []struct {
		name string
		m    proto.Message
		want string
	}{
		{"defaults are written", &mesos.CommandInfo{Value: proto.String("a")}, `{"shell":true,"value":"a"}`},
		{"deprecated default is not", &mesos.Resource{Name: "cpus", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: 4}},
			`{"name":"cpus","type":"SCALAR","scalar":{"value":4.0}}`},
		{"unknown enum is absent", &mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: "x"}}, `{"executor_id":{"value":"x"}}`},
		{"bytes and enums", &mesos.TaskStatus{TaskID: mesos.TaskID{Value: "t"}, State: &state, UUID: []byte{0xfb, 0xff}, Timestamp: proto.Float64(1795230891.388966)},
			`{"task_id":{"value":"t"},"state":"TASK_RUNNING","timestamp":1795230891.388966,"uuid":"+/8="}`},
		{"default of an enum", &mesos.NetworkInfo_IPAddress{IPAddress: proto.String("10.0.0.1")}, `{"protocol":"IPv4","ip_address":"10.0.0.1"}`},
		{"framework", &mesos.FrameworkInfo{User: "u", Name: "n", Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}},
			`{"user":"u","name":"n","failover_timeout":0.0,"checkpoint":false,"capabilities":[{"type":"MULTI_ROLE"}]}`},
		{"a capability that came later", &mesos.MasterInfo_Capability{Type: 3}, `{"type":"QUOTA_V2"}`},
		{"empty lists of an answer", &apiagent.Response_GetExecutors{}, `{"executors":[],"completed_executors":[]}`},
		{"map", &mesos.TaskInfo{Limits: map[string]mesos.Value_Scalar{"mem": {Value: 1.5}, "cpus": {Value: 1}}},
			`{"name":"","task_id":{"value":""},"agent_id":{"value":""},"limits":{"cpus":{"value":1.0},"mem":{"value":1.5}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := MarshalJSON(c.m)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	const convert = "Failed to convert JSON into Call protobuf: "
	for _, c := range []struct{ body, want string }{
		{``, "Failed to parse body into JSON: syntax error at line 1 near: "},
		{`{"type":`, "Failed to parse body into JSON: syntax error at line 1 near: "},
		{`[]`, convert + "Expecting a JSON object"},
		{`{"type":"REVIVE"} x`, "Failed to parse body into JSON: Parsed JSON included non-whitespace trailing characters:  x"},
		{`{"type":6}`, convert + "Not expecting a JSON number for field 'type'"},
		{`{"framework_id":"x"}`, convert + "Not expecting a JSON string for field 'framework_id'"},
		{`{"subscribe":{}}`, convert + "Missing required fields: subscribe.framework_info"},
		{`{"subscribe":{"framework_info":{}}}`, convert + "Missing required fields: subscribe.framework_info.user, subscribe.framework_info.name"},
		{`{"acknowledge":{"uuid":"%%"}}`, convert + "Failed to base64 decode bytes field 'uuid': Invalid character '%'"},
		{`{"accept":{"operations":[{"launch":{"task_infos":[{"name":"x","task_id":{"value":"t"}}]}}]}}`,
			convert + "Missing required fields: accept.operations[0].launch.task_infos[0].agent_id"},
		{`{"kill":{"task_id":{"value":"t"},"kill_policy":{"grace_period":{"nanoseconds":1.5}}}}`,
			convert + "Failed to parse '1.5' as a JSON number for field 'nanoseconds'"},
		{`{"type":"NO_SUCH","no_such":1,"kill":null}`, ""},
	} {
		var call scheduler.Call
		present, err := UnmarshalJSON([]byte(c.body), &call)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.body, got, c.want)
		}
		if err == nil && len(present) != 0 {
			t.Errorf("%s: present %v", c.body, present)
		}
	}
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	call := &scheduler.Call{Type: scheduler.Call_REVIVE, FrameworkID: &mesos.FrameworkID{Value: "f"}}
	b, err := Marshal(Protobuf, call)
	if err != nil {
		t.Fatal(err)
	}
	var got scheduler.Call
	present, err := Unmarshal(Protobuf, b, &got)
	if err != nil || !got.Equal(call) {
		t.Fatalf("%v %v", got, err)
	}
	if !present["type"] || !present["framework_id"] || len(present) != 2 {
		t.Errorf("present: %v", present)
	}
	for _, bad := range []string{`{"type":"SUBSCRIBE"}`, "\x0a\xff\xff\xff\xff\x0f", "\x0a\x00"} {
		if _, err := Unmarshal(Protobuf, []byte(bad), &got); err == nil || err.Error() != "Failed to parse body into Call protobuf" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestNewerProtobuf reads what a newer version may send.
func TestNewerProtobuf(t *testing.T) {
	t.Parallel()
	encode := func(c *scheduler.Call) []byte {
		b, err := proto.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		// A field that nobody knows, at the end of the message.
		return append(b, 0xfa, 0x7f, 0x01, 'x')
	}
	accept := func(operation mesos.Offer_Operation) *scheduler.Call {
		return &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{Operations: []mesos.Offer_Operation{operation}}}
	}
	var got scheduler.Call
	if _, err := Unmarshal(Protobuf, encode(accept(mesos.Offer_Operation{Type: 4711})), &got); err != nil {
		t.Error(err)
	} else if got.Accept.Operations[0].Type != mesos.Offer_Operation_UNKNOWN {
		t.Errorf("the operation is %v", got.Accept.Operations[0].Type)
	}
	info := &mesos.FrameworkInfo{User: "u", Name: "n", Capabilities: []mesos.FrameworkInfo_Capability{{Type: 4711}, {Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}
	present, err := Unmarshal(Protobuf, encode(&scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: info}}), &got)
	if err != nil || len(present) != 2 {
		t.Fatal(present, err)
	}
	if c := got.Subscribe.FrameworkInfo.Capabilities; c[0].Type != mesos.FrameworkInfo_Capability_UNKNOWN || c[1].Type != mesos.FrameworkInfo_Capability_MULTI_ROLE {
		t.Errorf("the capabilities are %v", c)
	}
	if present, err = Unmarshal(Protobuf, encode(&scheduler.Call{Type: 4711}), &got); err != nil || len(present) != 0 {
		t.Errorf("a call of a type without a name: %v %v", present, err)
	}
	// A required one that is unknown is one that is missing.
	scalar := mesos.Value_Type(4711)
	tasks := []mesos.TaskInfo{{Name: "t", Resources: []mesos.Resource{{Name: "cpus", Type: &scalar}}}}
	launch := mesos.Offer_Operation{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: tasks}}
	if _, err := Unmarshal(Protobuf, encode(accept(launch)), &got); err == nil {
		t.Errorf("a resource without a known type is taken: %v", got)
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		accept string
		want   MediaType
	}{
		{"", JSON}, {"*/*", JSON}, {"application/json", JSON}, {"application/x-protobuf", Protobuf},
		{"application/x-protobuf, application/json", JSON}, {"text/html", ""}, {"text/html, application/*;q=0.5", JSON},
		{"application/json;q=0, */*", Protobuf}, {"Application/X-Protobuf", Protobuf}, {"application/json;q=x", ""}, {",", ""},
	} {
		h := http.Header{}
		if c.accept != "" {
			h.Set("Accept", c.accept)
		}
		if got, _ := ResponseType(h); got != c.want {
			t.Errorf("Accept %q: %q, want %q", c.accept, got, c.want)
		}
	}
	for _, c := range []struct {
		value  string
		status int
	}{
		{"", 400}, {"application/json", 0}, {"application/x-protobuf", 0},
		{"application/json; charset=utf-8", 415}, {"Application/JSON", 415},
	} {
		h := http.Header{}
		if c.value != "" {
			h.Set("Content-Type", c.value)
		}
		_, e := RequestType(h)
		if (e == nil) != (c.status == 0) || (e != nil && e.Status != c.status) {
			t.Errorf("Content-Type %q: %v, want %d", c.value, e, c.status)
		}
	}
}

// TestGoldenEvents decodes and encodes every event that was recorded from
// Apache Mesos: nothing may be lost or added.
func TestGoldenEvents(t *testing.T) {
	dir := os.Getenv("MESOSPROBE")
	if dir == "" {
		t.Skip("MESOSPROBE (the directory of the prober) is not set: no recorded events to compare with")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "golden", "*.jsonl"))
	count := 0
	for _, name := range files {
		if strings.HasSuffix(name, ".norm.jsonl") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(f)
		for {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				break
			}
			var entry struct {
				Side, Actor, Dir, Name string
				Body                   json.RawMessage
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				t.Fatal(err)
			}
			if entry.Dir != "event" || len(entry.Body) == 0 || entry.Body[0] != '{' || bytes.Contains(entry.Body, []byte("characters, sha256")) {
				// The prober shortens large data.
				continue
			}
			var m proto.Message = &scheduler.Event{}
			if entry.Side == "executor" {
				m = &executor.Event{}
			} else if entry.Side != "scheduler" {
				continue
			}
			if _, err := UnmarshalJSON(entry.Body, m); err != nil {
				t.Errorf("%s: %v\n%s", name, err, entry.Body)
				continue
			}
			again, err := MarshalJSON(m)
			if err != nil {
				t.Error(err)
				continue
			}
			if d := cmp.Diff(tree(t, entry.Body), tree(t, again)); d != "" {
				t.Errorf("%s: %s", filepath.Base(name), d)
			}
			count++
		}
		f.Close()
	}
	t.Logf("%d events", count)
}

func tree(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func FuzzDecodeCall(f *testing.F) {
	f.Add([]byte(`{"type":"ACCEPT","accept":{"offer_ids":[{"value":"o"}],"operations":[{"type":"LAUNCH","launch":{"task_infos":[]}}]}}`))
	f.Add([]byte(`{"type":"SUBSCRIBE","subscribe":{"framework_info":{"user":"u","name":"n","offer_filters":{"r":{}}}}}`))
	f.Add([]byte("\x0a\x03\x0a\x01f\x10\x05"))
	f.Add([]byte(`{"type":"UPDATE","executor_id":{"value":"x"},"framework_id":{"value":"f"},"update":{"status":{"task_id":{"value":"t"},"state":"TASK_RUNNING"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mt := range []MediaType{JSON, Protobuf} {
			readsBack := func(call, again proto.Message) {
				if _, err := Unmarshal(mt, data, call); err != nil {
					return
				}
				b, err := MarshalJSON(call)
				if err != nil {
					t.Fatalf("%v: %v", call, err)
				}
				if _, err := UnmarshalJSON(b, again); err != nil {
					t.Fatalf("%s: %v", b, err)
				}
			}
			readsBack(&scheduler.Call{}, &scheduler.Call{})
			readsBack(&executor.Call{}, &executor.Call{})
		}
	})
}
