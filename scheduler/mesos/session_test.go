package mesos

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSubscribesAndResubscribesWithTheSameID(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	s, rec, _ := start(t, Config{Principal: "tandem", Secret: "s3cret"}, m)
	first := next(t, m.subscribes, "SUBSCRIBE")
	if first.call.FrameworkID != nil || first.call.Subscribe.FrameworkInfo.ID != nil {
		t.Errorf("a new framework subscribes with an id: %v", first.call)
	}
	if user, pass, _ := first.request.BasicAuth(); user != "tandem" || pass != "s3cret" {
		t.Errorf("credentials are %q %q", user, pass)
	}
	if s.Send(Revive()) {
		t.Error("Send before SUBSCRIBED says that the call is queued")
	}
	first.subscribed(t, "fw", 15)
	if e := nextEvent[Subscribed](t, rec); e.FrameworkID != "fw" || e.MasterID != "master-1" {
		t.Errorf("got %+v", e)
	}
	if !s.Send(Revive()) {
		t.Error("Send after SUBSCRIBED refuses")
	}
	if c := next(t, m.calls, "call"); c.Type != scheduler.Call_REVIVE || c.FrameworkID.GetValue() != "fw" {
		t.Errorf("got %v", c)
	}
	close(first.end)
	nextEvent[Disconnected](t, rec)
	second := next(t, m.subscribes, "second SUBSCRIBE")
	if second.call.FrameworkID.GetValue() != "fw" || second.call.Subscribe.FrameworkInfo.ID.GetValue() != "fw" {
		t.Errorf("the second SUBSCRIBE lacks the id: %v", second.call)
	}
	second.subscribed(t, "fw", 15)
	nextEvent[Subscribed](t, rec)
	s.Send(Suppress())
	if c := next(t, m.calls, "call"); c.Type != scheduler.Call_SUPPRESS {
		t.Errorf("got %v", c)
	}
}

func TestMissingHeartbeatsEndTheConnection(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	_, rec, _ := start(t, Config{MissedHeartbeats: 2}, m)
	s := next(t, m.subscribes, "SUBSCRIBE")
	s.subscribed(t, "fw", 0.05)
	nextEvent[Subscribed](t, rec)
	if e := nextEvent[Disconnected](t, rec); e.Reason == nil {
		t.Error("no reason")
	}
	next(t, m.subscribes, "second SUBSCRIBE")
	next(t, s.gone, "end of the first stream")
}

func TestSilentMasterIsLeft(t *testing.T) {
	t.Parallel()
	silent, good := newFakeMaster(t), newFakeMaster(t)
	start(t, Config{CallTimeout: 50 * time.Millisecond}, silent, good)
	next(t, silent.subscribes, "SUBSCRIBE at the silent master")
	next(t, good.subscribes, "SUBSCRIBE at the other master")
}

func TestFollowsTheLeader(t *testing.T) {
	t.Parallel()
	follower, leader := newFakeMaster(t), newFakeMaster(t)
	follower.setAnswer(func(w http.ResponseWriter, _ *http.Request, _ *scheduler.Call) bool {
		w.Header().Set("Location", "//"+leader.url().Host+schedulerPath)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	s, rec, _ := start(t, Config{}, follower)
	next(t, leader.subscribes, "SUBSCRIBE at the leader").subscribed(t, "fw", 15)
	if e := nextEvent[Subscribed](t, rec); e.Master.Host != leader.url().Host {
		t.Errorf("master is %s, want %s", e.Master, leader.url())
	}
	s.Send(Revive())
	next(t, leader.calls, "call at the leader")
}

func TestRedirectLoopIsRetriedNotFollowedForEver(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	asked := make(chan struct{}, 1000)
	m.setAnswer(func(w http.ResponseWriter, _ *http.Request, _ *scheduler.Call) bool {
		if len(asked) > 20 {
			return false
		}
		asked <- struct{}{}
		w.Header().Set("Location", "//"+m.url().Host+schedulerPath)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	start(t, Config{}, m)
	next(t, m.subscribes, "SUBSCRIBE after the loop is resolved")
}

func TestRecoveringMasterIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	n := 0
	m.setAnswer(func(w http.ResponseWriter, _ *http.Request, _ *scheduler.Call) bool {
		if n++; n > 3 {
			return false
		}
		http.Error(w, "Master has not finished recovery", http.StatusServiceUnavailable)
		return true
	})
	start(t, Config{}, m)
	next(t, m.subscribes, "SUBSCRIBE")
}

func TestRemovedFrameworkSubscribesAnew(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	_, rec, _ := start(t, Config{}, m)
	s := next(t, m.subscribes, "SUBSCRIBE")
	s.subscribed(t, "old", 15)
	nextEvent[Subscribed](t, rec)
	s.send(t, errorEvent("Framework has been removed"))
	nextEvent[Removed](t, rec)
	nextEvent[Disconnected](t, rec)
	if again := next(t, m.subscribes, "SUBSCRIBE"); again.call.FrameworkID != nil {
		t.Errorf("subscribes with the removed id: %v", again.call)
	}
}

func TestFailedOverEndsTheSession(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	_, _, result := start(t, Config{}, m)
	s := next(t, m.subscribes, "SUBSCRIBE")
	s.subscribed(t, "fw", 15)
	s.send(t, errorEvent("Framework failed over"))
	if err := next(t, result, "end of the session"); !errors.Is(err, ErrFailedOver) {
		t.Errorf("got %v", err)
	}
}

func TestRefusedCallIsReported(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	s, rec, _ := start(t, Config{}, m)
	next(t, m.subscribes, "SUBSCRIBE").subscribed(t, "fw", 15)
	nextEvent[Subscribed](t, rec)
	m.setAnswer(func(w http.ResponseWriter, _ *http.Request, c *scheduler.Call) bool {
		if c.Type == scheduler.Call_ACCEPT {
			http.Error(w, "Expecting 'launch_group.executor' to be present", http.StatusBadRequest)
			return true
		}
		return false
	})
	s.Send(Accept([]string{"o1"}, nil, 0))
	s.Send(Revive())
	if e := nextEvent[Refused](t, rec); e.Call.Accept.OfferIDs[0].Value != "o1" || !strings.Contains(e.Err.Error(), "launch_group") {
		t.Errorf("got %+v", e)
	}
	if c := next(t, m.calls, "call after the refused one"); c.Type != scheduler.Call_REVIVE {
		t.Errorf("got %v", c)
	}
}

func TestUncertainCallEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter){
		"server error": func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) },
		"stale stream": func(w http.ResponseWriter) {
			http.Error(w, "The stream ID included in this request didn't match", http.StatusBadRequest)
		},
		"not subscribed": func(w http.ResponseWriter) { http.Error(w, "Framework is not subscribed", http.StatusForbidden) },
		"broken off": func(w http.ResponseWriter) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newFakeMaster(t)
			s, rec, _ := start(t, Config{}, m)
			next(t, m.subscribes, "SUBSCRIBE").subscribed(t, "fw", 15)
			nextEvent[Subscribed](t, rec)
			m.setAnswer(func(w http.ResponseWriter, _ *http.Request, c *scheduler.Call) bool {
				if c.Type == scheduler.Call_ACCEPT {
					answer(w)
					return true
				}
				return false
			})
			s.Send(Accept([]string{"o1"}, nil, 0))
			nextEvent[Disconnected](t, rec)
			next(t, m.subscribes, "second SUBSCRIBE")
		})
	}
}

// A RECONCILE must not overtake the ACCEPT of its task.
func TestCallsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	s, rec, _ := start(t, Config{}, m)
	next(t, m.subscribes, "SUBSCRIBE").subscribed(t, "fw", 15)
	nextEvent[Subscribed](t, rec)
	for i := range 100 {
		s.Send(Reconcile([]Task{{TaskID: strings.Repeat("x", i+1)}}))
	}
	for i := range 100 {
		if c := next(t, m.calls, "call"); len(c.Reconcile.Tasks[0].TaskID.Value) != i+1 {
			t.Fatalf("call %d is %v", i, c)
		}
	}
}

func TestGarbageEndsTheConnection(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	_, rec, _ := start(t, Config{}, m)
	s := next(t, m.subscribes, "SUBSCRIBE")
	s.subscribed(t, "fw", 15)
	nextEvent[Subscribed](t, rec)
	s.raw <- []byte("<html>")
	if e := nextEvent[Disconnected](t, rec); !strings.Contains(e.Reason.Error(), "not a RecordIO stream") {
		t.Errorf("reason is %v", e.Reason)
	}
	next(t, m.subscribes, "second SUBSCRIBE")
}

func TestParseMasters(t *testing.T) {
	t.Parallel()
	got, err := ParseMasters("m1, https://m2:6060 ,[::1]:5051")
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, u := range got {
		hosts = append(hosts, u.String())
	}
	if s := strings.Join(hosts, " "); s != "http://m1:5050 https://m2:6060 http://[::1]:5051" {
		t.Errorf("got %s", s)
	}
	for bad, want := range map[string]string{
		"": "no master", "zk://a/mesos": "not supported", "ftp://x": "not an address", "m1/path": "not an address", "http://": "not an address",
	} {
		if _, err := ParseMasters(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", bad, err, want)
		}
	}
}

func TestMessagesGoBothWays(t *testing.T) {
	t.Parallel()
	m := newFakeMaster(t)
	s, rec, _ := start(t, Config{}, m)
	stream := next(t, m.subscribes, "SUBSCRIBE")
	stream.subscribed(t, "fw", 15)
	nextEvent[Subscribed](t, rec)
	s.Send(Message("x1", "a1", []byte("ask")))
	if c := next(t, m.calls, "call"); c.Type != scheduler.Call_MESSAGE || c.Message.ExecutorID.Value != "x1" || c.Message.AgentID.Value != "a1" || string(c.Message.Data) != "ask" {
		t.Errorf("got %v", c)
	}
	stream.send(t, &scheduler.Event{Type: scheduler.Event_MESSAGE, Message: &scheduler.Event_Message{
		AgentID: mesos.AgentID{Value: "a1"}, ExecutorID: mesos.ExecutorID{Value: "x1"}, Data: []byte{0, 1},
	}})
	if e := nextEvent[Messaged](t, rec); e.AgentID != "a1" || e.ExecutorID != "x1" || string(e.Data) != "\x00\x01" {
		t.Errorf("got %+v", e)
	}
}
