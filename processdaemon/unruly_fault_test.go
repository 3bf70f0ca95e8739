package processdaemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid/pidwrap"
	"tandem/processdaemon/protocol"
)

// unruly is a command that does what no command should, and how its task ends.
type unruly struct {
	id, cmd string
	pidFile bool
	// hangs tells that it is a start command that does not end.
	hangs bool
	// stop is after which file of the workPath's is there the task is stopped; "" waits for its own end.
	stop  string
	grace time.Duration
	exit  *protocol.Exit // nil: there never was a main process
	// failure is in what is told.
	failure string
	// escapes tells that it leaves its session, and so what is tracked without control groups.
	escapes bool
}

func (c *unruly) bomb() bool { return strings.Contains(c.cmd, bomb) }

// inBackground is a start command that leaves a worker with a pid file.
func inBackground(worker string) string {
	return `(setsid sh -c 'echo $$ > pid.tmp; mv pid.tmp app.pid; ` + worker + `' >/dev/null 2>&1 &); until [ -e app.pid ]; do sleep 0.01; done`
}

const (
	deaf = `trap "" TERM INT HUP; : > up; while :; do sleep 0.05; done`
	// bomb forks as fast as it can; what is killed is replaced by those that are left. It is
	// deaf, and gives way to everything else on the machine.
	bomb = `trap "" TERM; b() { while :; do b & done; }; : > up; b 2>/dev/null`
)

func unrulyCommands() []unruly {
	code := func(n int) *protocol.Exit { return &protocol.Exit{Known: true, Code: n} }
	killed, termed := &protocol.Exit{Known: true, Signal: 9}, &protocol.Exit{Known: true, Signal: 15}
	return []unruly{
		{id: "hangs", cmd: "exec sleep 1000", pidFile: true, hangs: true, failure: "did not end within"},
		{id: "hangs-deaf", cmd: deaf, pidFile: true, hangs: true, failure: "did not end within"},
		{id: "stopped-in-its-start", cmd: ": > up; exec sleep 1000", pidFile: true, stop: "up", grace: time.Hour, failure: "stopped before its start was complete"},
		{id: "grandchild", cmd: "sleep 1000 & exit 0", exit: code(0)},
		{id: "grandchild-of-failure", cmd: "sleep 1000 & exit 3", pidFile: true, failure: "exit code 3"},
		{id: "new-session", cmd: "exec setsid -w sleep 1000", stop: ".", grace: time.Hour, exit: termed, escapes: true},
		{id: "double-fork", cmd: `(setsid sh -c 'sleep 1000 & sleep 1000' &) ; exit 0`, exit: code(0), escapes: true},
		{id: "double-fork-pid-file", cmd: inBackground("setsid sleep 1000 & exec sleep 1000"), pidFile: true, stop: "app.pid", grace: time.Hour, exit: termed, escapes: true},
		{id: "no-pid-file-written", cmd: `(setsid sleep 1000 &) ; exit 0`, pidFile: true, failure: "there is no such file", escapes: true},
		{id: "deaf", cmd: deaf, stop: "up", grace: 200 * time.Millisecond, exit: killed},
		{id: "deaf-pid-file", cmd: inBackground(deaf), pidFile: true, stop: "up", grace: 200 * time.Millisecond, exit: killed, escapes: true},
		{id: "deaf-children", cmd: `(` + deaf + `) & until [ -e up ]; do sleep 0.01; done; : > both; exec sleep 1000`, stop: "both", grace: 200 * time.Millisecond, exit: termed},
		{id: "stops-itself", cmd: `: > up; kill -STOP $$; exit 7`, stop: "up", grace: time.Hour, exit: termed},
		{id: "bomb", cmd: bomb, stop: "up", grace: 300 * time.Millisecond, exit: killed},
		{id: "bomb-start-command", cmd: bomb, pidFile: true, hangs: true, failure: "startCmd"},
		{id: "bomb-pid-file", cmd: inBackground(bomb), pidFile: true, stop: "up", grace: 0, exit: killed, escapes: true},
	}
}

// TestFaultUnrulyCommands: whatever a command does, its task ends in the right state, and
// nothing of it is left: no process, no zombie, no control group, no record. With the
// control groups of this machine, with those of v1 alone, and without any.
func TestFaultUnrulyCommands(t *testing.T) { //nolint:tparallel // each of its parts takes away more of the namespace they share
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	limitPids(t)
	for _, hangs := range []bool{false, true} {
		t.Run("groups", func(t *testing.T) { unrulyTasks(t, true, hangs) })
	}
	unmountGroups(t, false)
	for _, hangs := range []bool{false, true} {
		t.Run("groups-v1", func(t *testing.T) { unrulyTasks(t, true, hangs) })
	}
	unmountGroups(t, true)
	for _, hangs := range []bool{false, true} {
		t.Run("sessions", func(t *testing.T) { unrulyTasks(t, false, hangs) })
	}
}

// limitPids bounds what a bomb can do to the machine: Linux 6.14 and later have a limit
// for each pid namespace.
func limitPids(t *testing.T) {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil || major < 6 || major == 6 && minor < 14 {
		t.Skipf("a fork bomb cannot be kept from the rest of this machine: Linux %d.%d", major, minor)
	}
	if err := os.WriteFile("/proc/sys/kernel/pid_max", []byte("350"), 0); err != nil {
		t.Fatal(err)
	}
}

// unrulyTasks tries those that hang under a daemon without patience, and the others under one
// that has it, for the machine may be slow.
func unrulyTasks(t *testing.T, groups, hangs bool) {
	p := newProc(t)
	if hangs {
		p.env = []string{startTimeoutEnv + "=500ms"}
	}
	p.start("")
	info, err := p.c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(info.Tracking)
	before := everything(t, p.dir)
	var calm, bombs []unruly
	for _, c := range unrulyCommands() {
		switch {
		case c.escapes && !groups, c.hangs != hangs:
		case c.bomb():
			bombs = append(bombs, c)
		default:
			calm = append(calm, c)
		}
	}
	unrulyEnds(t, p, calm)
	for _, c := range bombs {
		// One by one, for they take the pids of others.
		unrulyEnds(t, p, []unruly{c})
	}
	eventually(t, "the keeper has forgotten all", func() bool {
		e, err := os.ReadDir(filepath.Join(p.dir, "data/processd/keeper/processes"))
		return err == nil && len(e) == 0
	})
	eventually(t, "no zombies", func() bool { return len(zombies(t)) == 0 })
	if after := everything(t, p.dir); !slices.Equal(before, after) {
		t.Errorf("files before: %v\nafter: %v", before, after)
	}
}

// unrulyEnds runs commands to their ends, side by side.
func unrulyEnds(t *testing.T, p *proc, cases []unruly) {
	t.Helper()
	for _, c := range cases {
		s := p.spec(c.id, c.cmd)
		if c.pidFile {
			s.PidFile = "app.pid"
		}
		if c.bomb() {
			s.Nice = 19
		}
		p.createAndStart(s)
	}
	for _, c := range cases {
		if c.stop == "" {
			continue
		}
		if c.exit != nil && !c.bomb() {
			p.await(c.id, running)
		}
		eventually(t, c.id+": it is up", func() bool { return exists(filepath.Join(p.spec(c.id, "").WorkPath, c.stop)) })
		p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, c.id, c.grace); return err })
	}
	for _, c := range cases {
		began := time.Now()
		s, st := p.spec(c.id, ""), p.await(c.id, ended)
		switch {
		case c.bomb():
			// It may have no process left to fork, end by itself, or be killed before it runs.
			if st.Exit != nil && !st.Exit.Known {
				t.Errorf("%s: %+v", c.id, st.Exit)
			}
		case (c.exit == nil) != (st.Exit == nil), c.exit != nil && *c.exit != *st.Exit:
			t.Errorf("%s: exit %+v, want %+v", c.id, st.Exit, c.exit)
		case !strings.Contains(st.Failure, c.failure), c.failure == "" && st.Failure != "":
			t.Errorf("%s: %q, want %q", c.id, st.Failure, c.failure)
		}
		if left := processesIn(s.WorkPath); len(left) > 0 {
			t.Errorf("%s: processes left: %v", c.id, left)
		}
		p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, c.id) })
		if dirs := p.groupsOf(c.id); len(dirs) > 0 {
			t.Errorf("%s: control groups left: %v", c.id, dirs)
		}
		for _, dir := range []string{s.WorkPath, s.Sandbox} {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
		if c.bomb() {
			t.Logf("%s: ended after %v", c.id, time.Since(began).Round(time.Millisecond))
		}
	}
}

// zombies are all that have ended in this pid namespace and were not collected.
func zombies(t *testing.T) (out []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stats {
		if b, err := os.ReadFile(s); err == nil && strings.Contains(string(b), ") Z ") {
			out = append(out, string(b))
		}
	}
	return out
}

// groupsOf finds the control groups of a task in every hierarchy. Tasks of other daemons may have its id.
func (p *proc) groupsOf(id string) []string {
	tasks, _ := Trees(filepath.Join(p.dir, "data"))
	var out []string
	for _, mounts := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, _ := filepath.Glob(filepath.Join(mounts, tasks, shortHash(id))) // the pattern is good
		out = append(out, dirs...)
	}
	return out
}

// everything is all files below a directory but those that a log is in, sorted.
func everything(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) != "sandbox" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}
