package processdaemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// storm forks without end, and goes on when it cannot.
func storm(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("no perl here: shells end when they cannot fork")
	}
	return `perl -e 'open F, ">up"; $SIG{TERM} = "IGNORE"; fork while 1'`
}

// hasPids skips a test on a machine that limits no processes.
func hasPids(t *testing.T, d *Daemon) {
	t.Helper()
	if _, limits, _ := strings.Cut(d.Info().Tracking, "limits for"); !strings.Contains(limits, "pids") {
		t.Skip("no pids controller is available here: " + d.Info().Tracking)
	}
}

// TestFaultForkBombStaysInItsTask: a task that forks without end has as many processes as
// it may and no more; meanwhile others start, run and end; it is stopped in time, and
// nothing of it is left.
func TestFaultForkBombStaysInItsTask(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: the bomb runs as nobody, so that it can be held back if the limit is not")
	}
	const most = 40
	d := newDaemon(t, func(o *Options) { o.DefaultPids = most })
	hasPids(t, d)
	s := spec(d, "bomb", storm(t))
	s.User, s.Nice, s.Limits.MemMB = "nobody", 19, 512
	s.Rlimits = []protocol.Rlimit{{Name: "nproc", Soft: 600, Hard: 600}}
	if st := run(t, d, s); st.Limits.Pids != most {
		t.Errorf("%+v", st.Limits)
	}
	var st protocol.Stats
	eventually(t, "the storm is held back", func() bool {
		var err error
		if st, err = d.Stats("bomb"); err != nil {
			t.Fatal(err)
		}
		if st.Processes > most {
			t.Fatalf("%d processes", st.Processes)
		}
		return st.ForksRefused > 100
	})
	run(t, d, spec(d, "calm", "echo here; (true); true | true"))
	if st := awaitState(t, d, "calm", ended); st.Phase != protocol.PhaseStopped || st.Exit == nil || st.Exit.Code != 0 {
		t.Errorf("%+v %+v", st, st.Exit)
	}
	if st, err := d.Stats("calm"); err != nil || st.ForksRefused != 0 {
		t.Errorf("%+v %v", st, err)
	}
	if _, err := d.Stop("bomb", 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "bomb", ended)
	if left := processesIn(s.WorkPath); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDefaultPidsLimitCostsNoMove: with cgroups v1 a group for it alone would have every
// process moved, which waits for the kernel three times as long as a start takes. So a task
// without other limits has none there, and its status does not claim one.
func TestDefaultPidsLimitCostsNoMove(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.DefaultPids = 4000 })
	hasPids(t, d)
	for id, limits := range map[string]protocol.Limits{"plain": {}, "limited": {MemMB: 512}} {
		s := spec(d, id, "sleep 60")
		s.Limits = limits
		st := run(t, d, s)
		want := int64(4000)
		if d.tree.CostsAMove("pids", groupLimits(&limits)) {
			want = 0
		}
		if id == "limited" && want == 0 || st.Limits.Pids != want {
			t.Errorf("%s: %+v, want %d", id, st.Limits, want)
		}
		moved := strings.Contains(read(t, fmt.Sprintf("/proc/%d/cgroup", st.Pid)), ":pids:/tandem/")
		if v1 := exists("/sys/fs/cgroup/pids/cgroup.procs"); v1 && moved != (want > 0) {
			t.Errorf("%s: in a group for it: %v, want %v", id, moved, want > 0)
		}
	}
}

// TestPidsLimit: a task's own limit comes before the daemon's, each can be changed
// while it runs, a change of others leaves it alone, and it holds for what is run beside
// the task and after a restart.
func TestPidsLimit(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.DefaultPids = 4 })
	hasPids(t, d)
	// The main process, a shell and this many more.
	forks := func(id string, ok bool) {
		t.Helper()
		// Where commands are moved into their group, it waits for that.
		three := `sleep 1 & sleep 1 & sleep 1 & echo all`
		if st, err := d.Status(id); err == nil && st.Limits.Pids > 0 {
			three = `while awk '/:pids:/ && !/tandem/ {f=1} END {exit !f}' /proc/$$/cgroup; do :; done; ` + three
		}
		var res protocol.ExecResult
		eventually(t, "the last command is gone", func() bool { st, err := d.Stats(id); return err == nil && st.Processes == 1 })
		res, err := d.Exec(context.Background(), id, protocol.ExecRequest{Argv: []string{"sh", "-c", three}}, func() {})
		if err != nil || (res.Code == 0 && strings.Contains(res.Output, "all")) != ok {
			t.Errorf("%s: %+v %v, want success: %v", id, res, err, ok)
		}
	}
	limits := func(id string, l protocol.Limits, want int64) {
		t.Helper()
		if st, err := d.SetLimits(id, l); err != nil || st.Limits.Pids != want {
			t.Errorf("%s: %+v %v, want %d", id, st.Limits, err, want)
		}
	}
	for id, c := range map[string]struct {
		pids int64
		ok   bool
	}{"default": {0, false}, "more": {20, true}, "none": {protocol.PidsNone, true}, "less": {3, false}} {
		s := spec(d, id, "sleep 60")
		s.Limits.Pids, s.Limits.MemMB = c.pids, 512
		run(t, d, s)
		awaitState(t, d, id, running)
		forks(id, c.ok)
	}
	limits("default", protocol.Limits{Pids: 20}, 20)
	forks("default", true)
	limits("default", protocol.Limits{MemMB: 512, CPURequest: 1}, 20)
	forks("default", true)
	limits("none", protocol.Limits{Pids: 4}, 4)
	forks("none", false)
	limits("less", protocol.Limits{Pids: protocol.PidsNone}, protocol.PidsNone)
	forks("less", true)
	if _, err := d.Restart("none", time.Second); err != nil {
		t.Fatal(err)
	}
	await(t, d, "none", func(st protocol.Status) bool { return st.Restarts == 1 && st.State == running })
	forks("none", false)
	for _, pids := range []int64{-2, -100} {
		if _, err := d.SetLimits("more", protocol.Limits{Pids: pids}); !isCode(err, protocol.CodeInvalid) {
			t.Errorf("%d: %v", pids, err)
		}
		s := spec(d, "x", "true")
		s.Limits.Pids = pids
		if _, err := d.Create(s); !isCode(err, protocol.CodeInvalid) {
			t.Errorf("%d: %v", pids, err)
		}
	}
	// The same request is the same under another default.
	again := spec(d, "default", "sleep 60")
	again.Limits.MemMB = 512
	if _, err := d.Create(again); err != nil {
		t.Error(err)
	}
}

// TestPidsLimitOfARunningStorm: one that was without a limit is held back by the first.
func TestPidsLimitOfARunningStorm(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: the bomb runs as nobody, so that it can be held back before")
	}
	d := newDaemon(t)
	hasPids(t, d)
	_ = storm(t) // for its check
	// Its children end soon, so that it is not their user's limit that holds it back.
	s := spec(d, "a", `perl -e 'open F, ">up"; while (1) { $p = fork; if (defined $p && !$p) { exec "sleep", "0.05" } waitpid -1, 1 }'`)
	s.User, s.Nice = "nobody", 19
	s.Rlimits = []protocol.Rlimit{{Name: "nproc", Soft: 900, Hard: 900}}
	run(t, d, s)
	eventually(t, "it is up", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	eventually(t, "the limit is taken", func() bool { _, err := d.SetLimits("a", protocol.Limits{Pids: 5}); return err == nil })
	eventually(t, "the storm is held back", func() bool { st, err := d.Stats("a"); return err == nil && st.ForksRefused > 100 })
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
}
