package processdaemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// pidsMax is the file with the limit of the group that a process is in.
func pidsMax(t *testing.T, pid string) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/"+pid+"/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, mount := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
			if path := filepath.Join(mount, f[2], "pids.max"); len(f) == 3 && (f[1] == "pids" || f[0] == "0") && exists(path) {
				return path
			}
		}
	}
	t.Fatalf("no limit of processes for %s", pid)
	return ""
}

// full is a task that stands at its limit of processes.
func full(d *Daemon, id string) protocol.Spec {
	s := spec(d, id, `echo $$ >pid; for i in 1 2 3 4 5; do sleep 600 & done; wait`)
	s.Limits = protocol.Limits{Pids: 6, MemMB: 256}
	return s
}

func awaitFull(t *testing.T, d *Daemon, s *protocol.Spec) (limit string) {
	t.Helper()
	eventually(t, "it stands at its limit", func() bool {
		st, err := d.Stats(s.ID)
		return err == nil && int64(st.Processes) == s.Limits.Pids
	})
	return pidsMax(t, strings.TrimSpace(read(t, filepath.Join(s.WorkPath, "pid"))))
}

// forking is a command that forks more than once.
const forking = `(sleep 0.01 | sleep 0.01 | touch `

// TestPidsLimitLeavesRoomForCommands: a stop, a kill and a reload command start and fork in a
// task that stands at its limit of processes; after a reload that is what it was.
func TestPidsLimitLeavesRoomForCommands(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	hasPids(t, d)
	stop, kill := full(d, "stop"), full(d, "kill")
	stop.StopCmd = forking + "stopped); kill $MAINPID"
	kill.KillCmd = forking + "killed); kill $MAINPID"
	run(t, d, kill)
	awaitFull(t, d, &kill)
	// The reload command is told by a link where the limit is.
	stop.ReloadCmd = forking + "reloaded); cat limit >during"
	run(t, d, stop)
	limit := awaitFull(t, d, &stop)
	if err := os.Symlink(limit, filepath.Join(stop.WorkPath, "limit")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reload("stop"); err != nil {
		t.Fatal(err)
	}
	st := await(t, d, "stop", func(st protocol.Status) bool { return st.Reload != nil && !st.Reload.Running })
	if st.Reload.Failure != "" || !exists(filepath.Join(stop.WorkPath, "reloaded")) {
		t.Errorf("%+v", st.Reload)
	}
	if got := read(t, filepath.Join(stop.WorkPath, "during")); got != "70\n" {
		t.Errorf("the limit during the reload: %q", got)
	}
	if got := read(t, limit); got != "6\n" || st.Limits.Pids != 6 {
		t.Errorf("the limit after the reload: %q, %+v", got, st.Limits)
	}
	for _, s := range []protocol.Spec{stop, kill} {
		if _, err := d.Stop(s.ID, patience); err != nil {
			t.Fatal(err)
		}
	}
	awaitState(t, d, "stop", ended)
	awaitState(t, d, "kill", ended)
	for _, name := range []string{filepath.Join(stop.WorkPath, "stopped"), filepath.Join(kill.WorkPath, "killed")} {
		if !exists(name) {
			t.Errorf("the command has not done its work: no %s", name)
		}
	}
}

// TestFaultKilledBeforeTheRoomIsTaken: the next daemon gives the task its own limit again.
func TestFaultKilledBeforeTheRoomIsTaken(t *testing.T) {
	t.Parallel()
	opts := Options{DataDir: filepath.Join(testkit.PublicDir(t), "data"), Log: logTo(t)}
	cgrouptest.Expect(Trees(opts.DataDir))
	first, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := full(first, "a")
	s.ReloadCmd = "true"
	limit := func() string {
		defer first.Close()
		hasPids(t, first)
		run(t, first, s)
		limit := awaitFull(t, first, &s)
		if _, err := first.Reload("a"); err != nil {
			t.Fatal(err)
		}
		await(t, first, "a", func(st protocol.Status) bool { return st.Reload != nil && !st.Reload.Running })
		return limit
	}()
	write(t, limit, "70", 0o644)
	d := newDaemon(t, func(o *Options) { o.DataDir = opts.DataDir })
	eventually(t, "the limit", func() bool { return read(t, limit) == "6\n" })
	if _, err := d.Stop("a", time.Second); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
}
