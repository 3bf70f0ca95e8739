package master

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// follow subscribes to the master's events in one form.
func follow(t *testing.T, m *Master, mt wire.MediaType) *records[apimaster.Event] {
	t.Helper()
	body, err := wire.Marshal(mt, &apimaster.Call{Type: apimaster.Call_SUBSCRIBE})
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, m.URL()+"/api/v1", map[string]string{"Content-Type": string(mt), "Accept": string(mt)}, body, func(b []byte) apimaster.Event {
		var e apimaster.Event
		if _, err := wire.Unmarshal(mt, b, &e); err != nil {
			t.Errorf("event %q: %v", b, err)
		}
		return e
	})
	if r.status != http.StatusOK || r.header.Get("Content-Type") != string(mt) {
		t.Fatalf("SUBSCRIBE: %d %v %s", r.status, r.header, r.body)
	}
	return r
}

// first waits for the next event, whatever it is.
func first(t *testing.T, r *records[apimaster.Event], want apimaster.Event_Type) apimaster.Event {
	t.Helper()
	e := r.next(t, want.String(), func(apimaster.Event) bool { return true })
	if e.Type != want {
		t.Fatalf("%s came, not %s: %+v", e.Type, want, e)
	}
	return e
}

// TestEventStream follows a cluster through all that a subscriber is told, in the order in which it happens.
func TestEventStream(t *testing.T) {
	t.Parallel()
	for _, mt := range []wire.MediaType{wire.JSON, wire.Protobuf} {
		t.Run(string(mt), func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, nil)
			old := subscribe(t, m, "", multiRole)
			s := follow(t, m, mt)
			hello := first(t, s, apimaster.Event_SUBSCRIBED).Subscribed
			if fs := hello.GetState.GetFrameworks.Frameworks; len(fs) != 1 || fs[0].FrameworkInfo.ID.Value != old.id || hello.GetHeartbeatIntervalSeconds() != 15 {
				t.Errorf("%+v", hello)
			}
			first(t, s, apimaster.Event_HEARTBEAT)
			old.must(t, "TEARDOWN", "")
			if e := first(t, s, apimaster.Event_FRAMEWORK_REMOVED); e.FrameworkRemoved.FrameworkInfo.ID.Value != old.id {
				t.Errorf("%+v", e)
			}

			f := subscribe(t, m, "", multiRole+`,"failover_timeout":60`)
			if e := first(t, s, apimaster.Event_FRAMEWORK_ADDED).FrameworkAdded.Framework; e.FrameworkInfo.ID.Value != f.id || !e.Active || !e.Connected || e.Recovered ||
				e.RegisteredTime.Nanoseconds == 0 || *e.ReregisteredTime != *e.RegisteredTime || e.UnregisteredTime == nil || e.UnregisteredTime.Nanoseconds != 0 {
				t.Errorf("%+v", e)
			}
			f = subscribe(t, m, f.id, multiRole+`,"failover_timeout":30`)
			if e := first(t, s, apimaster.Event_FRAMEWORK_UPDATED).FrameworkUpdated.Framework; e.FrameworkInfo.GetFailoverTimeout() != 30 {
				t.Errorf("%+v", e)
			}
			a := startAgent(t, m, nil)
			if e := first(t, s, apimaster.Event_AGENT_ADDED).AgentAdded.Agent; e.AgentInfo.ID.Value != a.id || !e.Active || len(e.TotalResources) != 4 || len(e.Capabilities) != 8 {
				t.Errorf("%+v", e)
			}
			f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
			if e := first(t, s, apimaster.Event_TASK_ADDED).TaskAdded.Task; e.TaskID.Value != "t" || e.GetState() != mesos.TASK_STAGING || e.FrameworkID.Value != f.id || e.AgentID.Value != a.id {
				t.Errorf("%+v", e)
			}
			a.report(t, f.id, "x", "t", mesos.TASK_RUNNING)
			a.report(t, f.id, "x", "t", mesos.TASK_RUNNING) // no new state: nothing is told
			a.report(t, f.id, "x", "t", mesos.TASK_FINISHED)
			for _, state := range []mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_FINISHED} {
				if e := first(t, s, apimaster.Event_TASK_UPDATED).TaskUpdated; e.GetState() != state || e.Status.GetState() != state || e.Status.TaskID.Value != "t" || e.FrameworkID.Value != f.id || len(e.Status.UUID) != 16 {
					t.Errorf("%+v", e)
				}
			}
			a.call(t, link.Call{Type: link.CallUnregister})
			if e := first(t, s, apimaster.Event_AGENT_REMOVED).AgentRemoved; e.AgentID.Value != a.id {
				t.Errorf("%+v", e)
			}
			m.Close()
			s.waitEnd(t)
		})
	}
}

// TestEventsOfAnAgentThatComesBack: the order is Mesos's.
func TestEventsOfAnAgentThatComesBack(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	s := follow(t, m, wire.JSON)
	s.next(t, "HEARTBEAT", func(e apimaster.Event) bool { return e.Type == apimaster.Event_HEARTBEAT })
	first(t, s, apimaster.Event_SUBSCRIBED)
	info := mesos.FrameworkInfo{User: "u", Name: "n", ID: &mesos.FrameworkID{Value: "old"}}
	task := func(id, agent string) mesos.TaskInfo {
		return mesos.TaskInfo{TaskID: mesos.TaskID{Value: id}, AgentID: mesos.AgentID{Value: agent}}
	}
	startAgent(t, m, &link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: "a1"}}, Frameworks: []mesos.FrameworkInfo{info},
		Tasks: []link.Task{{FrameworkID: *info.ID, Info: task("t1", "a1"), State: mesos.TASK_RUNNING}}})
	first(t, s, apimaster.Event_AGENT_ADDED)
	if e := first(t, s, apimaster.Event_FRAMEWORK_ADDED).FrameworkAdded.Framework; !e.Recovered || e.Connected {
		t.Errorf("%+v", e)
	}
	if e := first(t, s, apimaster.Event_TASK_ADDED).TaskAdded.Task; e.GetState() != mesos.TASK_RUNNING {
		t.Errorf("%+v", e)
	}
	startAgent(t, m, &link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: "a2"}}, Frameworks: []mesos.FrameworkInfo{info},
		Tasks: []link.Task{{FrameworkID: *info.ID, Info: task("t2", "a2"), State: mesos.TASK_RUNNING}}})
	first(t, s, apimaster.Event_TASK_ADDED)
	first(t, s, apimaster.Event_AGENT_ADDED)
}

func TestHeartbeatsOfEvents(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.HeartbeatInterval = time.Hour })
	s := follow(t, m, wire.JSON)
	first(t, s, apimaster.Event_SUBSCRIBED)
	for range 3 {
		first(t, s, apimaster.Event_HEARTBEAT)
		advance(m, time.Hour)
	}
	if got := metric(t, m, "master/operator_event_stream_subscribers"); got != 1 {
		t.Errorf("subscribers: %v", got)
	}
	s.cancel()
	waitFor(t, "the subscriber to be forgotten", func() bool { return metric(t, m, "master/operator_event_stream_subscribers") == 0 })
}

// TestTooManyFollowers: the oldest has to go.
func TestTooManyFollowers(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.MaxOperatorEventStreamSubscribers = 2 })
	streams := []*records[apimaster.Event]{follow(t, m, wire.JSON), follow(t, m, wire.JSON), follow(t, m, wire.JSON)}
	streams[0].waitEnd(t)
	subscribe(t, m, "", multiRole)
	for _, s := range streams[1:] {
		s.next(t, "FRAMEWORK_ADDED", func(e apimaster.Event) bool { return e.Type == apimaster.Event_FRAMEWORK_ADDED })
	}
}

// TestSlowFollower: who does not read is disconnected when the buffer is full;
// others and the master go on.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	quick := follow(t, m, wire.JSON)
	conn, err := net.Dial("tcp", m.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"type":"SUBSCRIBE"}`
	if _, err := conn.Write([]byte("POST /api/v1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n" + body)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "two subscribers", func() bool { return metric(t, m, "master/operator_event_stream_subscribers") == 2 })
	// Enough to fill the kernel's buffers and the stream's own: 200 events of 1 MB.
	long := strings.Repeat("x", 1<<20)
	for range 200 {
		quick.mu.Lock()
		quick.events = slices.DeleteFunc(quick.events, func(e apimaster.Event) bool { return e.Type == apimaster.Event_FRAMEWORK_REMOVED })
		quick.mu.Unlock()
		sent := false
		m.loop.do(func() {
			m.publishFrameworkRemoved(&framework{info: mesos.FrameworkInfo{User: "u", Name: long}})
			sent = true
		})
		if !sent {
			t.Fatal("the master ended")
		}
		quick.next(t, "FRAMEWORK_REMOVED", func(e apimaster.Event) bool { return e.Type == apimaster.Event_FRAMEWORK_REMOVED })
		if metric(t, m, "master/operator_event_stream_subscribers") == 1 {
			return
		}
	}
	t.Error("who does not read is still there")
}

// TestFollowingFromTheMiddle: whoever begins to follow a busy master knows every
// task exactly once, by the state or by an event.
func TestFollowingFromTheMiddle(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.AllocationInterval = time.Millisecond })
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole)
	var streams []*records[apimaster.Event]
	const tasks = 20
	for i := range tasks {
		id := strings.Repeat("t", i+1)
		f.launch(t, f.offer(t), taskJSON(id, a.id, executorJSON("x")))
		if i%4 == 0 {
			// The next launch does not wait for it.
			streams = append(streams, follow(t, m, wire.JSON), follow(t, m, wire.Protobuf))
		}
		a.report(t, f.id, "x", id, mesos.TASK_RUNNING)
		f.update(t, id)
	}
	for n, s := range streams {
		seen := map[string]int{}
		for _, x := range first(t, s, apimaster.Event_SUBSCRIBED).Subscribed.GetState.GetTasks.Tasks {
			seen[x.TaskID.Value]++
		}
		for len(seen) < tasks {
			e := s.next(t, "TASK_ADDED", func(e apimaster.Event) bool { return e.Type == apimaster.Event_TASK_ADDED })
			seen[e.TaskAdded.Task.TaskID.Value]++
		}
		for id, times := range seen {
			if times != 1 {
				t.Errorf("stream %d: task %s came %d times", n, id, times)
			}
		}
		s.none(t, "a task twice", time.Millisecond, func(e apimaster.Event) bool { return e.Type == apimaster.Event_TASK_ADDED })
	}
}
