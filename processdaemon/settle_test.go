package processdaemon

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// TestRunsAsSoonAsItsPidFileNamesIt: startGracePeriod is how long the pid file is
// awaited, and not how long everybody waits for a process that is there.
func TestRunsAsSoonAsItsPidFileNamesIt(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for id, script := range map[string]string{
		"at-once": "sleep 60 & echo $! > app.pid",
		"late":    "sleep 60 & p=$!; (sleep 0.3; echo $p > app.pid) & exit 0",
	} {
		s := spec(d, id, "./start.sh")
		s.PidFile, s.StartGrace = "app.pid", time.Hour
		write(t, filepath.Join(s.WorkPath, "start.sh"), "#!/bin/sh\n"+script+"\n", 0o755)
		run(t, d, s)
		if st := awaitState(t, d, id, running); strconv.Itoa(st.Pid) != strings.TrimSpace(read(t, filepath.Join(s.WorkPath, "app.pid"))) {
			t.Errorf("%s: %+v", id, st)
		}
		// Its end within the grace is noticed when it happens, and is told as that.
		if err := d.Signal(id, int(syscall.SIGTERM)); err != nil {
			t.Fatal(err)
		}
		st := awaitState(t, d, id, ended)
		if st.Exit == nil || st.Exit.Signal != int(syscall.SIGTERM) || !strings.Contains(st.Failure, "within startGracePeriod") || st.Phase != protocol.PhaseFailed {
			t.Errorf("%s: %+v %+v", id, st, st.Exit)
		}
	}
}

// launched is a start script: a launcher writes its own pid, and ends once there is a
// file named end; a successor writes its pid once there is one named go, and leaves
// with 6 on SIGUSR1. The third keeps the task from being empty.
const launched = `#!/bin/sh
sh -c 'echo $$ > app.pid; until [ -e end ]; do sleep 0.01; done; exit 4' &
until [ -s app.pid ]; do sleep 0.01; done
sh -c 'until [ -e go ]; do sleep 0.01; done; trap "exit 6" USR1; echo $$ > x; mv x app.pid; while :; do sleep 0.02; done' &
sleep 60 &
exit 0
`

func launchedSpec(t testing.TB, work string, s *protocol.Spec, grace time.Duration) {
	t.Helper()
	s.StartCmd, s.WorkPath, s.PidFile, s.StartGrace = "./start.sh", work, "app.pid", grace
	write(t, filepath.Join(work, "start.sh"), launched, 0o755)
}

// TestFaultSuccessorOfARunningLauncher: while the grace lasts, a pid file that is
// replaced is followed, over the end of the launcher and of the daemon, and the
// exit code is the successor's.
func TestFaultSuccessorOfARunningLauncher(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"never", "before the end", "after the end", "after the change"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			p := newProc(t)
			p.start("")
			s := p.spec("a", "")
			launchedSpec(t, s.WorkPath, s, time.Hour)
			p.createAndStart(s)
			launcher := p.await("a", running).Pid
			kill := func(now string) {
				if now == when {
					p.stop(syscall.SIGKILL)
					p.start("")
				}
			}
			kill("before the end")
			write(t, filepath.Join(s.WorkPath, "end"), "", 0o644)
			eventually(t, "the launcher ends", func() bool { return syscall.Kill(launcher, 0) != nil })
			kill("after the end")
			if st := p.await("a", running); st.Exit != nil {
				t.Errorf("%+v", st)
			}
			write(t, filepath.Join(s.WorkPath, "go"), "", 0o644)
			eventually(t, "the successor", func() bool { st, err := p.c.Status(t.Context(), "a"); return err == nil && st.Pid != launcher })
			kill("after the change")
			st := p.await("a", running)
			if want := strings.TrimSpace(read(t, filepath.Join(s.WorkPath, "app.pid"))); strconv.Itoa(st.Pid) != want {
				t.Errorf("pid %d, want %s", st.Pid, want)
			}
			if err := p.c.Signal(t.Context(), "a", syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			// What else runs keeps the end open until the grace is over: the stop ends it.
			eventually(t, "it ends", func() bool { return syscall.Kill(st.Pid, 0) != nil })
			if _, err := p.c.Stop(t.Context(), "a", time.Minute); err != nil {
				t.Fatal(err)
			}
			if st := p.await("a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 6}) {
				t.Errorf("%+v %+v", st, st.Exit)
			}
		})
	}
}

// TestFaultLauncherWithoutSuccessor: when the grace is over and nothing has taken the
// place of a launcher that has ended, the task has, with its exit code; a launcher that
// goes on is the task for good, whatever the file says then.
func TestFaultLauncherWithoutSuccessor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "ends", "")
	launchedSpec(t, s.WorkPath, &s, 4*time.Second)
	run(t, d, s)
	goesOn := spec(d, "goes-on", "")
	launchedSpec(t, goesOn.WorkPath, &goesOn, 500*time.Millisecond)
	run(t, d, goesOn)
	awaitState(t, d, "ends", running)
	pid := awaitState(t, d, "goes-on", running).Pid
	write(t, filepath.Join(s.WorkPath, "end"), "", 0o644)
	st := awaitState(t, d, "ends", ended)
	if st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 4}) || !strings.Contains(st.Failure, "within startGracePeriod") {
		t.Errorf("%+v %+v", st, st.Exit)
	}
	// The record says when the grace is over.
	eventually(t, "the grace is over", func() bool {
		r, err := readRecord(d.store.path("goes-on"))
		return err == nil && bootNow() > r.AliveBy+int64(time.Second)
	})
	write(t, filepath.Join(goesOn.WorkPath, "go"), "", 0o644)
	eventually(t, "the file names another", func() bool {
		return strings.TrimSpace(read(t, filepath.Join(goesOn.WorkPath, "app.pid"))) != strconv.Itoa(pid)
	})
	write(t, filepath.Join(goesOn.WorkPath, "end"), "", 0o644)
	if st := awaitState(t, d, "goes-on", ended); st.Pid != pid || st.Exit == nil || st.Exit.Code != 4 {
		t.Errorf("%+v %+v", st, st.Exit)
	}
}

// TestPidFileThatNamesEverOtherProcesses: the keeper does not remember all of them.
func TestPidFileThatNamesEverOtherProcesses(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.successors = 3
	s := spec(d, "a", "./start.sh")
	s.PidFile, s.StartGrace = "app.pid", time.Hour
	write(t, filepath.Join(s.WorkPath, "start.sh"), `#!/bin/sh
sleep 60 & echo $! > app.pid
(n=0; while :; do sleep 60 & echo $! > x; mv x app.pid; n=$((n+1)); echo $n > named; sleep 0.3; done) &
exit 0
`, 0o755)
	run(t, d, s)
	awaitState(t, d, "a", running)
	eventually(t, "it has named some", func() bool {
		n, _ := strconv.Atoi(strings.TrimSpace(readIf(filepath.Join(s.WorkPath, "named"))))
		return n >= 8
	})
	entries, err := os.ReadDir(filepath.Join(d.store.dir, "keeper/processes"))
	// The start command is one, too.
	if err != nil || len(entries) > 1+3 {
		t.Errorf("%d processes are remembered: %v", len(entries), err)
	}
	if st, err := d.Status("a"); err != nil || st.State != running || st.Pid == 0 {
		t.Errorf("%+v %v", st, err)
	}
}

func readIf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
