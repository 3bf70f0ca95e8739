package fault

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// TestCheck walks every kind on every role.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		for _, role := range both {
			f := Fault{Kind: k}
			if parts := Parts(k, role); len(parts) > 0 {
				f.Part = parts[0]
			}
			if rules[k].by == mustBy {
				f.By = Duration(time.Second)
			}
			got, err := f.Check(role)
			if (err == nil) != Allowed(k, role) {
				t.Errorf("%s on the %s: %v", k, role, err)
				continue
			}
			if err == nil && rules[k].lasting != (got.For == Duration(DefaultFor)) {
				t.Errorf("%s on the %s lasts %s", k, role, time.Duration(got.For))
			}
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    Fault
		role Role
		want string
	}{
		{Fault{Kind: "explode"}, OnMaster, "is unknown"},
		{Fault{Kind: Cut}, OnMaster, "no part given"},
		{Fault{Kind: Cut, Part: Executor}, OnMaster, "is not on the master; use one of scheduler, agent, operator"},
		{Fault{Kind: Cut, Part: Scheduler, For: Duration(2 * time.Hour)}, OnMaster, "is more than 1h0m0s"},
		{Fault{Kind: Cut, Part: Scheduler, For: -1}, OnMaster, "is negative"},
		{Fault{Kind: Cut, Part: Scheduler, Task: "t"}, OnMaster, `task "t" has no meaning`},
		{Fault{Kind: Freeze, Part: Scheduler}, OnMaster, "has no meaning"},
		{Fault{Kind: Freeze, By: 1}, OnMaster, "has no meaning"},
		{Fault{Kind: Delay, Part: Scheduler}, OnMaster, "does not say by how much"},
		{Fault{Kind: Drop, Times: -1}, OnMaster, "is not between"},
		{Fault{Kind: Drop, Message: "kill"}, OnAgent, "use update or acknowledgement"},
		{Fault{Kind: Drop, Message: Acknowledgement, Executor: "x"}, OnAgent, "names no executor"},
		{Fault{Kind: Drop, State: "RUNNING"}, OnAgent, "use such as TASK_RUNNING"},
		{Fault{Kind: Kill, For: 1}, OnAgent, "it has no duration"},
		{Fault{Kind: Lose}, OnMaster, "it is for the agent"},
		{Fault{Kind: Rescind}, OnAgent, "it is for the master"},
	} {
		if _, err := c.f.Check(c.role); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on the %s: %v, want %q", c.f, c.role, err, c.want)
		}
	}
}

func TestNilSetHasNoFaults(t *testing.T) {
	t.Parallel()
	var s *Set
	if s.Copies(Update, Subject{}) != 1 || s.OffersPaused() || s.ConnContext(t.Context(), nil) != t.Context() {
		t.Error("a nil set has faults")
	}
	s.Close()
}

func TestCopies(t *testing.T) {
	t.Parallel()
	s := New(Options{Role: OnMaster, Name: "master"})
	add := func(f Fault) Fault {
		t.Helper()
		f, err := s.Add(f)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	x := Subject{Framework: []string{"id", "name"}, Agent: []string{"S1", "host"}, Task: "t1", State: mesos.TASK_RUNNING}
	copies := func(want int) {
		t.Helper()
		if n := s.Copies(Update, x); n != want {
			t.Errorf("%d copies, want %d", n, want)
		}
	}
	copies(1)
	add(Fault{Kind: Drop, Task: "other"})
	add(Fault{Kind: Drop, State: "TASK_LOST"})
	add(Fault{Kind: Drop, Framework: "name2"})
	add(Fault{Kind: Drop, Message: Acknowledgement})
	copies(1)
	add(Fault{Kind: Drop, Framework: "name", Agent: "host", Task: "t1", State: "TASK_RUNNING", Times: 2})
	copies(0)
	copies(0)
	copies(1)
	add(Fault{Kind: Duplicate, Times: 1})
	add(Fault{Kind: Duplicate})
	copies(3)
	copies(2)
	if n := s.ClearKind(Duplicate); n != 1 {
		t.Errorf("%d cleared", n)
	}
	copies(1)
	past := s.Past()
	if len(s.List()) != 4 || len(past) != 3 || past[0].Hits != 2 || past[0].Ended == "" {
		t.Errorf("%v, %v", s.List(), past)
	}
	if n := s.ClearAll(); n != 4 || len(s.List()) != 0 {
		t.Errorf("%d cleared", n)
	}
}

func TestFaultsEndByThemselves(t *testing.T) {
	t.Parallel()
	frozen := make(chan (<-chan struct{}), 1)
	s := New(Options{Role: OnMaster, Name: "master", Freeze: func(thawed <-chan struct{}) { frozen <- thawed }})
	if _, err := s.Add(Fault{Kind: PauseOffers, For: Duration(time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return !s.OffersPaused() })
	if _, err := s.Add(Fault{Kind: Freeze, For: Duration(50 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(Fault{Kind: Freeze}); err == nil {
		t.Error("it was frozen twice")
	}
	<-<-frozen
	waitUntil(t, func() bool { return len(s.List()) == 0 })
	if _, err := s.Add(Fault{Kind: Freeze}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	<-<-frozen
	if _, err := s.Add(Fault{Kind: PauseOffers}); err == nil {
		t.Error("a closed set took a fault")
	}
	for range maxPast + 10 {
		s.mu.Lock()
		s.keep(Fault{})
		s.mu.Unlock()
	}
	if len(s.Past()) != maxPast {
		t.Errorf("%d are kept", len(s.Past()))
	}
}

func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come true")
		}
	}
}

func TestWarnedOfAnAddressThatOthersReach(t *testing.T) {
	t.Parallel()
	for ip, warned := range map[string]bool{"127.0.0.1": false, "::1": false, "10.1.2.3": true, "0.0.0.0": true} {
		var log strings.Builder
		New(Options{Role: OnAgent, Name: "agent", IP: ip, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if got := strings.Contains(log.String(), "others may reach"); got != warned {
			t.Errorf("%s: warned %v, log %q", ip, got, log.String())
		}
	}
}
