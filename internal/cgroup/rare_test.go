package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/testkit"
)

// TestThreadedBelow: a task may spread the threads of its processes over groups of its own
// (cgroups(7), threaded mode). Such a group does not tell its processes; those above do.
func TestThreadedBelow(t *testing.T) {
	tr := trees(t)[ModeHybrid]
	if tr == nil {
		tr = trees(t)[ModeV2]
	}
	if tr == nil {
		t.Skip("no v2 hierarchy")
	}
	g := tr.Group("threaded")
	if _, err := g.Create(Limits{}); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, g, "exec sleep 600")
	below := filepath.Join(g.dir(tr.track), "workers")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(below, "cgroup.type"), "threaded"); err != nil {
		t.Skip("no threaded groups: ", err)
	}
	if _, err := os.ReadFile(filepath.Join(below, "cgroup.procs")); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("this kernel tells the processes of a threaded group: %v", err)
	}
	if err := writeFile(filepath.Join(below, "cgroup.threads"), strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("%v, %v", pids, err)
	}
	if in, err := g.Contains(cmd.Process.Pid); err != nil || !in {
		t.Errorf("%t, %v", in, err)
	}
	if err := g.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("signal: %v", err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("%v", err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestUpdateWithoutMainThread: a process whose main thread has ended while others run is in a
// group by its number for as long as they do, and its dead thread is moved nowhere.
func TestUpdateWithoutMainThread(t *testing.T) {
	for mode, tr := range trees(t) {
		if mode == ModeSession {
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			g := tr.Group("mainless")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			cmd := start(t, g, "exec env "+testkit.HeadlessVar+"=1 "+os.Args[0]+" -test.run='^$'")
			pid := cmd.Process.Pid
			eventually(t, "its main thread has ended", func() bool { return procid.Headless(pid) })
			if p, err := procid.Of(pid); err != nil || !p.Alive() {
				t.Fatalf("%v %v", p, err)
			}
			if pids, err := g.Pids(); err != nil || len(pids) != 1 {
				t.Errorf("%v, %v", pids, err)
			}
			if err := g.Update(Limits{MemoryBytes: 256 << 20, CPUs: 1, Pids: 100}); err != nil && tr.limit["memory"] != nil {
				t.Errorf("update: %v", err)
			}
			eventually(t, "it is killed", func() bool {
				if err := g.Kill(); err != nil {
					t.Error(err)
				}
				empty, err := g.Empty()
				return empty && err == nil
			})
			_ = cmd.Wait()
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}
