package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// daemonScript puts a worker into the background by a double fork and writes its pid.
const daemonScript = `#!/bin/sh
# The inner shell is orphaned and in a session of its own, as daemons are.
(setsid sh -c 'echo $$ > app.pid.tmp; mv app.pid.tmp app.pid; %s' >/dev/null 2>&1 &)
while [ ! -e app.pid ]; do sleep 0.01; done
exit 0
`

func pidFileSpec(t testing.TB, d *Daemon, id, worker string) protocol.Spec {
	t.Helper()
	s := spec(d, id, "./start.sh")
	s.PidFile = "app.pid"
	write(t, filepath.Join(s.WorkPath, "start.sh"), fmt.Sprintf(daemonScript, worker), 0o755)
	return s
}

func TestPidFileDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := pidFileSpec(t, d, "a", "exec sleep 60")
	run(t, d, s)
	st := awaitState(t, d, "a", running)
	if got := strings.TrimSpace(read(t, filepath.Join(s.WorkPath, "app.pid"))); got != strconv.Itoa(st.Pid) {
		t.Errorf("pid %d, file %s", st.Pid, got)
	}
	// Its end is noticed through the pidfd, and the file is not looked at again.
	if err := os.Remove(filepath.Join(s.WorkPath, "app.pid")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended) // TestExitIsNoticedAtOnce measures it
}

func TestPidFileStopCommand(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := pidFileSpec(t, d, "a", `trap "echo bye > bye; exit 0" USR1; : > trapped; while :; do sleep 0.02; done`)
	s.StopCmd = "kill -USR1 $(cat app.pid)"
	run(t, d, s)
	awaitState(t, d, "a", running)
	eventually(t, "its trap", func() bool { return exists(filepath.Join(s.WorkPath, "trapped")) })
	if _, err := d.Stop("a", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "a", ended)
	if read(t, filepath.Join(s.WorkPath, "bye")) != "bye\n" || st.Exit == nil || st.Exit.Signal != 0 {
		t.Errorf("not stopped by its command: %+v", st.Exit)
	}
}

func TestStopCommandThatFailsOrHangs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, c := range map[string]struct {
		stop  string
		grace time.Duration
	}{
		// SIGTERM comes long before its time.
		"fails":   {"exit 1", 10 * time.Minute},
		"missing": {"./no-such-stop.sh", 10 * time.Minute},
		"hangs":   {"sleep 60", 4 * time.Second},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s := spec(d, id, "sleep 60")
			s.StopCmd = c.stop
			run(t, d, s)
			awaitState(t, d, id, running)
			if _, err := d.Stop(id, c.grace); err != nil {
				t.Fatal(err)
			}
			if st := awaitState(t, d, id, ended); st.Exit == nil || st.Exit.Signal != int(syscall.SIGTERM) {
				t.Errorf("%+v", st.Exit)
			}
		})
	}
}

func TestPidFileFailures(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, c := range map[string]struct{ script, want string }{
		"no-file":    {"#!/bin/sh\nexit 0\n", "there is no such file"},
		"not-number": {"#!/bin/sh\necho abc > app.pid\n", `it holds "abc", which is no pid`},
		"dead":       {"#!/bin/sh\nsh -c 'echo $$ > app.pid; exit 4'\nexit 0\n", "is not alive"},
		"stranger":   {fmt.Sprintf("#!/bin/sh\necho %d > app.pid\n", os.Getpid()), "was not started by this task"},
		"fails":      {"#!/bin/sh\necho first reason >&2\nexit 3\n", "exit code 3; its last words: first reason"},
		"early-end":  {fmt.Sprintf(daemonScript, "until [ -e go ]; do sleep 0.01; done"), "ended within startGracePeriod"},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			s := spec(d, id, "./start.sh")
			s.PidFile, s.StartGrace = "app.pid", time.Hour
			if id == "no-file" || id == "not-number" || id == "stranger" || id == "dead" {
				s.StartGrace = 0
			}
			write(t, filepath.Join(s.WorkPath, "start.sh"), c.script, 0o755)
			run(t, d, s)
			if id == "early-end" {
				awaitTakenUp(t, d, s)
				write(t, filepath.Join(s.WorkPath, "go"), "", 0o644)
			}
			st := awaitState(t, d, id, ended)
			if !strings.Contains(st.Failure, c.want) || !strings.HasPrefix(st.Failure, `process "name-`) {
				t.Errorf("%q, want %q", st.Failure, c.want)
			}
		})
	}
}

// awaitTakenUp waits until the daemon has recorded the process that the pid file names, as it does in the grace period.
func awaitTakenUp(t testing.TB, d *Daemon, s protocol.Spec) {
	t.Helper()
	eventually(t, "the daemon knows the process of the pid file", func() bool {
		pid, _ := os.ReadFile(filepath.Join(s.WorkPath, s.PidFile)) // it comes when it is written
		record := read(t, filepath.Join(d.opts.DataDir, "processd/tasks", shortHash(s.ID)+".json"))
		return len(pid) > 0 && strings.Contains(record, `"pid":`+strings.TrimSpace(string(pid))+",")
	})
}

func TestStalePidFileIsNotBelieved(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := pidFileSpec(t, d, "a", "exec sleep 60")
	write(t, filepath.Join(s.WorkPath, "app.pid"), "1\n", 0o644)
	run(t, d, s)
	st := awaitState(t, d, "a", running)
	if st.Pid == 1 {
		t.Error("pid 1 was taken up")
	}
}

func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "sleep 60")
	s.PidFile = "app.pid"
	run(t, d, s)
	awaitState(t, d, "a", starting)
	if _, err := d.Stop("a", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	st := awaitState(t, d, "a", ended)
	if !strings.Contains(st.Failure, "stopped before its start was complete") {
		t.Errorf("%q", st.Failure)
	}
}

// TestStartTimeout: a start command that hangs is ended with all that it forked, in the
// task's own time or else the daemon's, and its last words are told.
func TestStartTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // in which it says its last words, on a machine that is busy, too
	for name, c := range map[string]struct{ daemons, own time.Duration }{
		"daemon": {limit, 0}, "longer": {time.Millisecond, limit}, "shorter": {time.Hour, limit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, func(o *Options) { o.StartTimeout = c.daemons })
			s := spec(d, "a", "echo waiting for the disk; setsid sleep 60 & sleep 60")
			s.PidFile, s.StartTimeout, s.StartGrace = "app.pid", c.own, time.Hour
			began := time.Now()
			run(t, d, s)
			st := awaitState(t, d, "a", ended)
			if took := time.Since(began); took < limit {
				t.Errorf("it was ended after %v", took)
			}
			for _, want := range []string{`startCmd "echo waiting`, "did not end within 2s (startTimeout)", "its last words: waiting for the disk"} {
				if !strings.Contains(st.Failure, want) {
					t.Errorf("%q, want %q", st.Failure, want)
				}
			}
			if left := processesIn(s.WorkPath); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if st.Phase != protocol.PhaseFailed {
				t.Errorf("phase %s", st.Phase)
			}
		})
	}
}

// TestStartTimeoutIsNotForTheForeground: a process that is its own start command has
// started as soon as it exists.
func TestStartTimeoutIsNotForTheForeground(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.StartTimeout = time.Minute })
	s := spec(d, "a", "sleep 0.3")
	s.StartTimeout = time.Nanosecond
	run(t, d, s)
	if st := awaitState(t, d, "a", ended); st.Phase != protocol.PhaseStopped {
		t.Errorf("%+v", st)
	}
}
