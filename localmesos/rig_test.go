package localmesos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
)

// rigPatience bounds every wait; nothing waits that long unless it fails.
const rigPatience = 20 * time.Second

// rig is a scheduler, and executors that the test itself plays: what the agent
// starts for them only sleeps.
type rig struct {
	*framework
	agentURL string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c := start(t, 1)
	return &rig{framework: subscribe(t, c, ""), agentURL: c.Agent(0).URL()}
}

// waitFor returns the next event that is wanted. Unlike next it acknowledges nothing.
func (r *rig) waitFor(what string, want func(scheduler.Event) bool) scheduler.Event {
	r.t.Helper()
	deadline := time.After(rigPatience)
	for {
		select {
		case e, ok := <-r.events:
			if !ok {
				r.t.Fatalf("%s did not come before the stream ended", what)
			}
			if want(e) {
				return e
			}
		case <-deadline:
			r.t.Fatalf("%s did not come", what)
		}
	}
}

// status waits for the next update of a task.
func (r *rig) status(task string) mesos.TaskStatus {
	r.t.Helper()
	return r.waitFor("an update of "+task, func(e scheduler.Event) bool {
		return e.Type == scheduler.Event_UPDATE && e.Update.Status.TaskID.Value == task
	}).Update.Status
}

func (r *rig) acknowledge(s mesos.TaskStatus) {
	r.t.Helper()
	r.call(&scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE, Acknowledge: &scheduler.Call_Acknowledge{AgentID: *s.AgentID, TaskID: s.TaskID, UUID: s.UUID}})
}

func (r *rig) offer() mesos.Offer {
	r.t.Helper()
	return r.waitFor("an offer", func(e scheduler.Event) bool { return e.Type == scheduler.Event_OFFERS }).Offers.Offers[0]
}

// task is a task on an executor whose command is a shell's.
func (r *rig) task(id, executorID, command string, o mesos.Offer) mesos.TaskInfo {
	return mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}, AgentID: o.AgentID, Resources: amounts(0.1, 32),
		Executor: &mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: executorID}, Command: &mesos.CommandInfo{Value: &command}}}
}

func amounts(cpus, mem float64) []mesos.Resource {
	kind := mesos.SCALAR
	return []mesos.Resource{{Name: "cpus", Type: &kind, Scalar: &mesos.Value_Scalar{Value: cpus}}, {Name: "mem", Type: &kind, Scalar: &mesos.Value_Scalar{Value: mem}}}
}

// accept launches tasks by one LAUNCH; what is left comes back at once.
func (r *rig) accept(o mesos.Offer, tasks ...mesos.TaskInfo) {
	r.t.Helper()
	none := 0.0
	r.call(&scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{OfferIDs: []mesos.OfferID{o.ID}, Filters: &mesos.Filters{RefuseSeconds: &none},
		Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: tasks}}}}})
}

// sleeper is the command of an executor that the test plays.
const sleeper = "exec sleep 100"

// launchOn starts tasks on an executor that the test plays, and subscribes for it.
func (r *rig) launchOn(executorID string, tasks ...string) *player {
	r.t.Helper()
	o := r.offer()
	infos := make([]mesos.TaskInfo, len(tasks))
	for i, id := range tasks {
		infos[i] = r.task(id, executorID, sleeper, o)
	}
	r.accept(o, infos...)
	x := &player{r: r, id: executorID, events: make(chan played, 1000)}
	x.subscribe()
	for _, id := range tasks {
		if e := x.next(executor.Event_LAUNCH); e.Launch.Task.TaskID.Value != id {
			r.t.Fatalf("launched is %s, not %s", e.Launch.Task.TaskID.Value, id)
		}
	}
	return x
}

// player is an executor.
type player struct {
	r      *rig
	id     string
	events chan played
}

// played is an event, decoded and as it came.
type played struct {
	executor.Event
	text string
}

// subscribe tries again until the agent knows the executor.
func (x *player) subscribe() {
	x.r.t.Helper()
	for end := time.Now().Add(rigPatience); ; time.Sleep(5 * time.Millisecond) {
		resp := x.post(`{"type":"SUBSCRIBE","subscribe":{}`)
		if resp.StatusCode == http.StatusOK {
			x.r.t.Cleanup(func() { resp.Body.Close() })
			go x.read(resp.Body)
			return
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if time.Now().After(end) {
			x.r.t.Fatalf("SUBSCRIBE: %s %s", resp.Status, text)
		}
	}
}

func (x *player) read(body io.Reader) {
	defer close(x.events)
	in := wire.NewRecordReader(body)
	for {
		b, err := in.Next()
		if err != nil {
			return
		}
		p := played{text: string(b)}
		if _, err := wire.UnmarshalJSON(b, &p.Event); err != nil {
			x.r.t.Errorf("event %s: %v", b, err)
			return
		}
		x.events <- p
	}
}

func (x *player) post(call string) *http.Response {
	x.r.t.Helper()
	body := call + fmt.Sprintf(`,"framework_id":{"value":%q},"executor_id":{"value":%q}}`, x.r.id, x.id)
	req, err := http.NewRequest(http.MethodPost, x.r.agentURL+"/api/v1/executor", strings.NewReader(body))
	if err != nil {
		x.r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(wire.JSON))
	req.Header.Set("Accept", string(wire.JSON))
	resp, err := oneShot.Do(req)
	if err != nil {
		x.r.t.Fatal(err)
	}
	return resp
}

// next waits for the next event of a type; others on the way are passed over.
func (x *player) next(kind executor.Event_Type) played {
	x.r.t.Helper()
	deadline := time.After(rigPatience)
	for {
		select {
		case e, ok := <-x.events:
			if !ok {
				x.r.t.Fatalf("%s did not come before the stream ended", kind)
			}
			if e.Type == kind {
				return e
			}
		case <-deadline:
			x.r.t.Fatalf("%s did not come", kind)
		}
	}
}

// update sends an update and returns its uuid; more are further fields of the status, as JSON.
func (x *player) update(task, state, more string) []byte {
	x.r.t.Helper()
	uuid := wire.UUIDBytes()
	x.updateAgain(task, state, more, uuid)
	return uuid
}

func (x *player) updateAgain(task, state, more string, uuid []byte) {
	x.r.t.Helper()
	text, err := json.Marshal(uuid)
	if err != nil {
		x.r.t.Fatal(err)
	}
	if more != "" {
		more = "," + more
	}
	resp := x.post(fmt.Sprintf(`{"type":"UPDATE","update":{"status":{"task_id":{"value":%q},"state":%q,"source":"SOURCE_EXECUTOR","uuid":%s%s}}`, task, state, text, more))
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		x.r.t.Fatalf("UPDATE: %s %s", resp.Status, b)
	}
}

// acknowledged waits for the agent's ACKNOWLEDGED of an update.
func (x *player) acknowledged(uuid []byte) {
	x.r.t.Helper()
	if e := x.next(executor.Event_ACKNOWLEDGED); !bytes.Equal(e.Acknowledged.UUID, uuid) {
		x.r.t.Fatalf("acknowledged is %x, not %x", e.Acknowledged.UUID, uuid)
	}
}
