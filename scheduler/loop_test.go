package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// The names S1 to S12 are those of known problems of earlier schedulers.

func TestS1OffersGoBackWhenNothingWaits(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	if !h.m.suppressed || len(h.m.offers) > 0 {
		t.Errorf("suppressed %v, %d offers are held", h.m.suppressed, len(h.m.offers))
	}
	h.apply(web(1, "", ""))
	h.running()
	if !h.m.suppressed || len(h.m.offers) > 0 || !h.status().Settled {
		t.Errorf("suppressed %v, %d offers are held, status %+v", h.m.suppressed, len(h.m.offers), h.status())
	}
}

func TestS1RescindedOfferIsNotUsed(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(web(1, "", ""))
	h.m.allocate()
	for id := range h.m.offers {
		h.m.rescind(id)
	}
	// Both events are there before the loop looks.
	for _, e := range h.m.events {
		if err := h.l.Handle(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	h.m.events = nil
	h.round()
	if calls := h.m.took(mesosapi.Call_ACCEPT); len(calls) > 0 {
		t.Fatalf("a rescinded offer is accepted: %v", calls)
	}
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestS1RescindAfterAcceptIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.m.allocate()
	clear(h.m.offers) // the RESCIND is still under way
	h.deliver()
	h.settle()
	if g := h.slot(0).Group; g != nil {
		t.Errorf("the dropped taskgroup stays: %s", g.State)
	}
	h.advance(3 * time.Second)
	h.running()
	if st := h.status(); !st.Settled || h.slot(0).Attempts != 0 {
		t.Errorf("%+v, %d attempts count", st, h.slot(0).Attempts)
	}
}

func TestS1ReconcilesUntilAnswered(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	h.m.disconnect()
	h.settle()
	h.m.subscribe(h.l.FrameworkID())
	h.m.took()
	// A master that has just started does not answer for agents that are not back.
	asked := 0
	h.deliver()
	h.m.events = nil
	for range 20 {
		for _, c := range h.m.took(mesosapi.Call_RECONCILE) {
			if len(c.Reconcile.Tasks) == 1 {
				asked++
			}
		}
		h.m.events = nil
		h.now = h.now.Add(time.Second)
		h.round()
	}
	if asked < 3 || asked > 7 {
		t.Errorf("asked %d times in 20 s", asked)
	}
	h.settle()
	h.advance(time.Minute)
	for _, c := range h.m.took(mesosapi.Call_RECONCILE) {
		if len(c.Reconcile.Tasks) > 1 {
			t.Errorf("asked for more than there is: %v", c)
		}
	}
	h.advance(20 * time.Second)
	if calls := h.m.took(mesosapi.Call_RECONCILE); len(calls) > 0 {
		t.Errorf("goes on asking: %v", calls)
	}
	h.advance(fullRound)
	if calls := h.m.took(mesosapi.Call_RECONCILE); len(calls) != 2 {
		t.Errorf("%d calls in the regular round, want one explicit and one implicit", len(calls))
	}
}

func TestS1StrayTasksAreKilled(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	// A store that was restored from an old copy knows nothing of it.
	for key := range h.store.records {
		if strings.HasPrefix(key, prefixSlot) || strings.HasPrefix(key, prefixObject) {
			delete(h.store.records, key)
		}
	}
	h.m.disconnect()
	h.restart()
	h.m.events = nil
	h.m.subscribe(h.l.FrameworkID())
	h.settle()
	if g := h.m.liveGroups(""); len(g) > 0 {
		t.Errorf("%s runs on", g[0].id)
	}
}

func TestS2NothingIsAcknowledgedThatIsNotStored(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.settle()
	h.m.took()
	h.store.fail = errors.New("disk full")
	h.m.run()
	e := h.m.events[0]
	if err := h.l.Handle(context.Background(), e); err != nil {
		t.Fatal(err)
	}
	if err := h.l.round(context.Background()); err == nil {
		t.Fatal("a failed commit is no error")
	}
	if calls := h.m.took(mesosapi.Call_ACKNOWLEDGE); len(calls) > 0 {
		t.Error("acknowledged what is not stored")
	}
	// The next scheduler gets it again.
	h.store.fail = nil
	h.m.disconnect()
	h.restart()
	h.m.subscribe(h.l.FrameworkID())
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestS2NothingIsLaunchedThatIsNotStored(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.m.took()
	h.store.fail = errors.New("disk full")
	h.m.allocate()
	if err := h.l.Handle(context.Background(), h.m.events[0]); err != nil {
		t.Fatal(err)
	}
	if err := h.l.round(context.Background()); err == nil {
		t.Fatal("a failed commit is no error")
	}
	if calls := h.m.took(mesosapi.Call_ACCEPT); len(calls) > 0 {
		t.Error("launched what is not stored")
	}
}

func TestS3RestartDelayOutlivesTheScheduler(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, `"restartPolicy":{"policy":"OnFailure","interval":5,"backoff":10},`, ""))
	for k, want := range []time.Duration{5 * time.Second, 15 * time.Second, 25 * time.Second} {
		h.running()
		h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
		h.settle()
		// Killed while it waits.
		h.m.disconnect()
		h.restart()
		h.m.events = nil
		h.m.subscribe(h.l.FrameworkID())
		h.settle()
		h.advance(want - time.Second)
		if sl := h.slot(0); sl.Group != nil || sl.Attempts != k+1 {
			t.Fatalf("attempt %d: started before its time, or counted %d", k+1, sl.Attempts)
		}
		h.advance(time.Second)
		if h.slot(0).Group == nil {
			t.Fatalf("attempt %d: not started after %v", k+1, want)
		}
	}
	// Half an hour of running is enough to begin anew.
	h.running()
	h.advance(30 * time.Minute)
	h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
	h.settle()
	if sl := h.slot(0); sl.Attempts != 1 || sl.NotBefore.Sub(h.now) != 5*time.Second {
		t.Errorf("after half an hour: attempt %d in %v", sl.Attempts, sl.NotBefore.Sub(h.now))
	}
}

func TestS4StagingMayTakeItsTime(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.settle()
	id := h.slot(0).Group.ID
	h.advance(25 * time.Minute) // with two regular reconciliations
	if g := h.slot(0).Group; g == nil || g.ID != id {
		t.Fatal("a taskgroup that was slow to start was given up")
	}
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestS5NeverGivesUpWaiting(t *testing.T) {
	t.Parallel()
	h := connected(t, 0)
	h.apply(web(3, "", ""))
	h.advance(2 * time.Hour)
	if st := h.status(); st.Settled || st.Message == "" {
		t.Errorf("says nothing: %+v", st)
	}
	h.m.addAgent()
	h.running()
	if st := h.status(); !st.Settled || st.Running != 3 {
		t.Errorf("%+v", st)
	}
}

func TestS5SeveralTaskgroupsPerOffer(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(web(5, "", ""))
	h.settle()
	accepts := h.m.took(mesosapi.Call_ACCEPT)
	if len(accepts) != 1 || len(accepts[0].Accept.Operations) != 5 {
		t.Errorf("%d ACCEPTs", len(accepts))
	}
}

func TestS6RefusedLaunchIsNeitherLostNorAStorm(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.refuse = true
	h.m.took()
	h.apply(web(1, `"restartPolicy":{"interval":0},`, ""))
	h.settle()
	if len(h.m.offers) > 0 {
		t.Error("the offers of a refused ACCEPT are not given back")
	}
	h.advance(8 * time.Second)
	if n := len(h.m.took(mesosapi.Call_ACCEPT)); n != 1 {
		t.Errorf("%d launches within 8 s of a refusal", n)
	}
	if !strings.Contains(h.status().Message, "refused the launch") {
		t.Errorf("says %q", h.status().Message)
	}
	h.m.refuse = false
	h.advance(10 * time.Second)
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestS6LaunchLostWithTheConnection(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		h := connected(t, 1)
		h.apply(web(1, "", ""))
		h.m.allocate()
		e := h.m.events[0]
		h.m.connected = false // what is sent from now on is lost
		h.handle(e)
		if g := h.slot(0).Group; g == nil || len(h.store.slots()) != 1 {
			t.Fatal("no record of the launch")
		}
		if restart {
			h.restart()
		}
		h.m.events = nil
		h.m.subscribe(h.l.FrameworkID())
		h.advance(3 * time.Second)
		h.running()
		if st := h.status(); !st.Settled || len(h.m.liveGroups("")) != 1 {
			t.Errorf("restart %v: %+v, %d run", restart, st, len(h.m.liveGroups("")))
		}
	}
}

// A KILL that got lost goes again as soon as reconciliation tells that its task
// runs, not only when the pause between KILLs is over.
func TestLostKillGoesAgainWhenReconciliationTells(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	x := h.task(0, 0)
	x.group.deaf = true
	if err := h.do(func() error { return h.l.remove(webRef) }); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if n := len(h.m.took(mesosapi.Call_KILL)); n != 1 {
		t.Fatalf("%d KILLs", n)
	}
	x.group.deaf = false
	h.m.status(x.id, x.group.agent, mesoslib.TASK_RUNNING, mesoslib.REASON_RECONCILIATION)
	h.advance(time.Second)
	if h.l.objects[webRef] != nil {
		t.Error("it is not gone")
	}
}

func TestSuspendedEndsEverythingAndForgetsNothing(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(3, "", ""))
	h.running()
	if err := h.do(func() error {
		h.l.suspended, h.l.touched[webRef] = true, true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h.settle()
	h.advance(time.Minute)
	if left := h.m.liveGroups(""); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if h.l.objects[webRef] == nil {
		t.Error("what was declared is forgotten")
	}
	h.restart()
	h.m.subscribe(h.l.FrameworkID())
	h.running()
	if n := len(h.m.liveGroups("")); n != 3 {
		t.Errorf("the next scheduler runs %d of 3", n)
	}
}
