package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/wire"
)

// An instance that is scaled away and wanted again before it has ended is no
// failure of the application: with policy Never it would never come back.
func TestSurplusThatIsWantedAgain(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Never", "OnFailure", "Always"} {
		h := connected(t, 1)
		h.apply(web(2, `"restartPolicy":{"policy":"`+policy+`"},`, ""))
		h.running()
		h.task(1, 0).group.deaf = true // it takes its time
		task := h.task(1, 0)
		h.scale(1)
		h.settle()
		h.scale(2)
		h.settle()
		task.group.deaf = false
		h.m.end(task, mesoslib.TASK_KILLED)
		h.running()
		if st := h.status(); !st.Settled || h.slot(1).Attempts != 0 {
			t.Errorf("%s: %+v, %d attempts", policy, st, h.slot(1).Attempts)
		}
	}
}

func TestScaleDownDuringLaunch(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(3, "", ""))
	h.settle() // launched, and nothing of them was heard
	h.scale(1)
	h.settle()
	h.m.run()
	h.settle()
	if len(h.m.liveGroups("")) != 1 || len(h.store.slots()) != 1 || !h.status().Settled {
		t.Errorf("%d run, %d are stored, %+v", len(h.m.liveGroups("")), len(h.store.slots()), h.status())
	}
}

func TestDeleteAndApplyAgain(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	h.task(0, 0).group.deaf = true
	task := h.task(0, 0)
	if err := h.do(func() error { return h.l.remove(webRef) }); err != nil {
		t.Fatal(err)
	}
	docs, _, err := api.Decode(strings.NewReader(web(1, "", "")), "test", api.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var refused *apiError
	if err := h.do(func() error { _, err := h.l.apply(docs, false); return err }); !errors.As(err, &refused) || refused.status != 409 {
		t.Errorf("applied while it is being deleted: %v", err)
	}
	// The deletion goes on after a restart.
	h.m.disconnect()
	h.restart()
	h.m.events = nil
	h.m.subscribe(h.l.FrameworkID())
	task.group.deaf = false
	h.settle()
	if h.l.objects[webRef] != nil || len(h.store.slots()) > 0 || len(h.m.liveGroups("")) > 0 {
		t.Error("it is not gone")
	}
	h.apply(web(1, "", ""))
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

// When one task has failed and the executor does not end the others, the
// scheduler does, and the policy starts the whole taskgroup again.
func TestRestOfABrokenTaskgroupIsEnded(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(pair(`"restartPolicy":{"interval":1},`))
	h.running()
	one, two := h.task(0, 0), h.task(0, 1)
	h.m.update(one, mesoslib.TASK_FAILED) // and nothing of the other
	h.settle()
	if g := h.slot(0).Group; g.State != wire.Killing || two.kills > 0 {
		t.Fatalf("state %s, %d kills at once", g.State, two.kills)
	}
	h.advance(h.o.KillRetry + time.Second)
	if two.kills != 1 || two.state != mesoslib.TASK_KILLED {
		t.Fatalf("%d kills, the other is %s", two.kills, two.state)
	}
	h.advance(2 * time.Second)
	h.running()
	if st := h.status(); !st.Settled || h.slot(0).Attempts != 1 {
		t.Errorf("%+v after %d attempts", st, h.slot(0).Attempts)
	}
}

func TestTaskgroupWithAFinishedTaskRunsOn(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(pair(`"restartPolicy":{"policy":"OnFailure"},`))
	h.running()
	h.m.end(h.task(0, 0), mesoslib.TASK_FINISHED)
	h.advance(time.Minute)
	if g := h.slot(0).Group; g.State != wire.Running {
		t.Fatalf("it is %s", g.State)
	}
	h.m.end(h.task(0, 1), mesoslib.TASK_FINISHED)
	h.settle()
	if st := h.status(); !st.Settled || h.slot(0).Group.State != wire.Finished {
		t.Errorf("%+v", st)
	}
}

// TestEndIsFinal walks every pair of states: what a task is, and what comes.
func TestEndIsFinal(t *testing.T) {
	t.Parallel()
	states := []mesoslib.TaskState{
		mesoslib.TASK_STAGING, mesoslib.TASK_STARTING, mesoslib.TASK_RUNNING, mesoslib.TASK_KILLING, mesoslib.TASK_UNREACHABLE, mesoslib.TASK_UNKNOWN,
		mesoslib.TASK_FINISHED, mesoslib.TASK_FAILED, mesoslib.TASK_KILLED, mesoslib.TASK_ERROR,
		mesoslib.TASK_LOST, mesoslib.TASK_DROPPED, mesoslib.TASK_GONE, mesoslib.TASK_GONE_BY_OPERATOR,
	}
	for _, is := range states {
		for _, comes := range states {
			for _, uuid := range [][]byte{nil, {1}} {
				h := connected(t, 1)
				h.apply(pair(`"restartPolicy":{"policy":"Never"},`)) // the other task keeps the record
				h.settle()
				g := h.slot(0).Group
				g.Tasks[0].State = is
				h.m.took()
				h.m.connected = false // the cluster is to answer nothing
				var sent []*mesosapi.Call
				h.l.s.out = callFunc(func(c *mesosapi.Call) bool { sent = append(sent, c); return true })
				h.handle(mesos.Updated{Status: mesoslib.TaskStatus{
					TaskID: mesoslib.TaskID{Value: g.Tasks[0].ID}, AgentID: &mesoslib.AgentID{Value: g.AgentID}, State: &comes, UUID: uuid,
				}})
				want := comes
				if terminal(is) && (!terminal(comes) || !presumed(is) || presumed(comes)) {
					want = is
				}
				if got := g.Tasks[0].State; got != want {
					t.Errorf("%s, then %s: %s, want %s", is, comes, got, want)
				}
				acked := slices.ContainsFunc(sent, func(c *mesosapi.Call) bool { return c.Type == mesosapi.Call_ACKNOWLEDGE })
				if acked != (uuid != nil) {
					t.Errorf("%s, then %s with uuid %v: acknowledged %v", is, comes, uuid, acked)
				}
				killed := slices.ContainsFunc(sent, func(c *mesosapi.Call) bool {
					return c.Type == mesosapi.Call_KILL && c.Kill.TaskID.Value == g.Tasks[0].ID
				})
				alive := comes == mesoslib.TASK_STAGING || comes == mesoslib.TASK_STARTING || comes == mesoslib.TASK_RUNNING
				if killed != (terminal(is) && alive) {
					t.Errorf("%s, then %s: killed %v", is, comes, killed)
				}
			}
		}
	}
}

type callFunc func(*mesosapi.Call) bool

func (f callFunc) Send(c *mesosapi.Call) bool { return f(c) }

// A KILL of what is only unknown is answered by the same status again: it would never end.
func TestNoKillStorm(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.m.took()
	for _, s := range []mesoslib.TaskState{mesoslib.TASK_UNREACHABLE, mesoslib.TASK_UNKNOWN, mesoslib.TASK_KILLING, mesoslib.TASK_GONE, mesoslib.TASK_FAILED} {
		h.m.status("stranger", "agent-0", s, mesoslib.REASON_RECONCILIATION)
	}
	h.settle()
	if calls := h.m.took(mesosapi.Call_KILL); len(calls) > 0 {
		t.Errorf("%v", calls)
	}
	h.m.status("stranger", "agent-0", mesoslib.TASK_RUNNING, mesoslib.REASON_AGENT_REREGISTERED)
	h.settle()
	if calls := h.m.took(mesosapi.Call_KILL); len(calls) != 1 {
		t.Errorf("%v", calls)
	}
}

func TestKillIsSentAgainAfterReconnection(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, `"killPolicy":{"gracePeriod":600},`, ""))
	h.running()
	task := h.task(0, 0)
	h.m.connected = false // the KILL is lost
	h.scale(0)
	h.m.subscribe(h.l.FrameworkID())
	h.settle()
	if task.kills != 1 || len(h.store.slots()) > 0 {
		t.Errorf("%d kills arrived", task.kills)
	}
}

func TestReplaceOutdatedOneAtATime(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(3, "", ""))
	h.running()
	before := map[string]bool{}
	for i := range 3 {
		before[h.slot(i).Group.ID] = true
	}
	h.apply(web(3, "", `"env":[{"name":"NEW","value":"1"}],`))
	for range 20 {
		h.settle()
		if n := len(h.m.liveGroups("")); n < 2 {
			t.Fatalf("only %d of 3 run during the update", n)
		}
		h.m.run()
	}
	h.settle()
	st := h.status()
	for i := range 3 {
		if before[h.slot(i).Group.ID] {
			t.Errorf("instance %d was not replaced", i)
		}
	}
	if !st.Settled || st.UpToDate != 3 {
		t.Errorf("%+v", st)
	}
}

func TestUpdateStopsAtAnUnhealthyInstance(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(2, "", ""))
	h.running()
	second := h.slot(1).Group.ID
	h.apply(web(2, "", `"env":[{"name":"NEW","value":"1"}],`))
	h.settle()
	unhealthy, running := false, mesoslib.TASK_RUNNING
	h.m.emit(mesos.Updated{Status: mesoslib.TaskStatus{
		TaskID: mesoslib.TaskID{Value: h.slot(0).Group.Tasks[0].ID}, State: &running, Healthy: &unhealthy, UUID: []byte{9},
	}})
	h.advance(10 * time.Minute)
	if h.slot(1).Group.ID != second {
		t.Error("the update went on past an instance that is not healthy")
	}
}

// A task that is checked is not ready before its checks say so.
func TestATaskIsReadyWhenItsChecksSaySo(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", `"healthChecks":[{"type":"TCP","tcp":{"port":80}}],`))
	h.running()
	ready := func(want bool) {
		t.Helper()
		g := h.slot(0).Group
		if g.ready() != want || (h.status().Ready == 1) != want {
			t.Errorf("ready %v, want %v", g.ready(), want)
		}
	}
	ready(false)
	for i, healthy := range []bool{true, false, true} {
		h.m.emit(mesos.Updated{Status: mesoslib.TaskStatus{
			TaskID: mesoslib.TaskID{Value: h.slot(0).Group.Tasks[0].ID}, State: new(mesoslib.TASK_RUNNING), Healthy: &healthy, UUID: []byte{9, byte(i)},
		}})
		h.settle()
		ready(healthy)
	}
	h.apply(web(1, "", `"healthChecks":[{"type":"REMOTE_TCP","tcp":{"port":80}}],`))
	h.settle()
	h.running()
	ready(true)
}

func TestScaleKeepsRunningTaskgroups(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(2, "", ""))
	h.running()
	first := h.slot(0).Group.ID
	h.scale(4)
	h.running()
	h.scale(1)
	h.running()
	if h.slot(0).Group.ID != first || !h.status().Settled || len(h.m.liveGroups("")) != 1 {
		t.Errorf("%+v", h.status())
	}
}

// Whoever waits because an older version failed does not go on waiting.
func TestChangeEndsTheWait(t *testing.T) {
	t.Parallel()
	wait := `"restartPolicy":{"interval":3600},`
	changes := map[string]func(h *harness){
		"apply":             func(h *harness) { h.apply(web(1, wait, `"env":[{"name":"NEW","value":"1"}],`)) },
		"restart":           func(h *harness) { _ = h.do(func() error { return h.l.restart(webRef) }) },
		"restart taskgroup": func(h *harness) { _ = h.do(func() error { return h.l.restartGroup("test", "web-0") }) },
	}
	for name, change := range changes {
		h := connected(t, 1)
		h.apply(web(1, wait, ""))
		h.running()
		h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
		h.advance(time.Minute)
		change(h)
		h.running()
		if st := h.status(); !st.Settled || h.slot(0).Attempts != 0 {
			t.Errorf("%s: %+v, %d attempts", name, st, h.slot(0).Attempts)
		}
	}
}

func TestPolicyIsAskedAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, `"restartPolicy":{"policy":"Never"},`, ""))
	h.running()
	h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
	h.advance(time.Hour)
	if st := h.status(); !st.Failed || !h.slot(0).Done {
		t.Fatalf("%+v", st)
	}
	h.apply(web(1, `"restartPolicy":{"policy":"OnFailure","interval":1},`, ""))
	h.advance(2 * time.Second)
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestMaxTimes(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, `"restartPolicy":{"interval":1,"maxtimes":2},`, ""))
	for range 3 {
		h.running()
		h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
		h.advance(2 * time.Second)
	}
	st := h.status()
	if !st.Failed || st.Restarts != 2 || len(h.m.liveGroups("")) > 0 {
		t.Errorf("%+v", st)
	}
	// It stays so after a restart of the scheduler.
	h.m.disconnect()
	h.restart()
	h.m.events = nil
	h.m.subscribe(h.l.FrameworkID())
	h.advance(time.Minute)
	if st := h.status(); !st.Failed || len(h.m.liveGroups("")) > 0 {
		t.Errorf("after a restart: %+v", st)
	}
}

func TestHostRetainTime(t *testing.T) {
	t.Parallel()
	h := connected(t, 3)
	h.apply(web(1, `"restartPolicy":{"interval":1,"hostRetainTime":30},`, ""))
	h.running()
	group := h.task(0, 0).group
	h.m.end(h.task(0, 0), mesoslib.TASK_FAILED)
	h.m.lose(group.agent)
	h.advance(20 * time.Second)
	if h.slot(0).Group != nil {
		t.Fatal("started on another host")
	}
	h.advance(30 * time.Second)
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

func TestHostileExecutorCannotFillTheStore(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(1, "", ""))
	h.running()
	state, message := mesoslib.TASK_RUNNING, strings.Repeat("é", 1<<20)
	h.m.emit(mesos.Updated{Status: mesoslib.TaskStatus{
		TaskID: mesoslib.TaskID{Value: h.slot(0).Group.Tasks[0].ID}, AgentID: &mesoslib.AgentID{Value: "agent-0"}, State: &state, Message: &message, UUID: []byte{7},
		Data: []byte(`{"version":1,"sandbox":"` + strings.Repeat("x", 1<<20) + `"}`),
	}})
	h.settle()
	for key, r := range h.store.records {
		if len(r.Value) > 64<<10 {
			t.Errorf("%s has %d bytes", key, len(r.Value))
		}
	}
}

func TestSuspendEndsAllAndTheNextStartsAgain(t *testing.T) {
	t.Parallel()
	h := connected(t, 1)
	h.apply(web(2, "", ""))
	h.running()
	if err := h.do(func() error { h.l.suspended = true; h.l.touched[webRef] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	h.advance(time.Minute)
	if n := len(h.m.liveGroups("")); n > 0 {
		t.Fatalf("%d still run", n)
	}
	h.m.disconnect()
	h.restart()
	h.m.events = nil
	h.m.subscribe(h.l.FrameworkID())
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}

// Placing many is spread over rounds, so that requests are answered meanwhile.
func TestPlacingTakesTurns(t *testing.T) {
	t.Parallel()
	h := connected(t, 2)
	h.apply(web(6, "", ""))
	h.l.placeBudget = 0 // each round begins, and is over
	h.m.allocate()
	h.deliver()
	if len(h.m.offers) == 0 || h.l.due.After(h.now) {
		t.Fatalf("the offers are not kept for the next round: %d", len(h.m.offers))
	}
	h.l.placeBudget = placeBudget
	h.running()
	if !h.status().Settled {
		t.Errorf("%+v", h.status())
	}
}
