package master

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

const awareRole = `"capabilities":[{"type":"MULTI_ROLE"},{"type":"PARTITION_AWARE"}],"roles":["*"]`

func markGone(t *testing.T, m *Master, id string) {
	t.Helper()
	status, _, text := operate(t, m, wire.JSON, &apimaster.Call{Type: apimaster.Call_MARK_AGENT_GONE, MarkAgentGone: &apimaster.Call_MarkAgentGone{AgentID: mesos.AgentID{Value: id}}})
	if status != 200 || text != "" {
		t.Fatalf("MARK_AGENT_GONE: %d %q", status, text)
	}
}

// mustBeRefused registers an agent that is told to end, and nothing else.
func mustBeRefused(t *testing.T, m *Master, sub link.Subscribe, why string) {
	t.Helper()
	a := openAgent(t, m, sub)
	if e := a.next(t, "an event", func(link.Event) bool { return true }); e.Type != link.EventShutdown || e.Shutdown != why {
		t.Errorf("%+v, want the end because of %q", e, why)
	}
	a.waitEnd(t)
}

func knownAgent(id string) link.Subscribe {
	return link.Subscribe{AgentInfo: mesos.AgentInfo{ID: &mesos.AgentID{Value: id}}}
}

func TestAgentMarkedGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir }
	m := startMaster(t, durable)
	a := startAgent(t, m, nil)
	plain := subscribe(t, m, "", multiRole+`,"checkpoint":true,"failover_timeout":60`)
	plain.launchOnly(t, taskJSON("p", a.id, executorJSON("x")))
	aware := subscribe(t, m, "", awareRole)
	aware.launchOnly(t, taskJSON("q", a.id, executorJSON("x")))
	holder := subscribe(t, m, "", multiRole)
	holder.offer(t)
	markGone(t, m, a.id)
	if e := a.want(t, link.EventShutdown); e.Shutdown != "Agent has been marked gone" {
		t.Errorf("%+v", e)
	}
	a.waitEnd(t)
	holder.next(t, "RESCIND", ofType(scheduler.Event_RESCIND))
	for c, want := range map[*client]string{
		plain: "TASK_LOST SOURCE_MASTER +executor Agent has been marked gone REASON_AGENT_REMOVED",
		aware: "TASK_GONE_BY_OPERATOR SOURCE_MASTER +executor Agent has been marked gone REASON_AGENT_REMOVED_BY_OPERATOR",
	} {
		id := map[*client]string{plain: "p", aware: "q"}[c]
		if got := describe(c.update(t, id)); got != want {
			t.Error(got)
		}
		c.next(t, "FAILURE", ofType(scheduler.Event_FAILURE))
	}
	aware.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"q"},"agent_id":{"value":"`+a.id+`"}}]}`)
	if got := describe(aware.update(t, "q")); got != "TASK_GONE_BY_OPERATOR SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is gone" {
		t.Error(got)
	}
	markGone(t, m, a.id) // again: nothing more happens
	mustBeRefused(t, m, knownAgent(a.id), lostGone)
	m.Kill()
	m = startMaster(t, durable)
	mustBeRefused(t, m, knownAgent(a.id), lostGone)
	if b := startAgent(t, m, nil); b.id == a.id {
		t.Error("a new agent got the id of one that is gone")
	}
}

// TestUnreachableAgentMarkedGone: its tasks end, and do not come back.
func TestUnreachableAgentMarkedGone(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) { f.AgentPingTimeout, f.MaxAgentPingTimeouts = time.Minute, 1 })
	a := startAgent(t, m, nil)
	aware := subscribe(t, m, "", awareRole+`,"checkpoint":true`)
	aware.launchOnly(t, taskJSON("q", a.id, executorJSON("x")))
	plain := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	plain.launchOnly(t, taskJSON("p", a.id, executorJSON("x")))
	advance(m, time.Minute)
	if got := aware.update(t, "q"); got.GetState() != mesos.TASK_UNREACHABLE {
		t.Error(describe(got))
	}
	plain.update(t, "p")
	markGone(t, m, a.id)
	if got := describe(aware.update(t, "q")); got != "TASK_GONE_BY_OPERATOR SOURCE_MASTER +executor Agent has been marked gone REASON_AGENT_REMOVED_BY_OPERATOR" {
		t.Error(got)
	}
	if got := describe(plain.update(t, "p")); got != "TASK_LOST SOURCE_MASTER +executor Agent has been marked gone REASON_AGENT_REMOVED" {
		t.Error(got)
	}
	mustBeRefused(t, m, knownAgent(a.id), lostGone)
	m.loop.do(func() {
		f := m.frameworks[aware.id]
		if len(f.unreachable) != 0 || len(f.completed) != 1 || f.completed[0].state != mesos.TASK_GONE_BY_OPERATOR {
			t.Errorf("unreachable %v, completed %v", f.unreachable, f.completed)
		}
	})
}

// TestRecoveredAgentMarkedGone: it is not waited for any more.
func TestRecoveredAgentMarkedGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(f *Flags) { f.Registry, f.WorkDir = RegistryLog, dir }
	m := startMaster(t, durable)
	a := startAgent(t, m, nil)
	m.Kill()
	m = startMaster(t, durable)
	markGone(t, m, a.id)
	f := subscribe(t, m, "", multiRole)
	f.must(t, "RECONCILE", `"reconcile":{"tasks":[{"task_id":{"value":"t"}}]}`)
	if got := describe(f.update(t, "t")); got != "TASK_LOST SOURCE_MASTER REASON_RECONCILIATION Reconciliation: Task is unknown" {
		t.Error(got)
	}
	mustBeRefused(t, m, knownAgent(a.id), lostGone)
}

// TestAgentWithAnotherAddress: a known agent may change its resources, but not where it is.
func TestAgentWithAnotherAddress(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	const why = "Agent attempted to reregister with different IP / hostname"
	for _, sub := range []link.Subscribe{{AgentInfo: mesos.AgentInfo{Hostname: "elsewhere"}}, {AgentInfo: mesos.AgentInfo{Hostname: "127.0.0.1"}, IP: "127.0.0.9"}} {
		sub.AgentInfo.ID = &mesos.AgentID{Value: a.id}
		mustBeRefused(t, m, sub, why)
	}
	if status := a.call(t, link.Call{Type: link.CallPong, PongFor: new(uint64)}); status != 202 {
		t.Errorf("the good one's call: %d", status)
	}
}

// TestAgentWithOtherResources: what it has now is offered, filters for what it
// had are void, and less than is used is never offered.
func TestAgentWithOtherResources(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	run := a.want(t, link.EventRun).Run
	o := f.offer(t)
	f.must(t, "DECLINE", `"decline":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":10000}}`)
	a.vanish()
	back := func(resources string) *fakeAgent {
		t.Helper()
		list, err := resource.Parse(resources, "*")
		if err != nil {
			t.Fatal(err)
		}
		port := int32(5051)
		return startAgent(t, m, &link.Subscribe{
			AgentInfo:  mesos.AgentInfo{ID: &mesos.AgentID{Value: a.id}, Hostname: "127.0.0.1", Port: &port, Resources: list},
			Frameworks: []mesos.FrameworkInfo{run.Framework},
			Executors:  []link.Executor{{FrameworkID: mesos.FrameworkID{Value: f.id}, Info: run.Executor}},
			Tasks:      []link.Task{{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x", Info: run.Tasks[0], State: mesos.TASK_RUNNING}},
		})
	}
	b := back("cpus:2;mem:2048")
	o = f.offer(t)
	if rest := resource.Of(o.Resources).Unallocate().String(); rest != "cpus:1.8; mem:1984" {
		t.Errorf("offered: %s", rest)
	}
	b.vanish()
	f.next(t, "RESCIND", ofType(scheduler.Event_RESCIND))
	b = back("cpus:0.1;mem:2048")
	o = f.offer(t)
	if rest := resource.Of(o.Resources).Unallocate().String(); rest != "mem:1984" {
		t.Errorf("offered by one that has too little: %s", rest)
	}
	f.must(t, "DECLINE", `"decline":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0}}`)
	uuid := b.report(t, f.id, "x", "t", mesos.TASK_FINISHED)
	f.update(t, "t")
	f.must(t, "ACKNOWLEDGE", ack(a.id, "t", uuid))
	if status := b.call(t, link.Call{Type: link.CallExited, Exited: &link.ExitedExecutor{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x"}}); status != 202 {
		t.Fatal(status)
	}
	waitFor(t, "all of it to be offered, and no more", func() bool {
		all := false
		m.loop.do(func() {
			x := m.agents[a.id]
			all = x.free.Add(x.offered()...).String() == "mem:2048; cpus:0.1" || x.free.Add(x.offered()...).Equal(x.total)
		})
		return all
	})
}

// TestKilledWhileAway: a KILL that the agent may not have heard comes again with its return.
func TestKilledWhileAway(t *testing.T) {
	t.Parallel()
	m := startMaster(t, nil)
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", multiRole+`,"checkpoint":true`)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")), taskJSON("u", a.id, executorJSON("x")))
	run := a.want(t, link.EventRun).Run
	other := a.want(t, link.EventRun).Run
	a.vanish()
	waitFor(t, "disconnected", func() bool {
		gone := false
		m.loop.do(func() { gone = m.agents[a.id].state == agentDisconnected })
		return gone
	})
	f.must(t, "KILL", `"kill":{"task_id":{"value":"t"}}`)
	sub := knownAgent(a.id)
	sub.Frameworks = []mesos.FrameworkInfo{run.Framework}
	for _, r := range []*link.Run{run, other} {
		sub.Tasks = append(sub.Tasks, link.Task{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: "x", Info: r.Tasks[0], State: mesos.TASK_RUNNING})
	}
	b := startAgent(t, m, &sub)
	if k := b.want(t, link.EventKill).Kill; k.TaskID != "t" || k.FrameworkID.Value != f.id {
		t.Errorf("%+v", k)
	}
	b.none(t, "a second KILL", 50*time.Millisecond, func(e link.Event) bool { return e.Type == link.EventKill })
}

// TestAgentTooLongAway: agent_reregister_timeout ends the wait for an agent whose connection broke.
func TestAgentTooLongAway(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) {
		f.AgentPingTimeout, f.MaxAgentPingTimeouts, f.AgentReregisterTimeout = 24*time.Hour, 5, 10*time.Minute
	})
	a := startAgent(t, m, nil)
	f := subscribe(t, m, "", awareRole+`,"checkpoint":true`)
	f.launch(t, f.offer(t), taskJSON("t", a.id, executorJSON("x")))
	a.vanish()
	waitFor(t, "disconnected", func() bool {
		gone := false
		m.loop.do(func() { gone = m.agents[a.id].state == agentDisconnected })
		return gone
	})
	advance(m, 9*time.Minute)
	f.none(t, "an update", 50*time.Millisecond, ofType(scheduler.Event_UPDATE))
	advance(m, time.Minute)
	if got := describe(f.update(t, "t")); got != "TASK_UNREACHABLE SOURCE_MASTER +executor +unreachable REASON_AGENT_REMOVED agent did not reregister within 10mins after disconnecting" {
		t.Error(got)
	}
}

// TestRemovalRateLimit: agents that do not answer are given up one after the
// other, and one that answers meanwhile is kept.
func TestRemovalRateLimit(t *testing.T) {
	t.Parallel()
	m := startMaster(t, func(f *Flags) {
		f.AgentPingTimeout, f.MaxAgentPingTimeouts, f.AgentRemovalRateLimit = time.Minute, 1, 10*time.Minute
	})
	agents := map[string]*fakeAgent{}
	for i := range 3 {
		port := int32(6000 + i)
		a := startAgent(t, m, &link.Subscribe{AgentInfo: mesos.AgentInfo{Hostname: fmt.Sprintf("127.0.0.%d", i+2), Port: &port}})
		agents[a.id] = a
	}
	there := func() (ids []string) {
		m.loop.do(func() {
			for id := range m.agents {
				ids = append(ids, id)
			}
		})
		slices.Sort(ids)
		return ids
	}
	advance(m, time.Minute)
	waitFor(t, "the first to be given up", func() bool { return len(there()) == 2 })
	waitFor(t, "the others to be planned", func() bool { return metric(t, m, "master/slave_unreachable_scheduled") == 3 })
	saved := agents[there()[0]]
	stop := saved.answerPings(t)
	defer stop()
	waitFor(t, "one to answer", func() bool {
		kept := false
		m.loop.do(func() { kept = m.agents[saved.id].ponged })
		return kept
	})
	// By steps, so that pings are answered in between.
	for range 22 {
		advance(m, 59*time.Second)
		waitFor(t, "the answer to a ping", func() bool {
			ok := false
			m.loop.do(func() { ok = m.agents[saved.id] != nil && m.agents[saved.id].ponged })
			return ok
		})
	}
	waitFor(t, "the last to be given up", func() bool { return len(there()) == 1 })
	if ids := there(); ids[0] != saved.id {
		t.Errorf("%v is left, not %s", ids, saved.id)
	}
	if canceled := metric(t, m, "master/slave_unreachable_canceled"); canceled != 1 {
		t.Errorf("canceled: %v", canceled)
	}
}

func TestFlagValues(t *testing.T) {
	t.Parallel()
	var r rateFlag
	for text, want := range map[string]time.Duration{"1/10mins": 10 * time.Minute, "2/1secs": 500 * time.Millisecond} {
		if err := r.Set(text); err != nil || time.Duration(r) != want {
			t.Errorf("%s: %v %v", text, time.Duration(r), err)
		}
	}
	for _, text := range []string{"", "1", "0/1secs", "x/1secs", "1/1", "1/0secs", "-1/1secs"} {
		if err := r.Set(text); err == nil {
			t.Errorf("rate %q was taken", text)
		}
	}
	if r = rateFlag(500 * time.Millisecond); r.String() != "1/500ms" {
		t.Error(r.String())
	}
	var c countFlag
	if err := c.Set("0"); err != nil || c != none || c.String() != "0" || c.Set("-1") == nil || c.Set("x") == nil {
		t.Errorf("%v %v", c, err)
	}
	for _, text := range []string{"a", "a=", "a=0", "a=-1", "a=NaN", "a b=1", "a=1,a=2"} {
		if _, err := parseWeights(text); err == nil || !strings.Contains(err.Error(), "--weights") {
			t.Errorf("weights %q: %v", text, err)
		}
	}
	for _, text := range []string{"cpus", "ports:[1-2]", "cpus:x"} {
		if _, err := parseLeast(text); err == nil {
			t.Errorf("min_allocatable_resources %q was taken", text)
		}
	}
}
