package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/api"
	"tandem/integration/stack"
	sched "tandem/scheduler/wire"
)

// alone starts one process that is not started again, with a child of another session.
func (f *faultStack) alone(grace int) (task func() sched.Task, pid int) {
	f.t.Helper()
	f.applyThese(json.RawMessage(fmt.Sprintf(`{"apiVersion":"v4","kind":"process","metadata":{"name":"nap","namespace":"fault"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":%d},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"sleep","startCmd":"setsid sleep 98762.5 & exec sleep 98763.5",
  "resources":{"limits":{"cpu":"0.1","memory":"16"}}}]}}}}`, grace)))
	task = func() sched.Task {
		for _, g := range f.taskgroups() {
			if g.Owner.Name == "nap" && len(g.Tasks) == 1 {
				return g.Tasks[0]
			}
		}
		return sched.Task{}
	}
	eventually(f.t, 30*time.Second, "the process", func() bool { return task().State == "RUNNING" && len(f.processes()) == 2 })
	return task, task().Report.Pid
}

func (f *faultStack) removeAlone() {
	f.t.Helper()
	if err := f.api.Delete(f.t.Context(), refOf(api.KindProcess, "nap")); err != nil {
		f.t.Fatal(err)
	}
	f.gone()
}

// TestFaultDaemonIsStoppedForAWhile: while the daemon does nothing (SIGSTOP), its
// processes are what they were; what happened meanwhile is told when it goes on.
func TestFaultDaemonIsStoppedForAWhile(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	task, pid := f.alone(2)
	daemon := f.s.Pid(stack.Daemon)
	signal := func(pid int, sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(daemon, syscall.SIGSTOP)
	defer func() { _ = syscall.Kill(daemon, syscall.SIGCONT) }()
	signal(pid, syscall.SIGKILL)
	time.Sleep(2 * time.Second) // not to wait for anything: to see that nothing is told
	if x := task(); x.State != "RUNNING" {
		t.Errorf("%s %s, by a daemon that is stopped", x.State, x.Message)
	}
	signal(daemon, syscall.SIGCONT)
	eventually(t, 30*time.Second, "the end", func() bool { return task().State == "FAILED" })
	if x := task(); !strings.Contains(x.Message, "signal 9") {
		t.Errorf("%+v", x)
	}
	f.removeAlone()
}

// TestFaultKillWhileTheDaemonIsStopped: a KILL is done within its grace though the daemon
// does nothing, and is told without waiting for it.
func TestFaultKillWhileTheDaemonIsStopped(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	f.alone(1)
	daemon := f.s.Pid(stack.Daemon)
	if err := syscall.Kill(daemon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(daemon, syscall.SIGCONT) }()
	if out, code := f.s.Tandem(t.Context(), "scale", "process/nap", "0", "-n", "fault"); code != 0 {
		t.Fatal(out)
	}
	eventually(t, 20*time.Second, "the end of the processes", func() bool { return len(f.processes()) == 0 })
	eventually(t, 60*time.Second, "the report of the end", func() bool { return len(f.taskgroups()) == 0 })
	if err := syscall.Kill(daemon, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.removeAlone()
}

// TestFaultDaemonLosesItsDataDirectory: a daemon that comes back with nothing kills what it
// finds and does not know, and the end is told as what it is.
func TestFaultDaemonLosesItsDataDirectory(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	task, _ := f.alone(2)
	f.kill(stack.Daemon)
	if err := os.RemoveAll(filepath.Join(f.s.Dir(), "tandem")); err != nil {
		t.Fatal(err)
	}
	if x := task(); x.State != "RUNNING" || len(f.processes()) != 2 {
		t.Errorf("%+v", x)
	}
	f.restart(stack.Daemon)
	eventually(t, 60*time.Second, "the end", func() bool { return task().State == "FAILED" })
	if left := f.processes(); len(left) > 0 {
		t.Errorf("the end was told, and %v run", left)
	}
	if x := task(); !strings.Contains(x.Message, "has lost what it knew") && !strings.Contains(x.Message, "cannot tell whether it runs") {
		t.Errorf("%+v", x)
	}
	f.removeAlone()
}
