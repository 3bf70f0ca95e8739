package processdaemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// keeperPid asks the daemon for its keeper.
func (p *proc) keeperPid() int {
	p.t.Helper()
	pid := 0
	p.must("info", func(ctx context.Context) error {
		i, err := p.c.Info(ctx)
		if err == nil && i.Keeper != nil {
			pid = i.Keeper.Pid
		}
		return err
	})
	return pid
}

func (p *proc) killKeeper() {
	p.t.Helper()
	pid := p.keeperPid()
	if pid == 0 {
		p.t.Fatal("no keeper")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, "the keeper is gone", func() bool { id, err := procid.Of(pid); return err != nil || !id.Alive() })
}

// TestFaultKilledKeeper: what runs goes on, its end is noticed, and its exit code
// is known where the kernel or the daemon can still learn it; never made up.
func TestFaultKilledKeeper(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	const cmd = `trap "exit 7" USR1; : > trapped; while :; do sleep 0.02; done`
	for _, id := range []string{"watched", "both-killed", "unseen"} {
		p.createAndStart(p.spec(id, cmd))
		p.await(id, running)
		eventually(t, "its trap", func() bool { return exists(filepath.Join(p.dir, "data/workspace/work_dir", id, "trapped")) })
	}
	pids := map[string]int{}
	for _, id := range []string{"watched", "both-killed", "unseen"} {
		pids[id] = p.await(id, running).Pid
	}
	usr1 := func(id string) {
		if err := syscall.Kill(pids[id], syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
	}
	p.killKeeper()
	// The daemon that started the keeper is the next subreaper.
	usr1("watched")
	if st := p.await("watched", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
		t.Errorf("with its daemon: %+v", st.Exit)
	}
	// A new keeper serves new starts.
	p.createAndStart(p.spec("next", "exit 4"))
	if st := p.await("next", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 4}) {
		t.Errorf("the next start: %+v", st.Exit)
	}
	p.killKeeper()
	p.stop(syscall.SIGKILL)
	usr1("unseen")
	eventually(t, "it is gone", func() bool { id, err := procid.Of(pids["unseen"]); return err != nil || !id.Alive() })
	p.start("")
	// Nobody saw it, unless whoever inherited it had not collected it yet when the daemon looked: then it is the truth.
	if st := p.await("unseen", ended); st.Exit == nil || st.Exit.Known && *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
		t.Errorf("nobody saw it: %+v", st.Exit)
	}
	if st := p.await("both-killed", running); st.Pid != pids["both-killed"] {
		t.Errorf("pid %d, was %d", st.Pid, pids["both-killed"])
	}
	usr1("both-killed")
	// Linux 6.15 and later tell whoever holds a pidfd; before, it is unknown.
	if st := p.await("both-killed", ended); st.Exit == nil || st.Exit.Known && st.Exit.Code != 7 {
		t.Errorf("its parent was killed: %+v", st.Exit)
	} else {
		t.Logf("after both were killed, the kernel tells: %v", st.Exit.Known)
	}
}

// TestFaultHangingKeeper: one that stands still is replaced, and nobody waits for it without end.
func TestFaultHangingKeeper(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.parent.patience = 2 * time.Second
	old := d.Info().Keeper.Pid
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	run(t, d, spec(d, "a", "exit 3"))
	if st := awaitState(t, d, "a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 3}) {
		t.Errorf("%+v %+v", st, st.Exit)
	}
	if id, err := procid.Of(old); err == nil && id.Alive() {
		t.Error("the old keeper lives")
	}
}

// TestFaultEveryKeeperPoint kills the keeper at each of its failpoints, once. The
// start command has run at most once, the task's end is told, nothing is left.
func TestFaultEveryKeeperPoint(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"foreground", "pidfile"} {
		for _, point := range []string{"asked", "forked", "save", "recorded", "started", "ended", "end-recorded"} {
			for _, at := range []string{"kill", "1*off->kill"} {
				t.Run(kind+"/"+point+"/"+at, func(t *testing.T) {
					t.Parallel()
					keeperFaultAt(t, kind, "keeper/"+point+"="+at)
				})
			}
		}
	}
}

func keeperFaultAt(t *testing.T, kind, points string) {
	p := newProc(t)
	s := p.spec("a", "./start.sh")
	worker := `echo ran >> ran; trap "exit 9" USR1; : > trapped; while :; do sleep 0.02; done`
	script := "#!/bin/sh\n" + worker + "\n"
	if kind == "pidfile" {
		s.PidFile = "app.pid"
		script = fmt.Sprintf(daemonScript, worker)
	}
	write(t, filepath.Join(s.WorkPath, "start.sh"), script, 0o755)
	p.start(points)
	p.createAndStart(s)
	var st protocol.Status
	for end := time.Now().Add(patience); st.State != running && st.State != ended; {
		if time.Now().After(end) {
			t.Fatalf("neither running nor ended: %+v", st)
		}
		p.must("status", func(ctx context.Context) (err error) {
			st, err = p.c.Poll(ctx, "a", st.Version, 100*time.Millisecond)
			return err
		})
	}
	ran := func() int {
		b, _ := os.ReadFile(filepath.Join(s.WorkPath, "ran"))
		return strings.Count(string(b), "ran\n")
	}
	// Only where the process was recorded and did not run yet can it be lost.
	lost := func() bool {
		now, err := p.c.Status(context.Background(), "a")
		return err == nil && now.State == ended
	}
	eventually(t, "it runs, or has ended", func() bool { return exists(filepath.Join(s.WorkPath, "trapped")) || lost() })
	if !exists(filepath.Join(s.WorkPath, "trapped")) {
		if !strings.Contains(points, "recorded") && !strings.Contains(points, "save") && !strings.Contains(points, "ended") {
			t.Errorf("it was lost: %+v %+v", st, st.Exit)
		}
	} else {
		if st := p.await("a", running); st.Pid != 0 {
			p.must("signal", func(ctx context.Context) error { return p.c.Signal(ctx, "a", syscall.SIGUSR1) })
		}
		if st := p.await("a", ended); st.Exit == nil || st.Exit.Known && st.Exit.Code != 9 {
			t.Errorf("%+v", st.Exit)
		}
	}
	if n := ran(); n > 1 {
		t.Errorf("it ran %d times", n)
	}
	p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, "a") })
	if pids := processesIn(s.WorkPath); len(pids) > 0 {
		t.Errorf("processes left: %v", pids)
	}
	eventually(t, "the keeper forgot it", func() bool {
		e, _ := os.ReadDir(filepath.Join(p.dir, "data/processd/keeper/processes"))
		return len(e) == 0
	})
}
