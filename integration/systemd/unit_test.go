package systemd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// The first request starts the daemon, and is answered. Nobody but the socket's owner and group may ask.
func TestSocketActivation(t *testing.T) {
	c := daemon(t)
	do(t, "systemctl", "stop", service)
	if pid := mainPid(t); pid != 0 {
		t.Fatalf("stopped, and its process is %d", pid)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if pid := mainPid(t); pid != info.Pid {
		t.Errorf("process %d answers, systemd started %d", info.Pid, pid)
	}
	if !strings.HasPrefix(info.Tracking, "cgroups v2 at /sys/fs/cgroup/tandem/") || !strings.HasSuffix(info.Tracking, "limits for cpu, memory, pids") {
		t.Errorf("tracking: %s", info.Tracking)
	}
	if len(info.Troubles) > 0 {
		t.Errorf("troubles: %q", info.Troubles)
	}
	eventually(t, "readiness", func() bool { return property(t, "ActiveState") == "active" })
	st, err := os.Stat(client.DefaultSocket)
	if err != nil || st.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
}

// The service works by itself, too; when systemctl says that it runs, it answers.
func TestReadinessWithoutTheSocketUnit(t *testing.T) {
	c := daemon(t)
	do(t, "systemctl", "stop", socket, service)
	if _, err := os.Stat(client.DefaultSocket); err == nil {
		t.Error("the socket is there, and nobody serves it")
	}
	t.Cleanup(func() { do(t, "systemctl", "stop", service) }) // it would be in the way of the socket unit
	for range 3 {
		do(t, "systemctl", "restart", service)
		if info, err := c.Info(t.Context()); err != nil || info.Pid != mainPid(t) {
			t.Errorf("ready, and does not answer: %+v, %v", info, err)
		}
	}
}

// A reload is an upgrade in place: another program, the same process, and what it started goes on.
func TestReloadIsAnUpgrade(t *testing.T) {
	c := daemon(t)
	task := start(t, c, "a", "sleep 6000", protocol.Limits{})
	id, pid := identity(t, task.Pid), mainPid(t)
	do(t, "cp", program, program+".new")
	do(t, "mv", program+".new", program)
	want, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	do(t, "systemctl", "reload", service)
	eventually(t, "the new program", func() bool {
		now, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		return err == nil && os.SameFile(now, want)
	})
	eventually(t, "readiness", func() bool { return property(t, "ActiveState") == "active" })
	if now := mainPid(t); now != pid {
		t.Errorf("process %d was replaced by %d", pid, now)
	}
	goesOn(t, c, &task, id)
	if err := c.Signal(t.Context(), "a", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, c, "a"); !e.Known || e.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v", e)
	}
}

// Whatever ends the daemon, systemd brings it back, and it has all processes, and how those ended that ended meanwhile.
func TestProcessesOutliveTheDaemon(t *testing.T) {
	for name, end := range map[string]func(*testing.T){
		"restart": func(t *testing.T) { do(t, "systemctl", "restart", service) },
		// All that is in the unit's group, which has nothing but the daemon.
		"kill -9": func(t *testing.T) { do(t, "systemctl", "kill", "-s", "KILL", service) },
		"stop": func(t *testing.T) {
			do(t, "systemctl", "stop", socket, service)
			if pid := mainPid(t); pid != 0 {
				t.Errorf("stopped, and its process is %d", pid)
			}
		},
		"daemon-reexec and restart": func(t *testing.T) {
			do(t, "systemctl", "daemon-reexec")
			do(t, "systemctl", "restart", service)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := daemon(t)
			task := start(t, c, "a", "sleep 6000", protocol.Limits{MemMB: 64})
			id, pid := identity(t, task.Pid), mainPid(t)
			flag := filepath.Join(t.TempDir(), "end")
			other := start(t, c, "b", "while [ ! -e "+flag+" ]; do sleep 0.1; done; exit 7", protocol.Limits{})
			otherID := identity(t, other.Pid)
			if in := value(t, filepath.Join("/sys/fs/cgroup", property(t, "ControlGroup")), "cgroup.procs", ""); in != strconv.Itoa(pid) {
				t.Errorf("the unit's group has %q, the daemon is %d", in, pid)
			}
			end(t)
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of a process without its daemon", func() bool { return !otherID.Alive() })
			if !id.Alive() {
				t.Error("a process ended with the daemon")
			}
			do(t, "systemctl", "start", socket, service)
			eventually(t, "the daemon", func() bool { now := mainPid(t); return now != 0 && now != pid })
			goesOn(t, c, &task, id)
			if e := exit(t, c, "b"); !e.Known || e.Code != 7 {
				t.Errorf("%+v", e)
			}
			if got := value(t, group(t, task.Pid), "memory.max", ""); got != strconv.Itoa(64<<20) {
				t.Errorf("its memory limit is %s now", got)
			}
			// The daemon is spared when memory is short, not what it starts.
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", task.Pid)); err != nil || string(b) != "0\n" {
				t.Errorf("oom_score_adj %q, %v", b, err)
			}
		})
	}
}

// A daemon that dies again and again is brought back each time: nobody looks after the processes otherwise.
func TestRestartsDoNotRunOut(t *testing.T) {
	c := daemon(t)
	task := start(t, c, "a", "sleep 6000", protocol.Limits{})
	id := identity(t, task.Pid)
	const times = 8 // systemd's own limit is five in ten seconds
	for range times {
		pid := mainPid(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next daemon", func() bool { now := mainPid(t); return now != 0 && now != pid })
	}
	eventually(t, "readiness", func() bool { return property(t, "ActiveState") == "active" })
	goesOn(t, c, &task, id)
}

// A daemon that hangs is killed by the watchdog, one that is well is not; processes go on.
func TestWatchdog(t *testing.T) {
	c := daemon(t)
	drop := "/run/systemd/system/" + service + ".d"
	if err := os.MkdirAll(drop, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(drop)
		do(t, "systemctl", "daemon-reload")
		do(t, "systemctl", "restart", service)
	})
	if got := property(t, "WatchdogUSec"); got != "1min" {
		t.Errorf("the watchdog is %s", got)
	}
	// A shorter one, as the test is.
	const interval = 8 * time.Second
	if err := os.WriteFile(filepath.Join(drop, "watchdog.conf"), fmt.Appendf(nil, "[Service]\nWatchdogSec=%d\n", interval/time.Second), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "systemctl", "daemon-reload")
	do(t, "systemctl", "restart", service)
	task := start(t, c, "a", "sleep 6000", protocol.Limits{})
	id, pid := identity(t, task.Pid), mainPid(t)
	for began := time.Now(); time.Since(began) < interval+interval/2; time.Sleep(interval / 8) {
		if now := mainPid(t); now != pid {
			t.Fatalf("daemon %d, which is well, was replaced by %d", pid, now)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another daemon", func() bool { now := mainPid(t); return now != 0 && now != pid })
	eventually(t, "readiness", func() bool { return property(t, "ActiveState") == "active" })
	goesOn(t, c, &task, id)
}

// Lines of the log have their priority in the journal, and not in their text.
func TestJournalPriorities(t *testing.T) {
	c := daemon(t)
	start(t, c, "a", "sleep 6000", protocol.Limits{})
	if err := os.WriteFile("/etc/tandem/broken", []byte("no-such-key: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "mv", "/etc/tandem/processd.yaml", "/etc/tandem/kept")
	do(t, "mv", "/etc/tandem/broken", "/etc/tandem/processd.yaml")
	t.Cleanup(func() { do(t, "mv", "/etc/tandem/kept", "/etc/tandem/processd.yaml") })
	pid := mainPid(t)
	// It is refused, which is an error, and the daemon goes on.
	do(t, "systemctl", "kill", "-s", "USR2", "--kill-who=main", service)
	priorities := map[string]string{}
	eventually(t, "lines", func() bool {
		for s := bufio.NewScanner(strings.NewReader(do(t, "journalctl", "-o", "json", "_PID="+strconv.Itoa(pid)))); s.Scan(); {
			var line struct{ Priority, Message string }
			if err := json.Unmarshal(s.Bytes(), &line); err != nil {
				t.Fatalf("%v: %s", err, s.Text())
			}
			priorities[line.Message] = line.Priority
		}
		return priorities[find(priorities, "no-such-key")] != ""
	})
	for what, want := range map[string]string{"process daemon is up": "6", "task changes": "6", "no-such-key": "3"} {
		if line := find(priorities, what); priorities[line] != want {
			t.Errorf("%q has priority %q, want %s", line, priorities[line], want)
		}
	}
	for line := range priorities {
		if strings.HasPrefix(line, "<") || strings.Contains(line, "time=") || strings.Contains(line, "level=") {
			t.Errorf("line %q", line)
		}
	}
	if now := mainPid(t); now != pid {
		t.Errorf("daemon %d was replaced by %d", pid, now)
	}
}

func find(lines map[string]string, part string) string {
	for line := range lines {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}
