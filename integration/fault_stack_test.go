package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"tandem/integration/leftover"
	"tandem/integration/stack"
	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/scheduler/client"
	sched "tandem/scheduler/wire"
)

// faultStack is a whole stack of separate processes, two mixed workloads on it,
// and what is known of them from outside.
type faultStack struct {
	t   *testing.T
	s   *stack.Stack
	api *client.Client
	// mark is the cluster's name; it is in every identifier, so in the
	// environment of every process and in the labels of every container.
	mark   string
	look   leftover.Options
	before leftover.Snapshot
	// partitioned allows two taskgroups of one instance at the same time.
	partitioned bool
}

// faultOptions of a stack; nil and zero mean none.
type faultOptions struct {
	agents int
	via    func(from, address string) string
	flags  map[string][]string
	// env is added to the environment of every process.
	env []string
	// secure has the scheduler speak TLS to the master.
	secure bool
}

// startFault starts a stack. When the test ends everything must be deleted; what is left is an error.
func startFault(t *testing.T, o faultOptions) *faultStack {
	t.Helper()
	dir := testkit.ShortDir(t)
	f := &faultStack{t: t, mark: "c" + strings.ToLower(strings.TrimPrefix(filepath.Base(dir), "tdm"))}
	f.look = leftover.Options{Marks: []string{dir, f.mark, filepath.Base(dir)}, MarkedOnly: true}
	f.before = leftover.Take(t.Context(), f.look)
	flags := map[string][]string{stack.Master: {"--allocation_interval=50ms"}}
	for name, more := range o.flags {
		flags[name] = append(flags[name], more...)
	}
	expectGroups(filepath.Join(dir, "tandem"))
	s, err := stack.New(stack.Options{Bin: harness.bin, Dir: dir, Agents: o.agents, Cluster: f.mark, Via: o.via, Flags: flags, Env: o.env, Secure: o.secure})
	if err != nil {
		t.Fatal(err)
	}
	// The agents remove it, but not what an executor leaves that ends after them, as in a test that fails.
	cgrouptest.Expect(s.Cgroup())
	f.s = s
	t.Cleanup(f.close)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.api, err = client.New(s.Server()); err != nil {
		t.Fatal(err)
	}
	return f
}

// close stops the stack and looks for what is left. After a failure it shows the logs and ends what is left.
func (f *faultStack) close() {
	if f.t.Failed() {
		f.evidence()
	}
	f.s.Close()
	left := leftover.Wait(context.Background(), f.before, f.look, 10*time.Second*patience)
	if f.t.Failed() {
		f.sweep()
		return
	}
	if len(left) > 0 {
		f.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		f.evidence()
		f.sweep()
	}
}

// evidence shows what the stack and the executors wrote.
func (f *faultStack) evidence() {
	names := []string{stack.Daemon, stack.Master, stack.Scheduler}
	for i := range f.s.Agents() {
		names = append(names, stack.Agent(i))
	}
	for _, name := range names {
		f.t.Logf("%s:\n%s", name, lastBytes(f.s.Log(name), 12<<10))
	}
	if f.api != nil {
		groups, err := f.api.Taskgroups(context.Background(), "")
		text, _ := json.MarshalIndent(groups, "", " ") // our own types
		f.t.Logf("taskgroups (%v):\n%s", err, lastBytes(string(text), 12<<10))
	}
	for _, path := range f.sandboxFiles("stderr") {
		text, _ := os.ReadFile(path) // it may be gone
		f.t.Logf("%s:\n%s", path, lastBytes(string(text), 6<<10))
	}
}

// sandboxFiles are the files of that name that executors wrote to.
func (f *faultStack) sandboxFiles(name string) []string {
	var list []string
	for i := range f.s.Agents() {
		_ = filepath.WalkDir(filepath.Join(f.s.Dir(), stack.Agent(i)), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() == name && !strings.Contains(path, "/latest/") {
				list = append(list, path)
			}
			return nil
		})
	}
	return list
}

// sweep ends what a failed test has left, so that it does not disturb others.
func (f *faultStack) sweep() {
	for range 3 {
		for _, p := range f.processes() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
		}
		for _, e := range f.executors() {
			_ = syscall.Kill(e.pid, syscall.SIGKILL) // as above
		}
	}
	for _, c := range f.containers() {
		_ = harness.engine.ContainerRemove(context.Background(), c.ID, container.RemoveOptions{Force: true}) // as above
	}
}

// modes are the networks of the workloads' containers.
var modes = []string{"HOST", "BRIDGE"}

// workload is an application of one taskgroup: a container, a process in the
// foreground and one with a pid file. Each answers HTTP requests at its port
// with its taskgroup's id. The foreground process has a port that is drawn, the
// others have fixed ones, which must be free again for the next taskgroup.
func (f *faultStack) workload(mode string, instances int) json.RawMessage {
	workload := strings.ToLower(mode)
	// A directory of its own, or an old server would show the new one's page.
	serve := "mkdir -p $BCS_POD_ID && echo $BCS_POD_ID >$BCS_POD_ID/index.html && "
	limits := map[string]any{"limits": map[string]any{"cpu": "0.1", "memory": "32"}}
	fixed := 0
	if mode == "BRIDGE" {
		fixed = 2
	}
	process := func(name, start, pidFile string, port int) map[string]any {
		p := map[string]any{
			"name": name, "procName": "busybox", "workPath": "${work_base_dir}/" + workload + "/" + name, "startCmd": start,
			"ports": []any{map[string]any{"name": name, "hostPort": port}}, "resources": limits,
		}
		if pidFile != "" {
			p["pidFile"], p["startGracePeriod"] = pidFile, 0
		}
		return p
	}
	spec := map[string]any{"processes": []any{
		process("fg", serve+"exec /bin/busybox httpd -f -h $BCS_POD_ID -p $PORT_FG", "", 0),
		process("bg", serve+"{ /bin/busybox httpd -f -h $BCS_POD_ID -p $PORT_BG & echo $! >pid; }", "${work_base_dir}/"+workload+"/bg/pid", f.s.SparePort(fixed)),
	}}
	if harness.engine != nil {
		port := map[string]any{"name": "web", "hostPort": f.s.SparePort(fixed + 1)}
		if mode == "BRIDGE" {
			port["containerPort"] = 8080
		}
		listen := map[string]string{"HOST": "$PORT_WEB", "BRIDGE": "8080"}[mode]
		spec["networkMode"] = mode
		spec["containers"] = []any{map[string]any{
			"name": "web", "image": harness.image, "imagePullPolicy": "Never", "command": "/bin/sh",
			// The first process of a pid namespace ignores signals without a handler.
			"args":  []any{"-c", "cd /tmp && trap 'kill $!; exit 0' TERM && " + serve + "{ httpd -f -h $BCS_POD_ID -p " + listen + " & wait; }"},
			"ports": []any{port}, "resources": limits,
		}}
	}
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v4", "kind": "application", "metadata": map[string]any{"name": workload, "namespace": "fault"},
		"restartPolicy": map[string]any{"policy": "Always"}, "killPolicy": map[string]any{"gracePeriod": 2},
		"spec": map[string]any{"instance": instances, "template": map[string]any{"spec": spec}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// apply declares both workloads.
func (f *faultStack) apply() {
	f.t.Helper()
	f.applyThese(f.workload("HOST", 1), f.workload("BRIDGE", 1))
}

func (f *faultStack) applyThese(documents ...json.RawMessage) {
	f.t.Helper()
	if _, err := f.api.Apply(f.t.Context(), sched.ApplyRequest{Documents: documents, Strict: true}); err != nil {
		f.t.Fatal(err)
	}
}

// launch declares both workloads and waits until they run.
func (f *faultStack) launch() facts {
	f.t.Helper()
	f.apply()
	return f.waitRunning("the first launch", len(modes), nil)
}

// taskgroups asks the scheduler; nil while it is away.
func (f *faultStack) taskgroups() []sched.Taskgroup {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	groups, err := f.api.Taskgroups(ctx, "fault")
	if err != nil {
		return nil
	}
	return groups
}

// fact is what must not change about a task that survives.
type fact struct {
	Task, Group, Name, State, Container string
	Pid                                 int
	// Start is the process's start time in clock ticks: pids come again.
	Start   string
	Changed time.Time
	Ports   string
	// Restarts are those of the instance.
	Restarts int
}

// facts are those of all tasks, by task id.
type facts map[string]fact

// groups are the ids of the taskgroups.
func (f facts) groups() []string {
	var ids []string
	for _, x := range f {
		if !slices.Contains(ids, x.Group) {
			ids = append(ids, x.Group)
		}
	}
	slices.Sort(ids)
	return ids
}

// task returns the fact of a task of a workload.
func (f facts) task(t *testing.T, workload, name string) fact {
	t.Helper()
	for _, x := range f {
		if x.Name == name && strings.HasPrefix(x.Group, "0."+workload+".") {
			return x
		}
	}
	t.Fatalf("no task %s of %s in %v", name, workload, f)
	return fact{}
}

// waitRunning waits until n taskgroups run, none of which is one of gone, and
// the machine shows exactly what the scheduler says.
func (f *faultStack) waitRunning(what string, n int, gone []string) facts {
	f.t.Helper()
	var found facts
	var err error
	deadline := time.Now().Add(20 * time.Second * patience)
	for {
		f.noOverlap(what)
		if found, err = f.check(n, gone); err == nil {
			return found
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("after %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// check compares what the scheduler says with what is on the machine.
func (f *faultStack) check(n int, gone []string) (facts, error) {
	groups := f.taskgroups()
	if len(groups) != n {
		return nil, fmt.Errorf("%d taskgroups, not %d", len(groups), n)
	}
	found := facts{}
	executors := map[string]int{}
	containers := map[string]string{}
	for i := range groups {
		g := &groups[i]
		if g.State != sched.Running || slices.Contains(gone, g.ID) {
			return nil, fmt.Errorf("taskgroup %s %s is %s: %s %v", g.Name, g.ID, g.State, g.Message, g.Waiting)
		}
		executors[g.ID] = 1
		for j := range g.Tasks {
			t := &g.Tasks[j]
			if t.State != "RUNNING" || t.Report == nil || t.Report.Pid == 0 {
				return nil, fmt.Errorf("task %s is %s: %s", t.ID, t.State, t.Message)
			}
			start, err := startTime(t.Report.Pid)
			if err != nil {
				return nil, fmt.Errorf("task %s runs as pid %d: %w", t.ID, t.Report.Pid, err)
			}
			found[t.ID] = fact{t.ID, g.ID, t.Name, t.State, t.Report.ContainerID, t.Report.Pid, start, t.Changed, fmt.Sprint(t.Ports), g.Restarts}
			if t.Report.ContainerID != "" {
				containers[t.Report.ContainerID] = t.ID
			}
			for _, p := range t.Ports {
				if body, err := get(p.HostPort); err != nil || body != g.ID {
					return nil, fmt.Errorf("port %d of %s answers %q: %w", p.HostPort, t.ID, body, cmp.Or(err, errors.New("not its own id")))
				}
			}
		}
	}
	// One process for each task, with the pid that was told, and no other.
	for _, p := range f.processes() {
		switch x, known := found[p.task]; {
		case !known:
			return nil, fmt.Errorf("process %d of task %s runs beside", p.pid, p.task)
		case p.root && x.Pid != p.pid:
			return nil, fmt.Errorf("process %d of task %s runs beside %d", p.pid, p.task, x.Pid)
		}
	}
	for _, e := range f.executors() {
		if executors[e.task]--; executors[e.task] < 0 {
			return nil, fmt.Errorf("executor %d of %s runs beside", e.pid, e.task)
		}
	}
	for _, c := range f.containers() {
		if containers[c.ID] == "" || c.State != "running" {
			return nil, fmt.Errorf("container %s %v is %s", c.ID, c.Names, c.State)
		}
		delete(containers, c.ID)
	}
	if len(containers) > 0 {
		return nil, fmt.Errorf("containers that should run are missing: %v", containers)
	}
	return found, nil
}

// noOverlap checks that no two taskgroups of one workload have processes at the same time.
func (f *faultStack) noOverlap(what string) {
	f.t.Helper()
	if f.partitioned {
		return
	}
	groups := map[string]string{}
	for _, p := range f.withVariable("BCS_POD_ID") {
		parts := strings.SplitN(p.task, ".", 3)
		instance := parts[1] + "-" + parts[0]
		if other := groups[instance]; other != "" && other != p.task {
			f.t.Fatalf("after %s: processes of %s and %s run side by side", what, min(other, p.task), max(other, p.task))
		}
		groups[instance] = p.task
	}
}

// process is a process of a task, or an executor of a taskgroup.
type process struct {
	pid  int
	task string
	// root tells that its parent does not belong to the task.
	root bool
}

// processes are those that bear this stack's mark in the task's id of their environment.
func (f *faultStack) processes() []process { return f.withVariable("BCS_TASK_ID") }

// executors are the executors, by the id of the taskgroup.
func (f *faultStack) executors() []process {
	var list []process
	for _, p := range f.withVariable("MESOS_EXECUTOR_ID") {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
		if err == nil && filepath.Base(exe) == "tandem-executor" {
			list = append(list, p)
		}
	}
	return list
}

func (f *faultStack) withVariable(name string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		f.t.Fatal(err)
	}
	tasks := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !strings.Contains(string(env), "."+f.mark) {
			continue
		}
		for _, v := range strings.Split(string(env), "\x00") {
			if id, ok := strings.CutPrefix(v, name+"="); ok {
				tasks[pid] = id
			}
		}
	}
	var list []process
	for pid, id := range tasks {
		fields, err := statFields(pid)
		if err != nil || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1]) // the kernel writes a number
		list = append(list, process{pid, id, tasks[parent] != id})
	}
	return list
}

// statFields are the fields of /proc/pid/stat from the state on; see proc(5).
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return nil, errors.New("short stat")
	}
	return fields, nil
}

func startTime(pid int) (string, error) {
	fields, err := statFields(pid)
	if err != nil {
		return "", err
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", errors.New("it has ended")
	}
	return fields[19], nil
}

// containers are all that the engine has of this stack, whatever their state.
func (f *faultStack) containers() []container.Summary {
	if harness.engine == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second*patience)
	defer cancel()
	all, err := harness.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "tandem.owner"))})
	if err != nil {
		f.t.Errorf("list the containers: %v", err)
	}
	return slices.DeleteFunc(all, func(c container.Summary) bool { return !strings.Contains(c.Labels["tandem.owner"], "."+f.mark+".") })
}

// get asks the server at a port of this machine.
func get(port int) (string, error) {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return strings.TrimSpace(string(text)), err
}
