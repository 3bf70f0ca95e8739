package integration

import (
	"maps"
	"slices"
	"testing"
	"time"

	"tandem/integration/stack"
	"tandem/localmesos/fault"
)

// Faults inside the embedded Mesos: nothing of what the scheduler declares is
// lost or doubled by them.

// enabled are the flags of a stack with one agent whose Mesos may be broken.
func enabled() map[string][]string {
	return map[string][]string{stack.Master: {"--enable-faults"}, stack.Agent(0): {"--enable-faults"}}
}

// injector brings faults to a process of the stack.
type injector struct {
	f *faultStack
	*fault.Client
}

func (f *faultStack) inject(address string) injector {
	f.t.Helper()
	c, err := fault.NewClient(address)
	if err != nil {
		f.t.Fatal(err)
	}
	return injector{f, c}
}

// add puts faults in force.
func (i injector) add(faults ...fault.Fault) {
	i.f.t.Helper()
	for _, x := range faults {
		if _, err := i.Add(i.f.t.Context(), x); err != nil {
			i.f.t.Fatal(err)
		}
	}
}

// struck waits until a number of faults of a kind are over because they struck as often as they should.
func (i injector) struck(kind fault.Kind, n int) {
	i.f.t.Helper()
	eventually(i.f.t, 30*time.Second, string(kind)+" to have struck", func() bool {
		s, err := i.Status(i.f.t.Context())
		if err != nil {
			return false
		}
		done := 0
		for _, x := range s.Past {
			if x.Kind == kind && x.Hits > 0 {
				done++
			}
		}
		return done >= n
	})
}

// Updates and acknowledgements get lost and come twice, between agent and master
// and between master and scheduler, while tasks are launched, fail and are stopped.
func TestFaultUpdatesDroppedAndDuplicated(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{flags: enabled()})
	master, agent := f.inject(f.s.MasterURL()), f.inject(f.s.AgentAddress(0))
	const long = fault.Duration(10 * time.Minute)
	twice := []fault.Fault{
		{Kind: fault.Duplicate, For: long},
		{Kind: fault.Duplicate, Message: fault.Acknowledgement, For: long},
	}
	master.add(twice...)
	agent.add(twice...)
	master.add(fault.Fault{Kind: fault.Drop, State: "TASK_RUNNING", Times: 2, For: long},
		fault.Fault{Kind: fault.Drop, Message: fault.Acknowledgement, Times: 1, For: long})
	agent.add(fault.Fault{Kind: fault.Drop, State: "TASK_STARTING", Times: 1, For: long})
	f.apply()
	// An agent sends an update again after ten seconds, and at once when it comes
	// back to its master.
	agent.struck(fault.Drop, 1)
	agent.add(fault.Fault{Kind: fault.Cut, Part: fault.Agent})
	master.struck(fault.Drop, 2)
	agent.add(fault.Fault{Kind: fault.Cut, Part: fault.Agent})
	now := f.waitRunning("updates were lost and doubled", len(modes), nil)
	f.survived("updates were lost and doubled", now)

	agent.add(fault.Fault{Kind: fault.Drop, State: "TASK_FAILED", Times: 1, For: long})
	f.killTask(now.task(t, "host", "fg"))
	agent.struck(fault.Drop, 2)
	agent.add(fault.Fault{Kind: fault.Cut, Part: fault.Agent})
	f.replaced("the update of its end was lost", now, killedBySignal, "host")
	f.finish()
}

// A master, and then an agent, that hangs for five seconds: what happens
// meanwhile is told afterwards, once.
func TestFaultFrozen(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{flags: enabled()})
	master, agent := f.inject(f.s.MasterURL()), f.inject(f.s.AgentAddress(0))
	now := f.launch()
	const hang = fault.Duration(5 * time.Second)
	for what, i := range map[string]injector{"the master hung": master, "the agent hung": agent} {
		i.add(fault.Fault{Kind: fault.Freeze, For: hang})
		f.survived(what, now)
		i.add(fault.Fault{Kind: fault.Freeze, For: hang})
		f.killTask(now.task(t, "host", "bg"))
		now = f.replaced("a task was killed while "+what, now, killedBySignal, "host")
	}
	f.finish()
}

// The machine of an agent is started anew: executors are gone at once, and what
// they have left must be, too, before anything takes its place.
func TestFaultAgentRebooted(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{flags: enabled()})
	agent := f.inject(f.s.AgentAddress(0))
	before := f.launch()
	for range 2 {
		agent.add(fault.Fault{Kind: fault.Reboot})
		after := f.waitRunning("the agent's machine was started anew", len(modes), before.groups())
		for _, id := range slices.Sorted(maps.Keys(before)) {
			if _, still := after[id]; still {
				t.Errorf("task %s outlived its machine", id)
			}
		}
		before = after
	}
	f.prove()
	f.finish()
}
