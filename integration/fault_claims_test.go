package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"tandem/api"
	"tandem/integration/stack"
	sched "tandem/scheduler/wire"
)

// ref names one of the workloads.
func ref(workload string) api.Ref { return refOf(api.KindApplication, workload) }

func refOf(kind api.Kind, name string) api.Ref {
	return api.Ref{Kind: kind, Namespace: "fault", Name: name}
}

// restart starts a process of the stack again.
func (f *faultStack) restart(name string) {
	f.t.Helper()
	if err := f.s.Restart(name); err != nil {
		f.t.Fatal(err)
	}
}

// kill ends a process of the stack with SIGKILL.
func (f *faultStack) kill(name string) {
	f.t.Helper()
	if err := f.s.Kill(name); err != nil {
		f.t.Fatal(err)
	}
}

// killTask ends a task's main process with SIGKILL, from outside.
func (f *faultStack) killTask(x fact) {
	f.t.Helper()
	if start, err := startTime(x.Pid); err != nil || start != x.Start {
		f.t.Fatalf("pid %d is not task %s any more: %v", x.Pid, x.Task, err)
	}
	if err := syscall.Kill(x.Pid, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
}

// killExecutor ends a taskgroup's executor with SIGKILL.
func (f *faultStack) killExecutor(group string) {
	f.t.Helper()
	for _, e := range f.executors() {
		if e.task == group {
			if err := syscall.Kill(e.pid, syscall.SIGKILL); err != nil {
				f.t.Fatal(err)
			}
			return
		}
	}
	f.t.Fatalf("%s has no executor", group)
}

// subscriptions counts how often executors that run now have subscribed with their agents.
func (f *faultStack) subscriptions() map[string]int {
	counts := map[string]int{}
	alive := f.executors()
	for _, path := range f.sandboxFiles("stderr") {
		for _, e := range alive {
			if strings.Contains(path, "/"+e.task+"/") {
				text, _ := os.ReadFile(path) // then there is nothing to count
				counts[e.task] += strings.Count(string(text), "subscribed with the agent\"")
			}
		}
	}
	return counts
}

// waitSubscribed waits until every executor has subscribed once more than before.
func (f *faultStack) waitSubscribed(before map[string]int) {
	f.t.Helper()
	eventually(f.t, 20*time.Second, "all executors subscribed again", func() bool {
		now := f.subscriptions()
		for id, n := range before {
			if now[id] <= n {
				return false
			}
		}
		return true
	})
}

// survived checks that all is as it was: the same tasks with the same processes,
// containers and ports, and no change of state in between. Before that it proves
// that the stack works again.
func (f *faultStack) survived(what string, before facts) {
	f.t.Helper()
	f.prove()
	after := f.waitRunning(what, len(before.groups()), nil)
	if !maps.EqualFunc(before, after, fact.equal) {
		f.t.Fatalf("%s: before\n%s\nafter\n%s", what, before, after)
	}
}

func (x fact) equal(y fact) bool {
	same := x.Changed.Equal(y.Changed)
	x.Changed, y.Changed = time.Time{}, time.Time{}
	return same && x == y
}

func (f facts) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "%+v\n", f[id])
	}
	return b.String()
}

// prove launches one more workload and deletes it: offers, calls, updates and
// acknowledgements go all the way.
func (f *faultStack) prove() {
	f.t.Helper()
	const probe = `{"apiVersion":"v4","kind":"process","metadata":{"name":"probe","namespace":"probe"},"spec":{"instance":1,"template":{"spec":{
"processes":[{"procName":"sleep","startCmd":"/bin/sleep 1000","resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`
	f.applyThese([]byte(probe))
	f.waitProbe("to run", func(groups []sched.Taskgroup) bool { return len(groups) == 1 && groups[0].State == sched.Running })
	if err := f.api.Delete(f.t.Context(), api.Ref{Kind: api.KindProcess, Namespace: "probe", Name: "probe"}); err != nil {
		f.t.Fatal(err)
	}
	f.waitProbe("to be gone", func(groups []sched.Taskgroup) bool { return len(groups) == 0 })
	eventually(f.t, 10*time.Second, "the probe's process to be gone", func() bool {
		return !slices.ContainsFunc(f.processes(), func(p process) bool { return strings.Contains(p.task, ".probe.probe.") })
	})
}

func (f *faultStack) waitProbe(what string, ok func([]sched.Taskgroup) bool) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, "the probe "+what, func() bool {
		groups, err := f.api.Taskgroups(f.t.Context(), "probe")
		return err == nil && ok(groups)
	})
}

// replaced waits until another taskgroup runs in the place of each of the given
// workloads, and checks what must be true then: each failed once, for the
// reason told, nothing of it is left, and the other workloads did not notice.
func (f *faultStack) replaced(what string, before facts, reason string, workloads ...string) facts {
	f.t.Helper()
	var gone []string
	kept, ports := facts{}, []string{}
	for id, x := range before {
		if slices.ContainsFunc(workloads, func(w string) bool { return strings.HasPrefix(x.Group, "0."+w+".") }) {
			gone = append(gone, x.Group)
			ports = append(ports, x.Ports)
		} else {
			kept[id] = x
		}
	}
	after := f.waitRunning(what, len(before.groups()), gone)
	for id, x := range kept {
		if y, ok := after[id]; !ok || !x.equal(y) {
			f.t.Errorf("%s: %+v was touched: %+v", what, x, y)
		}
	}
	now := after.String()
	for _, text := range ports {
		for _, p := range hostPorts(text) {
			if strings.Contains(now, " "+p+" ") {
				continue
			}
			// No process of theirs runs any more. One that is at its end has its sockets a moment longer than its
			// memory, by which we know it; whoever else has the port is told.
			err := portTaken(atoi(p))
			if err == nil {
				continue
			}
			f.t.Logf("%s: port %s: %v", what, p, err)
			eventually(f.t, 2*time.Second, "port "+p+" of a taskgroup that is gone to be free", func() bool { return portTaken(atoi(p)) == nil })
		}
	}
	for _, w := range workloads {
		for _, x := range after {
			if strings.HasPrefix(x.Group, "0."+w+".") && x.Restarts != restartsOf(before, w)+1 {
				f.t.Errorf("%s: %s was restarted %d times, not once", what, w, x.Restarts-restartsOf(before, w))
			}
		}
		f.told(what, w, reason)
	}
	return after
}

func restartsOf(before facts, workload string) int {
	for _, x := range before {
		if strings.HasPrefix(x.Group, "0."+workload+".") {
			return x.Restarts
		}
	}
	return 0
}

var hostPort = regexp.MustCompile(`\b2\d{4}\b`)

// hostPorts finds the stack's ports in printed api.TaskPorts.
func hostPorts(text string) []string { return hostPort.FindAllString(text, -1) }

func atoi(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// told waits until the events of a workload name the failure. An agent that could
// not deliver an update sends it again after ten seconds; see
// docs/task-state-reasons.md and STATUS_UPDATE_RETRY_INTERVAL_MIN of Apache Mesos.
func (f *faultStack) told(what, workload, reason string) {
	f.t.Helper()
	var texts []string
	deadline := time.Now().Add(25 * time.Second * patience)
	for {
		events, err := f.api.Events(f.t.Context(), ref(workload))
		if err != nil {
			f.t.Error(err)
		}
		texts = texts[:0]
		for _, e := range events {
			texts = append(texts, e.Reason+": "+e.Text)
			if e.Reason == sched.Failed && regexp.MustCompile(reason).MatchString(e.Text) {
				return
			}
		}
		if time.Now().After(deadline) {
			f.t.Errorf("%s: no event Failed of %s tells %q:\n%s", what, workload, reason, strings.Join(texts, "\n"))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// finish deletes the workloads, and waits until nothing of them is left.
func (f *faultStack) finish() {
	f.t.Helper()
	f.remove()
	f.gone()
}

func (f *faultStack) remove() {
	f.t.Helper()
	for _, mode := range modes {
		if err := f.api.Delete(f.t.Context(), ref(strings.ToLower(mode))); err != nil {
			f.t.Fatal(err)
		}
	}
}

// gone waits until no taskgroup, process, container, executor and record is left.
func (f *faultStack) gone() {
	f.t.Helper()
	var left []string
	deadline := time.Now().Add(20 * time.Second * patience)
	for {
		left = left[:0]
		groups, err := f.api.Taskgroups(f.t.Context(), "")
		if err != nil {
			left = append(left, err.Error())
		}
		for i := range groups {
			left = append(left, fmt.Sprintf("taskgroup %s %s", groups[i].ID, groups[i].State))
		}
		for _, p := range f.processes() {
			left = append(left, fmt.Sprintf("process %d of %s", p.pid, p.task))
		}
		for _, e := range f.executors() {
			left = append(left, fmt.Sprintf("executor %d of %s", e.pid, e.task))
		}
		for _, c := range f.containers() {
			left = append(left, fmt.Sprintf("container %v %s", c.Names, c.State))
		}
		for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
			groups, _ := filepath.Glob(filepath.Join(pattern, f.s.Cgroup(), "*-*")) // the pattern is well-formed
			left = append(left, groups...)
		}
		_ = filepath.WalkDir(filepath.Join(f.s.Dir(), "tandem", "journal", "records"), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, "record "+path)
			}
			return nil
		})
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("left after everything was deleted:\n%s", strings.Join(left, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// servers are the processes of the stack with one agent.
func servers() []string {
	return []string{stack.Daemon, stack.Master, stack.Agent(0), stack.Scheduler}
}

// waitReady waits for the scheduler after a restart.
func (f *faultStack) waitReady() {
	f.t.Helper()
	if err := f.s.WaitReady(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}
