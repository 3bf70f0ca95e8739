package integration

import (
	"slices"
	"testing"
	"time"

	"tandem/integration/stack"
	sched "tandem/scheduler/wire"
)

// Tasks outlive every process of the stack. What is claimed after each fault is
// in survived: same task ids, pids, containers and ports, no change of state, no
// second one of anything, and a stack that works.

func TestFaultAgentKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	before := f.launch()
	subscribed := f.subscriptions()
	f.kill(stack.Agent(0))
	f.restart(stack.Agent(0))
	f.waitSubscribed(subscribed)
	f.survived("the agent was killed", before)

	subscribed = f.subscriptions()
	if err := f.s.Terminate(stack.Agent(0)); err != nil {
		t.Fatal(err)
	}
	f.restart(stack.Agent(0))
	f.waitSubscribed(subscribed)
	f.survived("the agent was terminated", before)
	f.finish()
}

func TestFaultSchedulerKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	before := f.launch()
	f.kill(stack.Scheduler)
	f.restart(stack.Scheduler)
	f.waitReady()
	f.survived("the scheduler was killed", before)
	if err := f.s.Terminate(stack.Scheduler); err != nil {
		t.Fatal(err)
	}
	f.restart(stack.Scheduler)
	f.waitReady()
	f.survived("the scheduler was terminated", before)
	f.finish()
}

func TestFaultMasterKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	before := f.launch()
	for range 2 {
		f.kill(stack.Master)
		f.restart(stack.Master)
		f.survived("the master was killed", before)
	}
	f.finish()
}

func TestFaultDaemonKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	before := f.launch()
	for range 2 {
		f.kill(stack.Daemon)
		f.restart(stack.Daemon)
		f.survived("the process daemon was killed", before)
	}
	f.finish()
}

func TestFaultEverythingKilledAndRestarted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	before := f.launch()
	subscribed := f.subscriptions()
	for _, name := range servers() {
		f.kill(name)
	}
	// The other way round: what is needed comes last.
	for _, name := range []string{stack.Scheduler, stack.Agent(0), stack.Master, stack.Daemon} {
		f.restart(name)
	}
	f.waitSubscribed(subscribed)
	f.waitReady()
	f.survived("everything was killed", before)
	f.finish()
}

// What happens while a process of the stack is away is told once it is back.
func TestFaultTaskKilledWhileServerIsAway(t *testing.T) {
	t.Parallel()
	for _, victim := range servers() {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			f := startFault(t, faultOptions{})
			before := f.launch()
			f.kill(victim)
			f.killTask(before.task(t, "host", "bg"))
			f.killTask(before.task(t, "bridge", "fg"))
			f.restart(victim)
			if victim == stack.Scheduler {
				f.waitReady()
			}
			// While the daemon is away, its keeper sees how they end.
			f.replaced("tasks were killed while "+victim+" was away", before, "signal|killed|137", "host", "bridge")
			f.finish()
		})
	}
}

// An agent is away until its tasks are replaced elsewhere; when it is back, with
// its tasks still running, they are ended, and the new ones stay.
func TestFaultAgentAwayTooLong(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{agents: 2, flags: map[string][]string{
		stack.Master:    {"--agent_ping_timeout=500ms", "--max_agent_ping_timeouts=2"},
		stack.Scheduler: {"--replace-unreachable-after=500ms"},
	}})
	const nap = `{"apiVersion":"v4","kind":"process","metadata":{"name":"nap","namespace":"fault"},"spec":{"instance":3,"template":{"spec":{
"processes":[{"procName":"sleep","startCmd":"/bin/sleep 1000","resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`
	f.applyThese([]byte(nap))
	before := f.waitRunning("the launch", 3, nil)
	lost := f.taskgroups()[0].Agent
	victim := stack.Agent(0)
	if lost != stack.AgentIP(0) {
		victim = stack.Agent(1)
	}
	f.kill(victim)
	f.partitioned = true
	eventually(t, 20*time.Second, "all to run elsewhere", func() bool {
		groups := f.taskgroups()
		for i := range groups {
			if groups[i].State != sched.Running || groups[i].Agent == lost {
				return false
			}
		}
		return len(groups) == 3
	})
	replaced := f.taskgroups()
	f.restart(victim)
	after := f.waitRunning("the agent came back", 3, nil)
	for i := range replaced {
		if !slices.Contains(after.groups(), replaced[i].ID) {
			t.Errorf("%s did not stay: %s", replaced[i].ID, after)
		}
	}
	for id, x := range before {
		if y, stayed := after[id]; stayed && !x.equal(y) {
			t.Errorf("%+v was touched: %+v", x, y)
		}
	}
	f.prove()
	if err := f.api.Delete(t.Context(), refOf("process", "nap")); err != nil {
		t.Fatal(err)
	}
	f.gone()
}
