package agent

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/procid"
	"tandem/localmesos/link"
)

func TestLaunchUpdateAcknowledgeKill(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	r := runOf(false, "x1", "ok", "t1")
	m.run(r)
	u := m.update("t1", mesos.TASK_RUNNING)
	c := u.Status.GetContainerStatus()
	if u.Status.GetAgentID().Value != m.id || u.LatestState != mesos.TASK_RUNNING || len(u.Status.UUID) != 16 ||
		c.GetExecutorPID() == 0 || c.NetworkInfos[0].IPAddresses[0].GetIPAddress() != "127.0.0.1" {
		t.Errorf("the status is not complete: %+v", u.Status)
	}
	dir := sandboxOf(t, a, "x1")
	if c.ContainerID.Value != filepath.Base(dir) {
		t.Errorf("container %s, sandbox %s", c.ContainerID.Value, dir)
	}
	checkEnvironment(t, a, dir, map[string]string{"MESOS_CHECKPOINT": "0", "AGENT_TEST_EXECUTOR": "ok",
		"MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "2secs"})
	m.ack(u)
	m.send(link.Event{Type: link.EventMessage, Message: &link.FrameworkMessage{FrameworkID: u.FrameworkID, ExecutorID: "x1", Data: []byte{0, 1, 2}}})
	echo := m.next("the message back", func(c link.Call) bool { return c.Type == link.CallMessage })
	if string(echo.Message.Data) != "\x00\x01\x02" {
		t.Errorf("message: %v", echo.Message)
	}
	m.kill("t1")
	m.ack(m.update("t1", mesos.TASK_KILLED))
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{FrameworkID: u.FrameworkID, ExecutorID: "x1"}})
	if e := m.exited("x1"); e.Status != 0 {
		t.Errorf("status %d after SHUTDOWN", e.Status)
	}
	if out := fileWith(t, filepath.Join(dir, "stdout"), "standard output"); !strings.Contains(out, "executor") {
		t.Errorf("stdout: %q", out)
	}
	eventually(t, "no container on record", func() bool {
		left, err := a.store.Containers()
		return err == nil && len(left) == 0
	})
}

// checkEnvironment wants exactly what Apache Mesos gives.
func checkEnvironment(t *testing.T, a *Agent, dir string, more map[string]string) {
	t.Helper()
	var list []string
	if err := json.Unmarshal([]byte(fileWith(t, filepath.Join(dir, "environment"), "]")), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		got[k] = v
	}
	want := map[string]string{"LIBPROCESS_IP": "127.0.0.1", "LIBPROCESS_PORT": "0", "MESOS_AGENT_ENDPOINT": a.address(),
		"MESOS_DIRECTORY": dir, "MESOS_SANDBOX": dir, "MESOS_EXECUTOR_ID": "x1", "MESOS_FRAMEWORK_ID": "f1",
		"MESOS_HTTP_COMMAND_EXECUTOR": "0", "MESOS_SLAVE_ID": a.id(), "MESOS_SLAVE_PID": "slave(1)@" + a.address(),
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	maps.Copy(want, more)
	if !maps.Equal(got, want) {
		t.Errorf("environment:\n got %v\nwant %v", got, want)
	}
}

func TestTaskGroupAndSecondTask(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	r := runOf(false, "x1", "ok", "t1", "t2")
	r.Group = true
	m.running(r)
	m.running(runOf(false, "x1", "ok", "t3"))
	m.kill("t1")
	m.update("t1", mesos.TASK_KILLED)
	notes := fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "notes"), "KILL")
	if want := "group of 2"; !strings.Contains(notes, want) || strings.Count(notes, "LAUNCH\n") != 1 {
		t.Errorf("notes: %s", notes)
	}
}

func TestHowExecutorsEnd(t *testing.T) {
	t.Parallel()
	shell, no := true, false
	command := func(value string, sh *bool) func(*link.Run) {
		return func(r *link.Run) { r.Executor.Command = &mesos.CommandInfo{Shell: sh, Value: &value} }
	}
	user := "no-such-user"
	cases := []struct {
		name, script, message string
		change                func(*link.Run)
		status                int32
		state                 mesos.TaskState
		reason                mesos.TaskStatus_Reason
	}{
		{name: "exit-5", script: "exit:5", status: 5 << 8},
		{name: "exit-0", script: "exit:0", status: 0},
		{name: "signal-9", script: "signal:9", status: 137 << 8},
		{name: "crash-3", script: "crash:3", status: 3 << 8},
		{name: "not-found", change: command("./no-such-program", &shell), status: 127 << 8},
		{name: "not-found-argv", change: command("no-such-program", &no), status: 1001 << 8},
		{name: "not-found-path", change: command("/no/such/program", &no), status: 1001 << 8},
		{name: "user", script: "ok", change: func(r *link.Run) { r.Executor.Command.User = &user }, status: 9,
			reason: mesos.REASON_CONTAINER_LAUNCH_FAILED, message: "No such user 'no-such-user'"},
		{name: "mute", script: "mute", status: 9, reason: mesos.REASON_EXECUTOR_REGISTRATION_TIMEOUT,
			message: "Executor did not register within 4secs"},
		{name: "uri", script: "ok", change: func(r *link.Run) {
			r.Executor.Command.URIs = []mesos.CommandInfo_URI{{Value: "file:///no/such/file"}}
		}, status: 9, reason: mesos.REASON_CONTAINER_LAUNCH_FAILED, message: "Failed to launch container: Failed to fetch all URIs for container"},
	}
	m, a := registered(t, func(f *Flags) { f.ExecutorRegistrationTimeout = 4 * time.Second })
	for _, c := range cases {
		if c.message == "" {
			c.message = "Executor terminated"
			c.reason = mesos.REASON_EXECUTOR_TERMINATED
		}
		r := runOf(true, c.name, c.script, "t-"+c.name)
		if c.change != nil {
			c.change(r)
		}
		m.run(r)
		if strings.HasPrefix(c.script, "crash") {
			m.ack(m.update("t-"+c.name, mesos.TASK_RUNNING))
		}
		if e := m.exited(c.name); e.Status != c.status {
			t.Errorf("%s: status %d, not %d", c.name, e.Status, c.status)
		}
		u := m.update("t-"+c.name, mesos.TASK_FAILED)
		s := u.Status
		if s.GetReason() != c.reason || !strings.Contains(s.GetMessage(), c.message) || s.GetSource() != mesos.SOURCE_AGENT ||
			s.ContainerStatus != nil || s.GetExecutorID().Value != c.name {
			t.Errorf("%s: %s %s %q", c.name, s.GetState(), s.GetReason(), s.GetMessage())
		}
		m.ack(u)
	}
	eventually(t, "nothing left on record", func() bool {
		ids, err := a.store.Frameworks(a.id())
		return err == nil && len(ids) == 0
	})
}

func TestShutdownKillsWhatIgnoresIt(t *testing.T) {
	t.Parallel()
	m, a := registered(t, func(f *Flags) { f.ExecutorShutdownGracePeriod = 200 * time.Millisecond })
	m.running(runOf(false, "x1", "stubborn", "t1"))
	m.kill("t1")
	fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "notes"), "KILL")
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{FrameworkID: mesos.FrameworkID{Value: "f1"}, ExecutorID: "x1"}})
	if e := m.exited("x1"); e.Status != 9 {
		t.Errorf("status %d, not 9", e.Status)
	}
	if u := m.update("t1", mesos.TASK_FAILED); u.Status.GetReason() != mesos.REASON_EXECUTOR_TERMINATED {
		t.Errorf("reason %s", u.Status.GetReason())
	}
}

func TestDaemonOfAnExecutorEndsWithIt(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "fork", "t1"))
	pid, err := strconv.Atoi(strings.TrimSpace(fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "daemon"), "\n")))
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := procid.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(a.launcher.String(), "no cgroups") {
		t.Skip("without cgroups a daemon that leaves the session is not found")
	}
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{FrameworkID: mesos.FrameworkID{Value: "f1"}, ExecutorID: "x1"}})
	m.exited("x1")
	if daemon.Alive() {
		t.Error("the daemon lives on")
	}
}

func TestKillBeforeDelivery(t *testing.T) {
	t.Parallel()
	m, _ := registered(t, func(f *Flags) { f.ExecutorShutdownGracePeriod = 300 * time.Millisecond })
	r := runOf(false, "x1", "mute", "t1", "t2")
	r.Group = true
	m.run(r)
	m.kill("t2")
	for _, task := range []string{"t1", "t2"} {
		u := m.update(task, mesos.TASK_KILLED)
		if u.Status.GetReason() != mesos.REASON_TASK_KILLED_DURING_LAUNCH || u.Status.GetMessage() != "Killed before delivery to the executor" {
			t.Errorf("%s: %s %q", task, u.Status.GetReason(), u.Status.GetMessage())
		}
	}
	m.exited("x1")
	m.kill("unknown")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	m, a := registered(t, func(f *Flags) { f.ExecutorShutdownGracePeriod = time.Minute })
	m.running(runOf(false, "x1", "stubborn", "t1"))
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{FrameworkID: mesos.FrameworkID{Value: "f1"}, ExecutorID: "x1"}})
	m.run(runOf(false, "x1", "stubborn", "t2"))
	if u := m.update("t2", mesos.TASK_LOST); u.Status.GetMessage() != "Executor terminating" {
		t.Errorf("message %q", u.Status.GetMessage())
	}
	m.run(runOf(false, "../x", "ok", "t3"))
	m.update("t3", mesos.TASK_ERROR)
	m.run(runOf(false, "x4", "ok", "a/b"))
	m.update("a/b", mesos.TASK_ERROR)
	m.kill("no-such-task")
	m.update("no-such-task", mesos.TASK_LOST)
	m.send(link.Event{Type: link.EventReconcile, Reconcile: []link.ReconcileTask{
		{FrameworkID: mesos.FrameworkID{Value: "f1"}, TaskID: "t1"}, {FrameworkID: mesos.FrameworkID{Value: "f9"}, TaskID: "t9"}}})
	if u := m.update("t9", mesos.TASK_LOST); u.Status.GetReason() != mesos.REASON_RECONCILIATION {
		t.Errorf("reason %s", u.Status.GetReason())
	}
	// The stubborn one would make the test wait.
	a.loop.do(a.ctx, func() { a.destroy(a.frameworks["f1"].executors["x1"], nil) })
	m.exited("x1")
}

func TestTeardownTellsNobody(t *testing.T) {
	t.Parallel()
	m, a := registered(t, func(f *Flags) { f.ExecutorShutdownGracePeriod = 200 * time.Millisecond })
	m.running(runOf(true, "x1", "stubborn", "t1"))
	m.running(runOf(true, "x2", "ok", "t2"))
	m.send(link.Event{Type: link.EventShutdownFramework, ShutdownFramework: &mesos.FrameworkID{Value: "f1"}})
	eventually(t, "the framework is gone", func() bool {
		n := -1
		a.loop.do(a.ctx, func() { n = len(a.frameworks) })
		ids, _ := a.store.Frameworks(a.id())
		return n == 0 && len(ids) == 0
	})
	if !m.without(func(c link.Call) bool { return c.Type == link.CallExited }) {
		t.Error("the master was told of an end")
	}
}

func TestCloseEndsOnlyWhatDoesNotCheckpoint(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	r := runOf(false, "x2", "ok", "t2")
	r.Framework.ID.Value = "f2"
	m.running(r)
	ids := processes(t, a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if !ids["x1"].Alive() || ids["x2"].Alive() {
		t.Errorf("alive: x1 %v, x2 %v", ids["x1"].Alive(), ids["x2"].Alive())
	}
	// The next agent ends it with the test.
	b := startAgent(t, f)
	waitRegistered(t, b)
}

// processes returns the executors' processes.
// alive waits until an executor has been started.
func alive(t *testing.T, a *Agent, executor string) procid.Identity {
	t.Helper()
	var id procid.Identity
	eventually(t, "the executor runs", func() bool {
		id = processes(t, a)[executor]
		return id.Alive()
	})
	return id
}

func processes(t *testing.T, a *Agent) map[string]procid.Identity {
	t.Helper()
	out := map[string]procid.Identity{}
	list, err := a.store.Containers()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		out[c.Run.Executor] = c.Process
	}
	return out
}

func killProcess(t *testing.T, id procid.Identity) {
	t.Helper()
	p, err := procid.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is gone", func() bool { return !id.Alive() })
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	a := startAgent(t, f)
	second, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another agent uses it") {
		t.Errorf("the same work directory: %v", err)
	}
	_ = second.Close() // harmless
	g := testFlags(t, m)
	g.Port = int(a.info.GetPort())
	third, err := New(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another --ip or --port") {
		t.Errorf("the same port: %v", err)
	}
	waitRegistered(t, a)
	a.Kill()
	f.Resources = "cpus:2;mem:4096;disk:10240;ports:[31000-32000]"
	f.Attributes = "zone:b"
	other, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	err = other.Start(t.Context())
	for _, want := range []string{"resources were", "attributes", "meta/slaves/latest"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("other resources: %v lacks %q", err, want)
		}
	}
	if f.WorkDir = "/dev/null/x"; f.Validate() == nil {
		bad, err := New(f)
		if err == nil {
			err = bad.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "give a directory that can be written") {
			t.Errorf("a bad work directory: %v", err)
		}
	}
}

func TestStateTables(t *testing.T) {
	t.Parallel()
	want := map[executorState]string{
		registering: "subscribes>RUNNING is asked to end>TERMINATING is killed>TERMINATING exits>TERMINATED",
		running:     "subscribes>RUNNING is asked to end>TERMINATING is killed>TERMINATING exits>TERMINATED",
		terminating: "subscribes>- is asked to end>- is killed>TERMINATING exits>TERMINATED",
		terminated:  "subscribes>- is asked to end>- is killed>- exits>-",
	}
	for from, line := range want {
		var got []string
		for _, ev := range []executorEvent{subscribes, isShutDown, isKilled, exits} {
			e := &executor{state: from}
			to := "-"
			if e.step(ev) {
				to = string(e.state)
			} else if e.state != from {
				t.Errorf("%s %s: refused and changed to %s", from, ev, e.state)
			}
			got = append(got, string(ev)+">"+to)
		}
		if s := strings.Join(got, " "); s != line {
			t.Errorf("%s: %s, not %s", from, s, line)
		}
	}
	tasks := map[taskPhase]string{
		queued:   "launched,-,launched,ended,-",
		launched: "launched,queued,launched,ended,-",
		ended:    "-,-,-,-,done",
		done:     "-,-,-,-,-",
	}
	for from, line := range tasks {
		var got []string
		for _, ev := range []taskEvent{delivered, undelivered, updated, endUpdated, acknowledged} {
			x := &task{phase: from}
			if x.step(ev) {
				got = append(got, string(x.phase))
			} else {
				got = append(got, "-")
			}
		}
		if s := strings.Join(got, ","); s != line {
			t.Errorf("%s: %s, not %s", from, s, line)
		}
	}
	if len(executorTable) != len(want) || len(taskTable) != len(tasks) {
		t.Error("a state without a test")
	}
}

func TestLinkMessagesSurviveJSON(t *testing.T) {
	t.Parallel()
	r := runOf(true, "x1", "ok", "t1")
	r.Executor.Data = []byte{0, 255}
	b, err := json.Marshal(link.Event{Type: link.EventRun, Run: r})
	if err != nil {
		t.Fatal(err)
	}
	var back link.Event
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !back.Run.Executor.Equal(r.Executor) || !back.Run.Tasks[0].Equal(r.Tasks[0]) || !back.Run.Framework.Equal(r.Framework) {
		t.Errorf("changed on the way: %s", b)
	}
}

func TestHistoryIsTrimmed(t *testing.T) {
	t.Parallel()
	e := &executor{tasks: map[string]*task{}}
	for i := range maxCompletedTasks + 5 {
		phase := done
		if i == 2 {
			phase = launched
		}
		e.addTask(&task{info: mesos.TaskInfo{TaskID: mesos.TaskID{Value: strconv.Itoa(i)}}, phase: phase})
	}
	gone := e.trim()
	if !slices.Equal(gone, []string{"0", "1", "3", "4"}) || e.tasks["2"] == nil || e.tasks["0"] != nil || len(e.order) != maxCompletedTasks+1 {
		t.Errorf("gone %v, left %d", gone, len(e.order))
	}
}
