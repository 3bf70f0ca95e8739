package container

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"tandem/executor"
	"tandem/internal/enginetest"
)

// trial brings a task of this script through its life at a proxy whose nth call
// goes wrong, and returns how many calls there were. What it finds wrong it reports.
func trial(t *testing.T, script string, want executor.Exit, nth int, fault enginetest.Fault) int {
	t.Helper()
	f, p := behindProxy(t)
	f.opt.ExitPatience = 30 * time.Second
	task := f.task(script)
	if nth > 0 {
		p.ArmNth(nth, fault)
	}
	ctx := f.ctx()
	err := f.Prepare(ctx, task, func(string) {})
	if err == nil {
		err = f.Create(ctx, task)
	}
	if err == nil {
		_, err = f.Start(ctx, task.ID)
	}
	if err != nil && (nth == 0 || fault == enginetest.Delay) {
		t.Error("launch:", err)
	}
	if err == nil && want.Signal == 0 {
		exit, out := f.finish(task)
		if !exit.Known || exit.Code != want.Code || exit.Signal != 0 || out != "up\n" {
			t.Errorf("exit %+v, output %q", exit, out)
		}
	}
	// As the executor does it: again, when it failed.
	if err := twice(func() error { return f.Stop(ctx, task.ID, 0) }); err != nil {
		t.Error("stop:", err)
	}
	if err == nil && want.Signal != 0 {
		if exit, _ := f.finish(task); !exit.Known || exit.Signal != want.Signal {
			t.Errorf("exit %+v", exit)
		}
	}
	if err := twice(func() error { return f.Remove(ctx, task.ID) }); err != nil {
		t.Error("remove:", err)
	}
	n := p.Total()
	for _, c := range f.containers() {
		// One whose creation went unanswered is in the records still.
		if ids, _ := f.List(ctx); len(ids) == 0 || c.State == "running" {
			t.Errorf("%v is left, %s", c.Names, c.State)
		}
	}
	return n
}

func twice(do func() error) error {
	if do() == nil {
		return nil
	}
	return do()
}

// TestAnyCallMayGoWrong: each call of a task's life goes wrong once in each way,
// and the task is never reported as what it was not, and ends when it is told to.
func TestAnyCallMayGoWrong(t *testing.T) {
	t.Parallel()
	faults := []enginetest.Fault{enginetest.DropRequest, enginetest.DropResponse, enginetest.Fail500, enginetest.Delay, enginetest.HalfClose}
	for _, path := range []struct {
		name, script string
		want         executor.Exit
		from         int // earlier calls are those of the first path
	}{
		{"done", "echo up; exit 0", executor.Exit{}, 1},
		{"failed", "echo up; exit 7", executor.Exit{Code: 7}, 5},
		{"killed", "echo up; sleep 60", executor.Exit{Signal: int(syscall.SIGKILL)}, 5},
	} {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			calls := trial(t, path.script, path.want, 0, enginetest.Pass)
			for nth := path.from; nth <= calls; nth++ {
				for i, fault := range faults {
					// What hangs up comes to every call of the first path, the rest takes turns.
					if (path.from > 1 || fault == enginetest.Delay || fault == enginetest.Fail500) && i%2 != nth%2 {
						continue
					}
					t.Run(fmt.Sprintf("%d %s", nth, fault), func(t *testing.T) { trial(t, path.script, path.want, nth, fault) })
				}
			}
		})
	}
}

// TestEventsAreLost: an engine that forgets is asked again, and one that knows
// nothing of an end is not believed that it was a success.
func TestEventsAreLost(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	f.opt.ExitPatience = 30 * time.Second
	p.Arm("GET .*/events$", enginetest.LoseEvents, 2)
	task := f.task("exit 0")
	f.launch(task)
	if exit, _ := f.finish(task); !exit.Known || exit.Code != 0 {
		t.Errorf("lost twice: %+v", exit)
	}
	p.Arm("GET .*/events$", enginetest.LoseEvents, -1)
	for script, known := range map[string]bool{"exit 0": false, "exit 7": true} {
		task = f.task(script)
		f.launch(task)
		if exit, _ := f.finish(task); exit.Known != known {
			t.Errorf("lost for good, %s: %+v", script, exit)
		}
	}
}

// TestEngineComesAndGoes: connections are broken and refused for a while, again
// and again, under tasks in all parts of their lives.
func TestEngineComesAndGoes(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	f.opt.ExitPatience = 30 * time.Second
	want := map[*executor.Task]int{}
	for _, code := range []int{0, 7} {
		task := f.task(fmt.Sprintf("echo up; for i in $(seq 30); do sleep 0.05; done; exit %d", code))
		f.launch(task)
		want[task] = code
	}
	for range 3 {
		p.Down()
		time.Sleep(300 * time.Millisecond) // no outcome depends on how long
		if err := p.Up(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
	}
	for task, code := range want {
		if exit, out := f.finish(task); !exit.Known || exit.Code != code || out != "up\n" {
			t.Errorf("exit %+v, want %d, output %q", exit, code, out)
		}
	}
}
