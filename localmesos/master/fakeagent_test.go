package master

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// fakeAgent speaks the private protocol.
type fakeAgent struct {
	*records[link.Event]
	m  *Master
	id string
}

// startAgent registers an agent; sub may be nil for a new one.
func startAgent(t *testing.T, m *Master, sub *link.Subscribe) *fakeAgent {
	t.Helper()
	if sub == nil {
		sub = &link.Subscribe{}
	}
	a := openAgent(t, m, *sub)
	if a.status != http.StatusOK {
		t.Fatalf("subscribe: %d %s", a.status, a.body)
	}
	a.id = a.want(t, link.EventRegistered).Registered.AgentID.Value
	return a
}

// openAgent sends a registration and does not wait for the answer to it.
func openAgent(t *testing.T, m *Master, sub link.Subscribe) *fakeAgent {
	t.Helper()
	if sub.AgentInfo.Hostname == "" || sub.AgentInfo.Resources == nil {
		list, err := resource.Parse("cpus:4;mem:4096;disk:10240;ports:[31000-32000]", "*")
		if err != nil {
			t.Fatal(err)
		}
		port := int32(5051)
		sub.AgentInfo.Resources = list
		if sub.AgentInfo.Hostname == "" {
			sub.AgentInfo.Hostname, sub.AgentInfo.Port = "127.0.0.1", &port
		}
	}
	body, err := json.Marshal(sub)
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{m: m}
	a.records = open(t, m.URL()+link.Path+"/subscribe", map[string]string{"Content-Type": "application/json"}, body, func(b []byte) link.Event {
		var e link.Event
		if err := json.Unmarshal(b, &e); err != nil {
			t.Errorf("message %s: %v", b, err)
		}
		return e
	})
	return a
}

func (a *fakeAgent) want(t *testing.T, kind link.EventType) link.Event {
	t.Helper()
	return a.next(t, string(kind), func(e link.Event) bool { return e.Type == kind })
}

func (a *fakeAgent) call(t *testing.T, c link.Call) int {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	status, _ := post(t, a.m.URL()+link.Path+"/call", map[string]string{"Content-Type": "application/json", link.StreamHeader: a.header.Get(link.StreamHeader)}, string(b))
	return status
}

// report sends an update of a task with an executor.
func (a *fakeAgent) report(t *testing.T, framework, executor, task string, state mesos.TaskState) []byte {
	t.Helper()
	source, uuid, now := mesos.SOURCE_EXECUTOR, wire.UUIDBytes(), float64(time.Now().Unix())
	status := a.call(t, link.Call{Type: link.CallUpdate, Update: &link.StatusUpdate{
		FrameworkID: mesos.FrameworkID{Value: framework}, ExecutorID: executor, LatestState: state,
		Status: mesos.TaskStatus{TaskID: mesos.TaskID{Value: task}, State: &state, Source: &source, UUID: uuid, Timestamp: &now,
			AgentID: &mesos.AgentID{Value: a.id}, ExecutorID: &mesos.ExecutorID{Value: executor}},
	}})
	if status != http.StatusAccepted {
		t.Fatalf("update: %d", status)
	}
	return uuid
}

// answerPings answers the master's pings until stop is called.
func (a *fakeAgent) answerPings(t *testing.T) (stop func()) {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
			a.mu.Lock()
			i := slices.IndexFunc(a.events, func(e link.Event) bool { return e.Type == link.EventPing })
			var n *uint64
			if i >= 0 {
				n = a.events[i].Ping
				a.events = slices.Delete(a.events, i, i+1)
			}
			a.mu.Unlock()
			if n != nil {
				a.call(t, link.Call{Type: link.CallPong, PongFor: n})
			}
		}
	}()
	return func() { close(quit); <-done }
}

// vanish breaks the connection.
func (a *fakeAgent) vanish() { a.cancel() }
