package master

import (
	"net/http"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/link"
)

// operation waits for the verdict on an operation.
func (c *client) operation(t *testing.T) mesos.OperationStatus {
	t.Helper()
	return c.next(t, "UPDATE_OPERATION_STATUS", ofType(scheduler.Event_UPDATE_OPERATION_STATUS)).UpdateOperationStatus.Status
}

// counted reads a counter.
func counted(m *Master, name string) (n uint64) {
	m.loop.do(func() { n = m.counters[name] })
	return n
}

const (
	reservedJSON = `{"name":"cpus","type":"SCALAR","scalar":{"value":1},"reservations":[{"type":"DYNAMIC","role":"r"}]}`
	volumeJSON   = `{"name":"disk","type":"SCALAR","scalar":{"value":10},"disk":{"persistence":{"id":"p"},"volume":{"container_path":"v","mode":"RW"}}}`
)

// TestRefusedOperations: whatever the master does not carry out is told, the
// rest of the call goes on, and what is left comes back.
func TestRefusedOperations(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", `"capabilities":[{"type":"MULTI_ROLE"},{"type":"RESERVATION_REFINEMENT"}],"roles":["r"]`)
	for kind, field := range map[string]string{
		"RESERVE":       `"reserve":{"resources":[` + reservedJSON + `]}`,
		"UNRESERVE":     `"unreserve":{"resources":[` + reservedJSON + `]}`,
		"CREATE":        `"create":{"volumes":[` + volumeJSON + `]}`,
		"DESTROY":       `"destroy":{"volumes":[` + volumeJSON + `]}`,
		"GROW_VOLUME":   `"grow_volume":{"volume":` + volumeJSON + `,"addition":` + volumeJSON + `}`,
		"SHRINK_VOLUME": `"shrink_volume":{"volume":` + volumeJSON + `,"subtract":{"value":1}}`,
		"CREATE_DISK":   `"create_disk":{"source":` + volumeJSON + `,"target_type":"MOUNT"}`,
		"DESTROY_DISK":  `"destroy_disk":{"source":` + volumeJSON + `}`,
	} {
		for _, id := range []string{"", "op-" + kind} {
			o := f.offer(t)
			idField := ""
			if id != "" {
				idField = `,"id":{"value":"` + id + `"}`
			}
			f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[{"type":"`+kind+`",`+field+idField+`}]}`)
			s := f.operation(t)
			if s.OperationID.GetValue() != id || (s.OperationID == nil) != (id == "") || s.State != mesos.OPERATION_ERROR || s.UUID != nil ||
				!strings.HasPrefix(s.GetMessage(), "Not supported on agent "+a.id+" (127.0.0.1) because its master does not carry out "+kind+": ") {
				t.Errorf("%s: %v", kind, s)
			}
		}
	}
	if n := counted(m, "operations/reserve/error"); n != 2 {
		t.Errorf("%d refused reservations are counted", n)
	}
	// The task that was to use the reservation hears of it; the other one starts.
	o := f.offer(t)
	f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[`+
		`{"type":"RESERVE","id":{"value":"first"},"reserve":{"resources":[`+reservedJSON+`]}},`+
		`{"type":"LAUNCH","launch":{"task_infos":[`+taskJSON("bad", a.id, executorJSON("x")+`,"resources":[`+reservedJSON+`]`)+`,`+taskJSON("good", a.id, executorJSON("x"))+`]}}]}`)
	if s := f.operation(t); s.OperationID.GetValue() != "first" {
		t.Error(s)
	}
	if s := f.update(t, "bad"); s.GetState() != mesos.TASK_ERROR || !strings.Contains(s.GetMessage(), "is more than available") {
		t.Error(describe(s))
	}
	if run := a.want(t, link.EventRun).Run; run.Tasks[0].TaskID.Value != "good" {
		t.Errorf("%+v", run)
	}
	// Resources that are none, and offers that are gone.
	o = f.offer(t)
	f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[{"type":"RESERVE","reserve":{"resources":[{"name":"cpus","type":"SCALAR","scalar":{"value":-1}}]}}]}`)
	if s := f.operation(t); s.GetMessage() != "Operation attempted with invalid resources: Resource 'cpus:-1' is invalid: Invalid scalar resource: value <= 0" {
		t.Error(s)
	}
	f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"operations":[{"type":"CREATE","create":{"volumes":[]}}]}`)
	if s := f.operation(t); s.GetMessage() != "Operation attempted with invalid offers: Offer "+o.ID.Value+" is no longer valid" {
		t.Error(s)
	}
	f.must(t, "ACCEPT", `"accept":{"operations":[{"type":"DESTROY","destroy":{"volumes":[]}},{"type":"LAUNCH","launch":{"task_infos":[`+taskJSON("none", a.id, executorJSON("x"))+`]}}]}`)
	if s := f.operation(t); s.GetMessage() != "Operation attempted with invalid offers: No offers specified" {
		t.Error(s)
	}
	if s := f.update(t, "none"); s.GetMessage() != "Task launched with invalid offers: No offers specified" {
		t.Error(describe(s))
	}
}

// TestFeedbackForTasks: Mesos gives no operation feedback for tasks, and refuses to launch those for which it is asked.
func TestFeedbackForTasks(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	for kind, launch := range map[string]string{
		"LAUNCH":       `"launch":{"task_infos":[` + taskJSON("t", a.id, executorJSON("x")) + `]}`,
		"LAUNCH_GROUP": `"launch_group":{"executor":{"executor_id":{"value":"x"}},"task_group":{"tasks":[` + taskJSON("t", a.id, "") + `]}}`,
	} {
		f.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+f.offer(t).ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[{"type":"`+kind+`","id":{"value":"op"},`+launch+`}]}`)
		if s := f.update(t, "t"); s.GetState() != mesos.TASK_ERROR || s.GetMessage() != "The `id` field cannot be set on "+kind+" operations" {
			t.Error(describe(s))
		}
	}
}

func TestOperationCalls(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	f.must(t, "RECONCILE_OPERATIONS", `"reconcile_operations":{}`)
	for agent, want := range map[string]string{
		"":                                     "Reconciliation: Operation is unknown and no 'agent_id' was provided",
		`,"agent_id":{"value":"` + a.id + `"}`: "Reconciliation: Operation is unknown",
		`,"agent_id":{"value":"no"}`:           "Reconciliation: Both operation and agent are unknown",
	} {
		f.must(t, "RECONCILE_OPERATIONS", `"reconcile_operations":{"operations":[{"operation_id":{"value":"o"}`+agent+`}]}`)
		if s := f.operation(t); s.GetMessage() != want || s.State != mesos.OPERATION_UNKNOWN || s.OperationID.GetValue() != "o" {
			t.Errorf("%s: %v", agent, s)
		}
	}
	const uuid = `"uuid":"AAAAAAAAAAAAAAAAAAAAAA==","operation_id":{"value":"o"}`
	f.must(t, "ACKNOWLEDGE_OPERATION_STATUS", `"acknowledge_operation_status":{"agent_id":{"value":"a"},`+uuid+`}`)
	if status, body := f.call(t, "ACKNOWLEDGE_OPERATION_STATUS", `"acknowledge_operation_status":{`+uuid+`}`); status != http.StatusBadRequest || body != "Failed to validate scheduler::Call: Expecting 'agent_id' to be present" {
		t.Errorf("%d %q", status, body)
	}
	f.must(t, "REQUEST", `"request":{"requests":[{"agent_id":{"value":"a"},"resources":`+someResources+`}]}`)
	if n := counted(m, "messages_resource_request"); n != 1 {
		t.Errorf("%d requests are counted", n)
	}
	if status, body := f.call(t, "UPDATE_FRAMEWORK", `"update_framework":{"framework_info":{"id":{"value":"`+f.id+`"},`+f.info+`,"hostname":"h"}}`); status != http.StatusOK || body != "" {
		t.Errorf("UPDATE_FRAMEWORK: %d %q", status, body)
	}
}
