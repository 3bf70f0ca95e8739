package integration

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/integration/stack"
	sched "tandem/scheduler/wire"
)

// moment is a point of a launch that can be seen from outside.
type moment struct {
	name    string
	reached func(f *faultStack) bool
}

// moments of a launch, in their order. A test waits for one by polling, and then strikes.
var moments = []moment{
	{"declared", func(*faultStack) bool { return true }},
	{"launching", func(f *faultStack) bool { return f.anyGroup(sched.Launching, sched.Starting, sched.Running) }},
	{"executor started", func(f *faultStack) bool { return len(f.executors()) > 0 }},
	{"container made", func(f *faultStack) bool { return harness.engine == nil || len(f.containers()) > 0 }},
	{"process started", func(f *faultStack) bool { return len(f.processes()) > 0 }},
	{"one runs", func(f *faultStack) bool { return f.anyGroup(sched.Running) }},
}

func (f *faultStack) anyGroup(states ...string) bool {
	for _, g := range f.taskgroups() {
		for _, s := range states {
			if g.State == s {
				return true
			}
		}
	}
	return false
}

func (f *faultStack) await(m moment) {
	f.t.Helper()
	deadline := time.Now().Add(20 * time.Second * patience)
	for !m.reached(f) {
		if time.Now().After(deadline) {
			f.t.Fatalf("the moment %q did not come", m.name)
		}
		time.Sleep(time.Millisecond)
	}
}

// strikeWhileLaunching kills a process of the stack at each moment of a launch and starts it again.
func strikeWhileLaunching(t *testing.T, victim string) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	for _, m := range moments {
		f.apply()
		f.await(m)
		f.kill(victim)
		f.restart(victim)
		if victim == stack.Scheduler {
			f.waitReady()
		}
		f.waitRunning(fmt.Sprintf("%s was killed when %s", victim, m.name), len(modes), nil)
		f.finish()
	}
}

func TestFaultSchedulerKilledWhileLaunching(t *testing.T) { strikeWhileLaunching(t, stack.Scheduler) }
func TestFaultMasterKilledWhileLaunching(t *testing.T)    { strikeWhileLaunching(t, stack.Master) }
func TestFaultAgentKilledWhileLaunching(t *testing.T)     { strikeWhileLaunching(t, stack.Agent(0)) }
func TestFaultDaemonKilledWhileLaunching(t *testing.T)    { strikeWhileLaunching(t, stack.Daemon) }

// Every executor that is there at a moment is killed; another one takes over.
func TestFaultExecutorKilledWhileLaunching(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	for _, m := range moments[2:] {
		f.apply()
		f.await(m)
		for _, e := range f.executors() {
			if err := syscall.Kill(e.pid, syscall.SIGKILL); err != nil {
				t.Logf("executor %d has ended by itself: %v", e.pid, err)
			}
		}
		f.waitRunning("executors were killed when "+m.name, len(modes), nil)
		f.finish()
	}
}

// strikeWhileKilling kills a process of the stack while everything is being stopped.
func strikeWhileKilling(t *testing.T, victim string) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	for _, m := range []moment{
		{"deleted", func(*faultStack) bool { return true }},
		{"killing", func(f *faultStack) bool {
			groups, err := f.api.Taskgroups(f.t.Context(), "")
			if err != nil {
				return false
			}
			for i := range groups {
				if groups[i].State != sched.Killing {
					return false
				}
				for j := range groups[i].Tasks {
					if s := groups[i].Tasks[j].State; s == "KILLING" || s == "KILLED" {
						return true
					}
				}
			}
			return len(groups) == 0
		}},
		{"a process ended", func(f *faultStack) bool { return rootsOf(f.processes()) < f.tasksApplied() }},
	} {
		f.apply()
		f.waitRunning("the launch", len(modes), nil)
		f.remove()
		f.await(m)
		f.kill(victim)
		f.restart(victim)
		if victim == stack.Scheduler {
			f.waitReady()
		}
		f.gone()
	}
}

func rootsOf(list []process) (n int) {
	for _, p := range list {
		if p.root {
			n++
		}
	}
	return n
}

// tasksApplied is the number of tasks of both workloads.
func (f *faultStack) tasksApplied() int {
	if harness.engine == nil {
		return 2 * len(modes)
	}
	return 3 * len(modes)
}

func TestFaultSchedulerKilledWhileKilling(t *testing.T) { strikeWhileKilling(t, stack.Scheduler) }
func TestFaultMasterKilledWhileKilling(t *testing.T)    { strikeWhileKilling(t, stack.Master) }
func TestFaultAgentKilledWhileKilling(t *testing.T)     { strikeWhileKilling(t, stack.Agent(0)) }
func TestFaultDaemonKilledWhileKilling(t *testing.T)    { strikeWhileKilling(t, stack.Daemon) }

// The process daemon dies at each of its own steps, as by a power cut, and is started again.
func TestFaultDaemonKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	for _, point := range []string{
		"processdaemon/save/ready", "processdaemon/saved/ready", "processdaemon/save/starting", "processdaemon/saved/starting",
		"processdaemon/spawned", "processdaemon/recorded", "processdaemon/save/running", "processdaemon/saved/running",
		"processdaemon/save/ended", "processdaemon/saved/ended",
		"processdaemon/remove", "processdaemon/removing",
	} {
		if err := f.s.Terminate(stack.Daemon); err != nil {
			t.Fatal(err)
		}
		f.s.SetEnv(stack.Daemon, "TANDEM_FAILPOINTS="+point+"=kill")
		f.restart(stack.Daemon)
		f.apply()
		deleted, hit := false, false
		deadline := time.Now().Add(20 * time.Second * patience)
		for !hit {
			select {
			case <-f.s.Ended(stack.Daemon):
				hit = true
				continue
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was never reached", point)
			}
			if !deleted && f.allRunning() {
				f.remove()
				deleted = true
			}
			if deleted && len(f.taskgroups()) == 0 && len(f.executors()) == 0 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		if !hit {
			t.Errorf("%s was not passed: the point is gone", point)
		}
		f.s.SetEnv(stack.Daemon)
		if hit {
			f.restart(stack.Daemon)
		}
		if !deleted {
			f.waitRunning("the process daemon was killed at "+point, len(modes), nil)
			f.remove()
		}
		f.gone()
	}
}

func (f *faultStack) allRunning() bool {
	groups := f.taskgroups()
	for i := range groups {
		if groups[i].State != sched.Running {
			return false
		}
	}
	return len(groups) == len(modes)
}

// A task that ignores SIGTERM is being stopped when its agent dies, its executor
// dies, or both; the stop goes on, or the reaper ends it.
func TestFaultKilledWhileStopTakesLong(t *testing.T) {
	t.Parallel()
	const stubborn = `{"apiVersion":"v4","kind":"process","metadata":{"name":"stubborn","namespace":"fault"},"killPolicy":{"gracePeriod":3},
"spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"sh","startCmd":"trap : TERM; while :; do sleep 0.2; done",
"resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`
	f := startFault(t, faultOptions{})
	for _, victims := range []string{"agent", "executor", "agent executor", "scheduler", "processd executor"} {
		f.applyThese([]byte(stubborn))
		eventually(t, 20*time.Second, "the stubborn process", func() bool {
			list := f.processes()
			return f.oneRunning() && slices.ContainsFunc(list, func(p process) bool { return p.root && withstandsTerm(p.pid) })
		})
		if err := f.api.Delete(t.Context(), refOf("process", "stubborn")); err != nil {
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "TASK_KILLING", func() bool {
			groups := f.taskgroups()
			return len(groups) == 1 && groups[0].Tasks[0].State == "KILLING"
		})
		if strings.Contains(victims, "agent") {
			f.kill(stack.Agent(0))
		}
		if strings.Contains(victims, "scheduler") {
			f.kill(stack.Scheduler)
		}
		if strings.Contains(victims, "processd") {
			f.kill(stack.Daemon)
		}
		if strings.Contains(victims, "executor") {
			for _, e := range f.executors() {
				if err := syscall.Kill(e.pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rootsOf(f.processes()) != 1 {
			t.Errorf("%s: %d processes while the stop is under way", victims, rootsOf(f.processes()))
		}
		if strings.Contains(victims, "agent") {
			f.restart(stack.Agent(0))
		}
		if strings.Contains(victims, "scheduler") {
			f.restart(stack.Scheduler)
			f.waitReady()
		}
		if strings.Contains(victims, "processd") {
			f.restart(stack.Daemon)
		}
		f.gone()
	}
}

func (f *faultStack) oneRunning() bool {
	groups := f.taskgroups()
	return len(groups) == 1 && groups[0].State == sched.Running
}
