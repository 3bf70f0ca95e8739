package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// held counts what a process has open, by kind; what a kind is called has no numbers.
func held(t *testing.T, pid int) (total int, kinds map[string]int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kinds = map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}
		to, _, _ = strings.Cut(to, ":[")
		kinds[to]++
		total++
	}
	return total, kinds
}

// TestFaultCyclesLeakNothing: after two hundred tasks of each kind have been created, started,
// restarted, signalled, stopped and deleted, daemon and keeper have as many files and the daemon has as
// many goroutines as before, and the data directory as many files.
func TestFaultCyclesLeakNothing(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	info, err := p.c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	daemon, keeper := p.cmd.Process.Pid, info.Keeper.Pid
	const side = 10 // at once
	cycles := func(n int) {
		done := make(chan error, side)
		for i := range side {
			go func() {
				for j := range n / side {
					if err := cycle(p, fmt.Sprintf("%d-%d", i, j), j); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range side {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	cycles(2 * side) // what is made once, is
	filesBefore := everything(t, filepath.Join(p.dir, "data/processd"))
	daemonBefore, _ := held(t, daemon)
	keeperBefore, _ := held(t, keeper)
	threadsBefore := threads(t, daemon)
	cycles(200)
	p.c.Close()
	const some = 5 // connections that are just being closed, threads of the runtime
	eventually(t, "the daemon has closed its files", func() bool { n, _ := held(t, daemon); return n <= daemonBefore+some })
	eventually(t, "the keeper has closed its files", func() bool { n, _ := held(t, keeper); return n <= keeperBefore+some })
	if n := threads(t, daemon); n > threadsBefore+4*some {
		t.Errorf("%d threads, %d before", n, threadsBefore)
	}
	eventually(t, "the directory is as it was", func() bool {
		return len(everything(t, filepath.Join(p.dir, "data/processd"))) <= len(filesBefore)
	})
	if t.Failed() {
		_, kinds := held(t, daemon)
		t.Log(kinds)
		_, kinds = held(t, keeper)
		t.Log(kinds)
	}
}

func threads(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// cycle is a task's whole life, in one of four ways.
func cycle(p *proc, id string, kind int) error {
	ctx := p.t.Context()
	s := p.spec(id, "sleep 60")
	switch kind % 4 {
	case 1:
		s.StartCmd, s.PidFile = "sleep 60 & echo $! > app.pid", "app.pid"
	case 2:
		s.StopCmd, s.ReloadCmd = "kill $MAINPID", "true"
	case 3:
		s.StartCmd = "exit 3"
	}
	steps := []func() error{
		func() error { _, err := p.c.Create(ctx, s); return err },
		func() error { _, err := p.c.Start(ctx, id, 20*time.Second); return err },
		func() error {
			if kind%4 != 2 {
				return nil
			}
			_, err := p.c.Reload(ctx, id)
			if err == nil {
				_, err = p.c.Restart(ctx, id, time.Minute)
			}
			return err
		},
		func() error {
			if kind%4 != 0 {
				return nil
			}
			_, _, err := p.c.Exec(ctx, id, protocol.ExecRequest{Argv: []string{"true"}})
			return err
		},
		func() error { _, err := p.c.Stop(ctx, id, time.Minute); return err },
		func() error {
			st, err := p.c.Status(ctx, id)
			for err == nil && st.State != ended {
				st, err = p.c.Poll(ctx, id, st.Version, 20*time.Second)
			}
			return err
		},
		func() error { return p.c.Delete(ctx, id) },
	}
	for i, step := range steps {
		if err := step(); err != nil && !client.IsCode(err, protocol.CodeConflict) {
			return fmt.Errorf("%s step %d: %w", id, i, err)
		}
	}
	return nil
}

// TestTasksLeakNothingInTheDaemon: goroutines and handles of processes, seen from inside.
func TestTasksLeakNothingInTheDaemon(t *testing.T) { //nolint:paralleltest // counts what the whole program has
	d := newDaemon(t)
	life := func(i int) {
		s := spec(d, strconv.Itoa(i), "sleep 60")
		if i%2 == 1 {
			s.StartCmd, s.PidFile = "sleep 60 & echo $! > app.pid", "app.pid"
		}
		run(t, d, s)
		awaitState(t, d, s.ID, running)
		if _, err := d.Stop(s.ID, time.Duration(i%3)*time.Second); err != nil {
			t.Fatal(err)
		}
		awaitState(t, d, s.ID, ended)
		if err := d.Delete(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		life(i)
	}
	before, _ := held(t, os.Getpid())
	goroutines := runtime.NumGoroutine()
	for i := range 60 {
		life(i)
	}
	// Handles that were forgotten would be closed by the collector of garbage.
	after, kinds := held(t, os.Getpid())
	if after > before+3 {
		t.Errorf("%d files are open, %d were before: %v", after, before, kinds)
	}
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kids.mu.Lock()
	defer d.kids.mu.Unlock()
	// The keeper is tracked.
	if len(d.tasks) != 0 || len(d.kids.tracked) > 1 {
		t.Errorf("%v %v", d.tasks, d.kids.tracked)
	}
}
