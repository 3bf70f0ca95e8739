package processdaemon

import (
	"slices"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestPhaseOfEveryState: each state with each of its details is one of the seven
// phases, each phase is reached, and only ended tasks are stopped or failed.
func TestPhaseOfEveryState(t *testing.T) {
	t.Parallel()
	type one struct {
		d    details
		want protocol.Phase
	}
	ok, bad, lost := &protocol.Exit{Known: true}, &protocol.Exit{Known: true, Code: 1}, &protocol.Exit{}
	term := &protocol.Exit{Known: true, Signal: 15}
	over := []one{
		{details{exit: ok}, "stopped"}, {details{exit: bad}, "failed"}, {details{exit: lost}, "failed"}, {details{exit: term}, "failed"},
		{details{failure: "no such user"}, "failed"}, {details{failure: "it ended early", exit: ok}, "failed"}, {details{}, "stopped"},
		// What was asked for is no failure.
		{details{asked: true, exit: term}, "stopped"}, {details{asked: true, exit: bad}, "stopped"},
		{details{asked: true, failure: "stopped before its start was complete"}, "stopped"},
	}
	want := map[protocol.State][]one{
		preparing:   {{details{}, "staging"}, {details{fetching: true}, "fetching"}},
		ready:       {{details{}, "staging"}, {details{fetching: true}, "staging"}},
		starting:    {{details{}, "starting"}, {details{fetching: true}, "starting"}},
		settling:    {{details{}, "starting"}},
		running:     {{details{}, "running"}, {details{exit: bad}, "running"}},
		stopping:    {{details{asked: true}, "stopping"}},
		terminating: {{details{asked: true}, "stopping"}},
		draining:    {{details{asked: true, exit: ok}, "stopping"}},
		killing:     {{details{failure: "not alive"}, "stopping"}, {details{exit: bad}, "stopping"}},
		ended:       over,
		deleted:     over,
	}
	reached := map[protocol.Phase]bool{}
	for _, s := range states {
		if len(want[s]) == 0 {
			t.Errorf("%s: no phase is expected", s)
		}
		for _, c := range want[s] {
			got := phaseOf(s, c.d)
			if got != c.want {
				t.Errorf("%s %+v: %s, want %s", s, c.d, got, c.want)
			}
			if !slices.Contains(protocol.Phases(), got) {
				t.Errorf("%s: %q is no phase", s, got)
			}
			reached[got] = true
		}
	}
	for _, p := range protocol.Phases() {
		if !reached[p] {
			t.Errorf("no state is %s", p)
		}
	}
}

// TestPhasesOfTasks: the phases that a client sees of real tasks.
func TestPhasesOfTasks(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	fetching := spec(d, "fetching", "true")
	fetching.URIs = []protocol.URI{{Value: stalled(t)}}
	if _, err := d.Create(fetching); err != nil {
		t.Fatal(err)
	}
	for id, cmd := range map[string]string{"staging": "true", "running": "sleep 60", "succeeds": "true", "fails": "exit 3", "stopped": "sleep 60"} {
		create(t, d, spec(d, id, cmd))
	}
	for _, id := range []string{"running", "succeeds", "fails", "stopped"} {
		if _, err := d.Start(id); err != nil {
			t.Fatal(err)
		}
	}
	s := spec(d, "starting", "sleep 60")
	s.PidFile = "app.pid"
	run(t, d, s)
	if _, err := d.Stop("stopped", time.Minute); err != nil {
		t.Fatal(err)
	}
	want := map[string]protocol.Phase{
		"fetching": "fetching", "staging": "staging", "starting": "starting", "running": "running",
		"succeeds": "stopped", "fails": "failed", "stopped": "stopped",
	}
	for id, phase := range want {
		eventually(t, id+" is "+string(phase), func() bool { st, err := c.Status(t.Context(), id); return err == nil && st.Phase == phase })
	}
	// A stop on the way up is no failure.
	for _, id := range []string{"fetching", "starting"} {
		if _, err := d.Stop(id, 0); err != nil {
			t.Fatal(err)
		}
		if st := awaitState(t, d, id, ended); st.Phase != protocol.PhaseStopped || st.Failure == "" {
			t.Errorf("%+v", st)
		}
	}
}

// TestEventsTellOfFetching: that a fetch has begun is told, though no record says it.
func TestEventsTellOfFetching(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	seen := make(chan protocol.Phase, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Events(t.Context(), "", func(s protocol.Status) error { seen <- s.Phase; return nil })
	}()
	s := spec(d, "a", "true")
	s.URIs = []protocol.URI{{Value: stalled(t)}}
	if _, err := d.Create(s); err != nil {
		t.Fatal(err)
	}
	limit := time.After(patience)
	for p := protocol.Phase(""); p != protocol.PhaseFetching; {
		select {
		case p = <-seen:
		case <-limit:
			t.Fatal("nobody said that it is fetching")
		}
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	d.Close()
	<-done
}
