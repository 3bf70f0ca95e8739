package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/wire"
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
	for k, want := range []time.Duration{5, 15, 25} {
		h.running()
		h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
		h.settle()
		// Killed while it waits.
		h.m.disconnect()
		h.restart()
		h.m.events = nil
		h.m.subscribe(h.l.FrameworkID())
		h.settle()
		h.advance(want*time.Second - time.Second)
		if sl := h.slot(0); sl.Group != nil || sl.Attempts != k+1 {
			t.Fatalf("attempt %d: started before its time, or counted %d", k+1, sl.Attempts)
		}
		h.advance(time.Second)
		if h.slot(0).Group == nil {
			t.Fatalf("attempt %d: not started after %d s", k+1, want)
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

func TestS7DeposedSchedulerStops(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	old := h.l
	h.restart()
	old.post(input{do: func() error { old.put("object/x", 1); return nil }})
	if err := old.round(context.Background()); err == nil {
		t.Error("a scheduler that was replaced goes on writing")
	}
}

func TestS7RemovedFrameworkSubscribesAsNew(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(3, "", ""))
	h.running()
	first := h.l.FrameworkID()
	h.m.teardown()
	h.settle()
	h.m.subscribe(first)
	h.running()
	if st := h.status(); !st.Settled || h.l.FrameworkID() == first || len(h.m.liveGroups("")) != 3 {
		t.Errorf("%+v as %s", st, h.l.FrameworkID())
	}
}

func TestS8WhatNeverReportedIsKilled(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.settle()
	if err := h.do(func() error { return h.l.remove(webRef) }); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if h.l.objects[webRef] != nil || len(h.m.liveGroups("")) > 0 || len(h.store.slots()) > 0 {
		t.Error("it was not killed and removed")
	}
}

func TestS8DeafExecutorIsShutDown(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, `"killPolicy":{"gracePeriod":2},`, ""))
	h.running()
	task := h.task(0, 0)
	task.group.deaf = true
	h.m.took()
	h.scale(0)
	h.advance(time.Minute)
	kills := h.m.took(mesosapi.Call_KILL, mesosapi.Call_SHUTDOWN)
	if len(kills) != killsBeforeShutdown+2 || kills[len(kills)-1].Type != mesosapi.Call_SHUTDOWN {
		t.Errorf("calls: %v", kills)
	}
	if kills[0].Kill.GetKillPolicy().GetGracePeriod().GetNanoseconds() != (2 * time.Second).Nanoseconds() {
		t.Errorf("the grace period is not passed on: %v", kills[0])
	}
	if len(h.store.slots()) > 0 {
		t.Error("the instance stays")
	}
}

func TestS9UnreachableIsReplacedAndKilledOnReturn(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(1, `"restartPolicy":{"policy":"OnFailure"},`, ""))
	h.running()
	task := h.task(0, 0)
	h.m.lose(task.group.agent)
	h.settle()
	if g := h.slot(0).Group; g == nil || g.State != wire.Unreachable {
		t.Fatalf("not shown as unreachable: %+v", g)
	}
	h.advance(h.o.ReplaceUnreachable - time.Second)
	if len(h.m.liveGroups("")) != 1 {
		t.Fatal("replaced before its time")
	}
	h.advance(2 * time.Second)
	h.running()
	if st := h.status(); !st.Settled || h.slot(0).Group.ID == task.group.id || h.slot(0).Attempts != 0 {
		t.Fatalf("not replaced: %+v", st)
	}
	h.m.back(task.group.agent)
	h.settle()
	if g := h.m.liveGroups(""); len(g) != 1 || g[0] == task.group {
		t.Errorf("%d run after the return", len(g))
	}
}

func TestS9UnreachableThatReturnsInTimeGoesOn(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(1, "", ""))
	h.running()
	task := h.task(0, 0)
	h.m.lose(task.group.agent)
	h.advance(30 * time.Second)
	h.m.back(task.group.agent)
	h.settle()
	if st := h.status(); !st.Settled || h.slot(0).Group.ID != task.group.id || !h.slot(0).Group.Unreachable.IsZero() {
		t.Errorf("%+v", st)
	}
	h.advance(2 * time.Minute)
	if h.slot(0).Group.ID != task.group.id {
		t.Error("replaced after its return")
	}
}

// The executor's own RUNNING may come again after UNREACHABLE, with the UUID that is stored already.
func TestS9SameUpdateAgainAfterUnreachable(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.settle()
	task := h.task(0, 0)
	h.m.update(task, mesoslib.TASK_RUNNING)
	update := h.m.events[0]
	h.settle()
	h.m.status(task.id, task.group.agent, mesoslib.TASK_UNREACHABLE, mesoslib.REASON_AGENT_REMOVED)
	h.settle()
	h.m.emit(update)
	h.settle()
	if g := h.slot(0).Group; g.State != wire.Running {
		t.Errorf("it is %s", g.State)
	}
}

func TestNeverWaitsForTheUnreachable(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(1, `"restartPolicy":{"policy":"Never"},`, ""))
	h.running()
	task := h.task(0, 0)
	h.m.lose(task.group.agent)
	h.advance(10 * time.Minute)
	if g := h.slot(0).Group; g.State != wire.Unreachable {
		t.Fatalf("it is %s, and nothing would take its place", g.State)
	}
	h.m.back(task.group.agent)
	h.settle()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestS11FixedPorts(t *testing.T) {
	t.Parallel()
	for name, port := range map[string]int{"in the agent's range": 31005, "outside of it": 8300} {
		h := connected(t, 2)
		h.apply(web(3, "", fmt.Sprintf(`"ports":[{"name":"p","hostPort":%d}],`, port)))
		h.running()
		if st := h.status(); st.Running != 2 {
			t.Errorf("%s: %d run on two agents", name, st.Running)
		}
		if w := strings.Join(h.slot(2).waiting, "; "); !strings.Contains(w, fmt.Sprint(port)) {
			t.Errorf("%s: says %q, which does not name the port", name, w)
		}
		// The ledger is rebuilt from the store.
		h.m.disconnect()
		h.restart()
		h.m.subscribe(h.l.FrameworkID())
		h.advance(time.Minute)
		if st := h.status(); st.Running != 2 {
			t.Errorf("%s, after a restart: %d run on two agents", name, st.Running)
		}
		h.scale(1)
		h.settle()
		h.scale(2)
		h.running()
		if !h.status().Settled {
			t.Errorf("%s: the port was not given back: %+v", name, h.status())
		}
	}
}

func TestS11RandomPortsAreChargedOnce(t *testing.T) {
	t.Parallel()
	h := connected(t, 1) // with ten ports
	h.apply(web(4, "", `"ports":[{"name":"a","hostPort":0},{"name":"b","hostPort":0},{"name":"c","hostPort":0}],`))
	h.running()
	if st := h.status(); st.Running != 3 {
		t.Errorf("%d run", st.Running)
	}
	seen := map[int]bool{}
	for i := range 3 {
		for _, p := range h.slot(i).Group.Tasks[0].Ports {
			if seen[p.HostPort] || p.HostPort < 31000 || p.HostPort > 31009 {
				t.Errorf("port %d", p.HostPort)
			}
			seen[p.HostPort] = true
		}
	}
}

func TestS12TaskgroupsShareNothing(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	h.apply(web(2, "", `"env":[{"name":"ME","value":"${instanceid}"}],"ports":[{"name":"p","hostPort":0}],`))
	h.settle()
	var specs []api.TaskSpec
	for _, c := range h.m.took(mesosapi.Call_ACCEPT) {
		for _, op := range c.Accept.Operations {
			var s api.TaskSpec
			if err := json.Unmarshal(op.LaunchGroup.TaskGroup.Tasks[0].Data, &s); err != nil {
				t.Fatal(err)
			}
			specs = append(specs, s)
		}
	}
	if len(specs) != 2 {
		t.Fatalf("%d taskgroups", len(specs))
	}
	a, b := specs[0], specs[1]
	if a.Taskgroup.Index == b.Taskgroup.Index || a.Taskgroup.ID == b.Taskgroup.ID || a.Ports[0].HostPort == b.Ports[0].HostPort {
		t.Errorf("%+v and %+v", a.Taskgroup, b.Taskgroup)
	}
	for _, s := range specs {
		if len(s.Env) != 1 || s.Env[0].Value != "${instanceid}" {
			t.Errorf("the scheduler has expanded a variable: %+v", s.Env)
		}
	}
}

// After a restart no offer shows the ports that the scheduler's own taskgroups
// hold: they must not be taken for ports that are no resource.
func TestS11FixedPortAfterARestart(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", `"ports":[{"name":"p","hostPort":31003}],`))
	h.running()
	h.m.disconnect()
	h.restart()
	h.m.events = nil
	h.m.subscribe(h.l.FrameworkID())
	h.settle()
	h.scale(2)
	h.running()
	if st := h.status(); st.Running != 1 {
		t.Errorf("%d run with one port", st.Running)
	}
}

// After a time away the scheduler learns by reconciliation that a task has
// failed, and replaces it at once; why it failed comes later, and is not lost.
func TestReasonOfAFailureThatIsToldLate(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	x := h.task(0, 0)
	status := func(uuid, message string) mesos.Updated {
		state, reason := mesoslib.TASK_FAILED, mesoslib.REASON_RECONCILIATION
		s := mesoslib.TaskStatus{TaskID: mesoslib.TaskID{Value: x.id}, State: &state, Message: &message, AgentID: &mesoslib.AgentID{Value: x.group.agent}}
		if uuid == "" {
			s.Reason = &reason
		} else {
			s.UUID = []byte(uuid)
		}
		return mesos.Updated{Status: s}
	}
	h.handle(status("", "Reconciliation: Latest task state"))
	h.advance(10 * time.Second)
	if g := h.slot(0).Group; g == nil || g.ID == x.group.id {
		t.Fatalf("it is not replaced: %+v", g)
	}
	for range 2 { // it comes again until it is acknowledged
		h.handle(status("u1", "killed by signal 9"))
	}
	told := 0
	for _, e := range h.l.events.byObject[webRef] {
		if strings.Contains(e.Text, "killed by signal 9") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	if acks := h.m.took(mesosapi.Call_ACKNOWLEDGE); len(acks) < 2 {
		t.Errorf("%d acknowledgements", len(acks))
	}
}
