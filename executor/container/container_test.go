package container

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dcontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"tandem/executor"
)

// containersOf lists what the engine holds for an owner.
func containersOf(t *testing.T, owner string) []dcontainer.Summary {
	t.Helper()
	return listOf(t, docker, owner)
}

func listOf(t *testing.T, docker *client.Client, owner string) []dcontainer.Summary {
	t.Helper()
	list, err := docker.ContainerList(context.Background(), dcontainer.ListOptions{All: true,
		Filters: filters.NewArgs(filters.Arg("label", labelOwner+"="+owner))})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (f *fixture) containers() []dcontainer.Summary {
	f.t.Helper()
	return listOf(f.t, f.docker, f.owner.Name())
}

// TestE1ExitCodeZeroIsKnown: an exit with 0 is an end like any other, and its code arrives.
func TestE1ExitCodeZeroIsKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for code, want := range map[int]executor.Exit{0: {Known: true}, 3: {Known: true, Code: 3}, 143: {Known: true, Code: 143, Signal: 15}} {
		task := f.task(fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		s := f.launch(task)
		if s.ContainerID == "" {
			t.Error("no container id")
		}
		exit, out := f.finish(task)
		if exit.Known != want.Known || exit.Code != want.Code || exit.Signal != want.Signal || exit.At.IsZero() {
			t.Errorf("exit %+v, want %+v", exit, want)
		}
		if out != "out\n" || f.read(task, "stderr") != "err\n" {
			t.Errorf("stdout %q, stderr %q", out, f.read(task, "stderr"))
		}
		if tail, _ := f.Tail(f.ctx(), task.ID, 100); !strings.Contains(tail, "err\n") || !strings.Contains(tail, "out\n") {
			t.Errorf("tail %q", tail)
		}
		if err := f.Remove(f.ctx(), task.ID); err != nil {
			t.Error(err)
		}
		if err := f.Remove(f.ctx(), task.ID); err != nil {
			t.Error("remove again:", err)
		}
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if ids, err := f.List(f.ctx()); err != nil || len(ids) > 0 {
		t.Errorf("records left: %v %v", ids, err)
	}
}

func TestStopTermThenKill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	polite := f.task(`trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done`)
	deaf := f.task(`trap '' TERM; echo up; while :; do sleep 0.05; done`)
	for _, task := range []*executor.Task{polite, deaf} {
		s := f.launch(task)
		if s.Pid <= 0 || syscall.Kill(s.Pid, 0) != nil {
			t.Errorf("pid %d", s.Pid)
		}
		eventually(t, "output", func() bool { return strings.Contains(f.read(task, "stdout"), "up") })
	}
	if err := f.Stop(f.ctx(), polite.ID, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if exit, out := f.finish(polite); exit.Code != 7 || out != "up\nbye\n" {
		t.Errorf("polite: %+v %q", exit, out)
	}
	begin := time.Now()
	if err := f.Stop(f.ctx(), deaf.ID, 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d < 300*time.Millisecond || d > 15*time.Second {
		t.Errorf("took %v", d)
	}
	if exit, _ := f.finish(deaf); exit.Signal != int(syscall.SIGKILL) || exit.Code != 137 {
		t.Errorf("deaf: %+v", exit)
	}
	for _, task := range []*executor.Task{polite, deaf} {
		if err := f.Stop(f.ctx(), task.ID, time.Second); err != nil {
			t.Error("stop again:", err)
		}
	}
}

func TestUnknownTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.Stop(f.ctx(), "nobody", time.Second); err != nil {
		t.Error(err)
	}
	if err := f.Remove(f.ctx(), "nobody"); err != nil {
		t.Error(err)
	}
	if s, err := f.Tail(f.ctx(), "nobody", 10); err != nil || s != "" {
		t.Error(s, err)
	}
	if _, err := f.Start(f.ctx(), "nobody"); err == nil {
		t.Error("started")
	}
	if _, err := f.Wait(f.ctx(), "nobody"); err == nil {
		t.Error("waited")
	}
	if err := f.Signal(f.ctx(), "nobody", syscall.SIGHUP); err == nil {
		t.Error("signalled")
	}
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	if err := f.Stop(f.ctx(), task.ID, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Start(f.ctx(), task.ID); err == nil || !strings.Contains(err.Error(), "stopped before it was started") {
		t.Errorf("start after stop: %v", err)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
}

// TestE5RemovedContainerIsNoticed: a container that somebody removes has ended.
func TestE5RemovedContainerIsNoticed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	s := f.launch(task)
	if err := docker.ContainerRemove(f.ctx(), s.ContainerID, dcontainer.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	exit, _ := f.finish(task)
	if exit.Known && exit.Code == 0 {
		t.Errorf("a removed container counts as success: %+v", exit)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
}

// TestE5WithoutPidfd: where the kernel cannot be asked, the engine's word does.
func TestE5WithoutPidfd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	id := f.tasks[task.ID].containerID
	if err := f.engine.Start(f.ctx(), id); err != nil {
		t.Fatal(err)
	}
	c, err := f.engine.Inspect(f.ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	c.State.Pid = 1 // some process that is not the container's
	f.begin(f.tasks[task.ID], f.told(f.tasks[task.ID], c))
	if f.started(task.ID).proc != nil {
		t.Fatal("took a stranger for the container's process")
	}
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	if exit, _ := f.finish(task); exit.Signal != 9 {
		t.Errorf("exit %+v", exit)
	}
}

// TestE17RestartedFromOutside: the task has ended, and what was started in its place is stopped.
func TestE17RestartedFromOutside(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	s := f.launch(task)
	now := 0
	if err := docker.ContainerRestart(f.ctx(), s.ContainerID, dcontainer.StopOptions{Timeout: &now}); err != nil {
		t.Fatal(err)
	}
	if exit, _ := f.finish(task); exit.Known && exit.Code == 0 {
		t.Errorf("exit %+v", exit)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
}

// TestE17OOMKilledIsTold by the flag of the exit; so the limit is one, too (E16).
func TestE17OOMKilledIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if info, err := f.docker.Info(f.ctx()); err != nil || !info.MemoryLimit {
		t.Skip("the engine limits no memory here: ", err)
	}
	task := f.task(`x=$(cat /dev/zero | /bin/busybox tr '\0' x | /bin/busybox head -c 200000000); echo survived ${#x}`)
	task.Spec.Limits.MemMB = 16
	f.launch(task)
	if exit, out := f.finish(task); !exit.Known || !exit.OOMKilled || exit.Code == 0 || strings.Contains(out, "survived") {
		t.Errorf("exit %+v, output %.100q", exit, out)
	}
}

// TestE17NodeAddressNeedNotBePrivate: whatever the agent's address is, a task in its
// network has it; without one there is none to report.
func TestE17NodeAddressNeedNotBePrivate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, ip := range []string{"203.0.113.9", "2001:db8::9", ""} {
		s := f.launch(f.task("sleep 60", func(e *executor.Task) { e.Spec.Network.Mode, e.Spec.NodeIP = "HOST", ip }))
		if strings.Join(s.IPs, " ") != ip {
			t.Errorf("%q: addresses %v", ip, s.IPs)
		}
	}
}

// TestE17NothingIsLeftRunningInTheExecutor: tickers, readers and watchers of a task end with it.
func TestE17NothingIsLeftRunningInTheExecutor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 3 {
		task := f.launchUp("echo up; sleep 60")
		n := f.started(task.ID)
		if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
			t.Fatal(err)
		}
		f.finish(task)
		if err := f.Remove(f.ctx(), task.ID); err != nil {
			t.Fatal(err)
		}
		// The two goroutines of a task close these when they end.
		if !over(n.done) || !over(n.copied) {
			t.Error("a task that was removed is still watched")
		}
	}
	if len(f.tasks) != 0 || len(f.images) != 0 {
		t.Errorf("remembered: %v, %v", f.tasks, f.images)
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }() // it waits for every goroutine of the runtime
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("something of the runtime does not end")
	}
}

// TestE15StopsRunSideBySide: ending several containers takes one grace, not the sum.
func TestE15StopsRunSideBySide(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n, grace = 5, 2 * time.Second
	tasks := make([]*executor.Task, n)
	for i := range tasks {
		tasks[i] = f.task(`trap '' TERM; echo up; while :; do sleep 0.05; done`)
		f.launch(tasks[i])
	}
	begin := time.Now()
	errs := make(chan error, n)
	for _, task := range tasks {
		go func() { errs <- f.Stop(f.ctx(), task.ID, grace) }()
	}
	for range tasks {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(begin); d > n*grace {
		t.Errorf("took %v", d)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task(`trap 'echo hup; exit 5' HUP; echo up; while :; do sleep 0.05; done`)
	f.launch(task)
	eventually(t, "output", func() bool { return strings.Contains(f.read(task, "stdout"), "up") })
	if err := f.Signal(f.ctx(), task.ID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if exit, out := f.finish(task); exit.Code != 5 || !strings.Contains(out, "hup") {
		t.Errorf("%+v %q", exit, out)
	}
}

func TestNoEngine(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Host = "unix://" + filepath.Join(t.TempDir(), "none.sock") })
	err := f.Check(f.ctx())
	for _, want := range []string{"docker host unix:///", "cannot connect", "start a Docker Engine (20.10 or later) or run process tasks only"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, err := New(Options{Journal: f.owner, Host: "tcp://10.0.0.1:2375"}); err == nil || !strings.Contains(err.Error(), "unix:///") {
		t.Errorf("tcp: %v", err)
	}
}

func TestCloseLeavesContainersRunning(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60")
	s := f.launch(task)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", s.Pid)); err != nil {
		t.Error("closing the runtime ended the container")
	}
	if _, err := f.Wait(f.ctx(), task.ID); err == nil {
		t.Error("an outcome from a closed runtime")
	}
}
