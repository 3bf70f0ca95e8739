package master

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// FuzzCalls sends any call in the name of a framework that is subscribed and
// holds an offer: whatever it says, the master answers and its books stay right.
func FuzzCalls(f *testing.F) {
	for _, seed := range []string{
		`{"type":"REVIVE"}`, `{"type":"SUPPRESS","suppress":{"roles":["*"]}}`, `{"type":"UNKNOWN"}`,
		`{"type":"ACCEPT","accept":{"offer_ids":[{"value":"O"}],"operations":[{"type":"RESERVE","reserve":{"resources":[]}},{"type":"LAUNCH","launch":{"task_infos":[` + taskJSON("t", "A", executorJSON("x")) + `]}}]}}`,
		`{"type":"ACCEPT","accept":{"offer_ids":[{"value":"O"}],"operations":[{"type":"LAUNCH_GROUP","launch_group":{"executor":{"executor_id":{"value":"x"}},"task_group":{"tasks":[` + taskJSON("t", "A", "") + `]}}}]}}`,
		`{"type":"ACCEPT","accept":{"offer_ids":[{"value":"O"}],"operations":[{"type":"GROW_VOLUME","id":{"value":"i"}},{"type":"CREATE_DISK"}],"filters":{"refuse_seconds":-1}}}`,
		`{"type":"DECLINE","decline":{"offer_ids":[{"value":"O"}],"filters":{"refuse_seconds":1e300}}}`,
		`{"type":"KILL","kill":{"task_id":{"value":"t"}}}`, `{"type":"SHUTDOWN","shutdown":{"executor_id":{"value":"x"},"agent_id":{"value":"A"}}}`,
		`{"type":"ACKNOWLEDGE","acknowledge":{"agent_id":{"value":"A"},"task_id":{"value":"t"},"uuid":"AAAAAAAAAAAAAAAAAAAAAA=="}}`,
		`{"type":"RECONCILE","reconcile":{"tasks":[{"task_id":{"value":"t"}}]}}`, `{"type":"RECONCILE_OPERATIONS","reconcile_operations":{"operations":[{"operation_id":{"value":"o"}}]}}`,
		`{"type":"MESSAGE","message":{"agent_id":{"value":"A"},"executor_id":{"value":"x"},"data":"AA=="}}`, `{"type":"REQUEST","request":{"requests":[{}]}}`,
		`{"type":"UPDATE_FRAMEWORK","update_framework":{"framework_info":{"user":"u","name":"n"}}}`, `{"type":"TEARDOWN"}`,
		`{"type":"SUBSCRIBE","subscribe":{"framework_info":{"user":"u","name":"n","id":{"value":"F"},"roles":["a/b"],"capabilities":[{"type":"MULTI_ROLE"}],"failover_timeout":1e300}}}`,
	} {
		var call scheduler.Call
		if _, err := wire.UnmarshalJSON([]byte(seed), &call); err != nil {
			f.Fatal(err)
		}
		b, err := wire.Marshal(wire.Protobuf, &call)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(seed), false)
		f.Add(b, true)
	}
	list, err := resource.Parse("cpus:4;mem:4096;disk:10240;ports:[31000-32000]", "*")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, protobuf bool) {
		m := startMaster(t, nil)
		var sub subscription
		m.loop.do(func() {
			port := int32(5051)
			if _, err := m.registerAgent(link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: "A"}, Hostname: "127.0.0.1", Port: &port, Resources: list}}, "127.0.0.1:1"); err != nil {
				t.Error(err)
			}
			id := &mesos.FrameworkID{Value: "F"}
			sub = m.subscribe(&scheduler.Call{Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &mesos.FrameworkInfo{User: "u", Name: "n", ID: id}}}, wire.JSON)
			// The offer gets the name that the seeds know.
			for _, o := range m.frameworks["F"].offers {
				m.forgetOffer(o)
				o.id = "O"
				m.offers["O"], o.framework.offers["O"], o.agent.offers["O"] = o, o, o
			}
		})
		mt := wire.JSON
		if protobuf {
			mt = wire.Protobuf
		}
		if body = inTheNameOf(mt, body, "F"); body == nil {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a stream that the call opens ends at once
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/scheduler", bytes.NewReader(body))
		r.Header.Set("Content-Type", string(mt))
		var call scheduler.Call
		if _, err := wire.Unmarshal(mt, body, &call); err == nil && call.Type != scheduler.Call_SUBSCRIBE {
			r.Header.Set(streamHeader, sub.streamID)
		}
		w := httptest.NewRecorder()
		m.routes().ServeHTTP(w, r)
		if w.Code != http.StatusAccepted && w.Code != http.StatusOK && w.Code != http.StatusBadRequest && w.Code != http.StatusNotImplemented {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// inTheNameOf puts a framework's id into a call; nil if it is none.
func inTheNameOf(mt wire.MediaType, body []byte, id string) []byte {
	if mt == wire.Protobuf {
		// Of a field that is there twice the later one counts.
		field, err := (&scheduler.Call{FrameworkID: &mesos.FrameworkID{Value: id}}).Marshal()
		if err != nil {
			return nil
		}
		return append(bytes.Clone(body), field[:len(field)-2]...)
	}
	var call map[string]json.RawMessage
	if json.Unmarshal(body, &call) != nil || call == nil {
		return nil
	}
	call["framework_id"], _ = json.Marshal(map[string]string{"value": id})
	b, err := json.Marshal(call)
	if err != nil {
		return nil
	}
	return b
}
