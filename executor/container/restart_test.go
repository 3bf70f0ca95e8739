package container

import (
	"strings"
	"syscall"
	"testing"
	"time"

	dcontainer "github.com/docker/docker/api/types/container"

	"tandem/executor"
)

// untilTold runs until SIGTERM, and then exits with a code.
func untilTold(code string) string {
	return "trap 'exit " + code + "' TERM; echo up; while :; do sleep 0.05; done"
}

// launchUp launches a task and waits until it has said so.
func (f *fixture) launchUp(script string) *executor.Task {
	f.t.Helper()
	task := f.task(script)
	f.launch(task)
	eventually(f.t, "output", func() bool { return strings.Contains(f.read(task, "stdout"), "up") })
	return task
}

// TestE17EngineRestartedUnderTasks: an engine that is stopped ends its containers. A
// program that answers SIGTERM with 0 has not finished for that.
func TestE17EngineRestartedUnderTasks(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	f := fixtureAt(t, e, time.Minute)
	zero, seven := f.launchUp(untilTold("0")), f.launchUp(untilTold("7"))
	e.End(syscall.SIGTERM)
	e.Start()
	if exit, _ := f.finish(zero); exit.Known || !strings.Contains(exit.Message, "Docker Engine") {
		t.Errorf("a task that the engine ended counts as done: %+v", exit)
	}
	if exit, _ := f.finish(seven); !exit.Known || exit.Code != 7 {
		t.Errorf("exit %+v, want code 7", exit)
	}
	// What comes after is as ever.
	task := f.task("exit 0")
	f.launch(task)
	if exit, _ := f.finish(task); !exit.Known || exit.Code != 0 {
		t.Errorf("after the restart: %+v", exit)
	}
	for _, done := range []*executor.Task{zero, seven, task} {
		if err := f.Remove(f.ctx(), done.ID); err != nil {
			t.Error(err)
		}
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestEngineStoppedForGood: nobody tells the exit code; that is said, and no success made of it.
func TestEngineStoppedForGood(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	f := fixtureAt(t, e, time.Second)
	task := f.launchUp(untilTold("0"))
	e.End(syscall.SIGTERM)
	// An engine on its way out may have had a last word; a success it is not.
	if exit, _ := f.finish(task); exit.Known || !strings.Contains(exit.Message, "exit code is unknown") && !strings.Contains(exit.Message, "told to end") {
		t.Errorf("exit %+v", exit)
	}
	if err := f.Remove(f.ctx(), task.ID); err == nil {
		t.Error("removed without an engine")
	}
	if ids, _ := f.List(f.ctx()); len(ids) != 1 {
		t.Errorf("records %v; the container is still to be removed", ids)
	}
	// When it speaks again, the rest is removed.
	e.Start()
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestEngineKilledUnderTasks: containers outlive an engine that dies, and its successor ends them.
func TestEngineKilledUnderTasks(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	f := fixtureAt(t, e, time.Minute)
	until := "; while :; do sleep 0.05; done"
	zero, seven := f.launchUp("trap 'exit 0' USR1; echo up"+until), f.launchUp("trap 'exit 7' USR1; echo up"+until)
	e.End(syscall.SIGKILL)
	for _, task := range []*executor.Task{zero, seven} {
		n := f.started(task.ID)
		if err := n.proc.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end is known without an engine", func() bool { return over(n.ended) })
	}
	e.Start()
	// It may have been the end of its work, or the engine's doing: who knows.
	if exit, _ := f.finish(zero); exit.Known {
		t.Errorf("exit %+v", exit)
	}
	if exit, _ := f.finish(seven); !exit.Known || exit.Code != 7 {
		t.Errorf("exit %+v, want code 7", exit)
	}
}

// TestLiveRestore: with it, containers go on while the engine is away, and what it
// says when it is back is true.
func TestLiveRestore(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "--live-restore")
	f := fixtureAt(t, e, time.Minute)
	zero, seven := f.launchUp("echo up; sleep 1; exit 0"), f.launchUp("echo up; sleep 1; exit 7")
	runs := f.launchUp("trap 'echo told; exit 0' USR1; echo up; i=0; while :; do sleep 0.05; done")
	killed := f.launchUp("trap '' TERM; echo up; while :; do sleep 0.05; done")
	e.End(syscall.SIGTERM)
	if err := f.Stop(f.ctx(), killed.ID, 100*time.Millisecond); err != nil {
		t.Error("kill without an engine:", err)
	}
	for _, task := range []*executor.Task{zero, seven} {
		n := f.started(task.ID)
		eventually(t, "the end is known without an engine", func() bool { return over(n.ended) })
	}
	e.Start()
	if exit, _ := f.finish(zero); !exit.Known || exit.Code != 0 {
		t.Errorf("exit %+v, want success", exit)
	}
	if exit, _ := f.finish(seven); !exit.Known || exit.Code != 7 {
		t.Errorf("exit %+v, want code 7", exit)
	}
	if exit, _ := f.finish(killed); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v, want SIGKILL", exit)
	}
	if over(f.started(runs.ID).ended) {
		t.Fatal("the one that runs was ended")
	}
	if err := syscall.Kill(f.started(runs.ID).proc.Identity().Pid, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if exit, out := f.finish(runs); !exit.Known || exit.Code != 0 || out != "up\ntold\n" {
		t.Errorf("exit %+v, output %q", exit, out)
	}
}

// TestE1StoppedFromOutsideIsNoSuccess: docker stop is not the end of a task's work.
func TestE1StoppedFromOutsideIsNoSuccess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.launchUp(untilTold("0"))
	if err := f.docker.ContainerStop(f.ctx(), f.tasks[task.ID].containerID, dcontainer.StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if exit, _ := f.finish(task); exit.Known || !strings.Contains(exit.Message, "told to end (terminated) by somebody else") {
		t.Errorf("exit %+v", exit)
	}
	// A signal that the framework sent, and one that ends nothing, are no reason for doubt.
	task = f.launchUp(untilTold("0"))
	if err := f.docker.ContainerKill(f.ctx(), f.tasks[task.ID].containerID, "WINCH"); err != nil {
		t.Fatal(err)
	}
	if err := f.Signal(f.ctx(), task.ID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, _ := f.finish(task); !exit.Known || exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
}
