package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/wire"
)

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
		if w := strings.Join(h.slot(2).waiting, "; "); !strings.Contains(w, strconv.Itoa(port)) {
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
