package systemd

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

const mib = 1 << 20

// tail keeps one endless line in memory.
const glutton = "head -c 200m /dev/zero | tail >/dev/null"

// A process that wants more memory than its limit is killed, and why is told.
func TestMemoryLimitKills(t *testing.T) {
	c := daemon(t)
	start(t, c, "a", "exec sleep 6000", protocol.Limits{MemMB: 32})
	start(t, c, "b", "exec tail /dev/zero", protocol.Limits{MemMB: 32})
	if e := exit(t, c, "b"); !e.OOMKilled || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", e)
	}
	// Who is killed for another reason was not killed for lack of memory.
	if err := c.Signal(t.Context(), "a", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, c, "a"); e.OOMKilled || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", e)
	}
}

// A limit of the processor holds a process back.
func TestCPULimitThrottles(t *testing.T) {
	c := daemon(t)
	const cpus = 0.2
	st := start(t, c, "a", "while :; do :; done", protocol.Limits{CPUs: cpus})
	dir := group(t, st.Pid)
	if got := value(t, dir, "cpu.max", ""); got != "20000 100000" {
		t.Errorf("cpu.max is %q", got)
	}
	eventually(t, "it is held back", func() bool { return number(t, dir, "cpu.stat", "nr_throttled") > 5 })
	began, used := time.Now(), number(t, dir, "cpu.stat", "usage_usec")
	eventually(t, "some work", func() bool { return number(t, dir, "cpu.stat", "nr_throttled") > 25 })
	if share := float64(number(t, dir, "cpu.stat", "usage_usec")-used) / float64(time.Since(began).Microseconds()); share > 2*cpus {
		t.Errorf("it has %.2f cores, its limit is %g", share, cpus)
	}
	if stats, err := c.Stats(t.Context(), "a"); err != nil || stats.CPUSeconds <= 0 || stats.Processes != 1 || stats.MemoryBytes <= 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func number(t *testing.T, dir, file, key string) int {
	t.Helper()
	n, err := strconv.Atoi(value(t, dir, file, key))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Limits change while a process runs, and take effect.
func TestLimitsChange(t *testing.T) {
	c := daemon(t)
	st := start(t, c, "a", "while [ ! -e go ]; do sleep 0.1; done; "+glutton+"; exec sleep 6000", protocol.Limits{})
	id, dir := identity(t, st.Pid), group(t, st.Pid)
	for _, s := range []struct {
		limits              protocol.Limits
		cpu, weight, memory string
	}{
		{protocol.Limits{CPUs: 0.5, MemMB: 256}, "50000 100000", "39", strconv.Itoa(256 * mib)},
		{protocol.Limits{CPUs: 2, CPURequest: 0.5, MemMB: 64}, "200000 100000", "20", strconv.Itoa(64 * mib)},
		{protocol.Limits{}, "max 100000", "39", "max"},
		{protocol.Limits{MemMB: 32}, "max 100000", "39", strconv.Itoa(32 * mib)},
	} {
		if err := c.SetLimits(t.Context(), "a", s.limits); err != nil {
			t.Fatal(err)
		}
		if cpu, weight, memory := value(t, dir, "cpu.max", ""), value(t, dir, "cpu.weight", ""), value(t, dir, "memory.max", ""); cpu != s.cpu || weight != s.weight || memory != s.memory {
			t.Errorf("%+v: cpu.max %s, cpu.weight %s, memory.max %s", s.limits, cpu, weight, memory)
		}
	}
	// Its working directory is its sandbox.
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", st.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cwd, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a kill for lack of memory", func() bool { return number(t, dir, "memory.events", "oom_kill") > 0 })
	goesOn(t, c, &st, id)
	// More than it may be given without being killed at once.
	st = start(t, c, "b", "x=$(head -c 40000000 /dev/zero | tr '\\0' a); echo full; sleep 6000; echo $x", protocol.Limits{})
	eventually(t, "memory in use", func() bool {
		tail, err := c.Tail(t.Context(), "b", 100)
		return err == nil && strings.Contains(tail, "full")
	})
	if err := c.SetLimits(t.Context(), "b", protocol.Limits{MemMB: 8}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("less than it uses: %v", err)
	}
	goesOn(t, c, &st, identity(t, st.Pid))
}

// Who requested more of the processor gets more, when all want all of it.
func TestCPURequestsAreShares(t *testing.T) {
	c := daemon(t)
	const busy = "for i in 1 2 3 4; do (while :; do :; done) & done; wait"
	small := group(t, start(t, c, "small", busy, protocol.Limits{CPURequest: 0.5}).Pid)
	large := group(t, start(t, c, "large", busy, protocol.Limits{CPURequest: 4}).Pid)
	a, b := number(t, small, "cpu.stat", "usage_usec"), number(t, large, "cpu.stat", "usage_usec")
	const work = 4_000_000
	eventually(t, "some work", func() bool { return number(t, large, "cpu.stat", "usage_usec")-b > work })
	a, b = number(t, small, "cpu.stat", "usage_usec")-a, number(t, large, "cpu.stat", "usage_usec")-b
	// The requests are as one to eight.
	if ratio := float64(b) / float64(max(a, 1)); ratio < 2 {
		t.Errorf("one used %d us, the other %d us: %.1f times as much", a, b, ratio)
	} else {
		fmt.Printf("note: requests of 0.5 and 4 cores shared the processors as 1 to %.1f\n", ratio)
	}
}

// systemd is in charge of the hierarchy, whose groups the daemon has made beside its own. It leaves them alone,
// whatever it loads and starts, and the controllers that it does not need itself.
func TestSystemdLeavesTheGroupsAlone(t *testing.T) {
	c := daemon(t)
	st := start(t, c, "a", "sleep 6000", protocol.Limits{CPUs: 0.5, CPURequest: 0.25, MemMB: 64})
	id, dir := identity(t, st.Pid), group(t, st.Pid)
	before := map[string]string{}
	files := []string{"cpu.max", "cpu.weight", "memory.max", "cgroup.controllers", "cgroup.procs"}
	for _, f := range files {
		before[f] = value(t, dir, f, "")
	}
	for _, act := range [][]string{
		{"systemctl", "daemon-reload"},
		{"systemd-run", "--wait", "--collect", "-p", "CPUWeight=50", "-p", "MemoryMax=100M", "-p", "TasksMax=20", "true"},
		{"systemctl", "set-property", "--runtime", "system.slice", "CPUWeight=200", "MemoryHigh=2G"},
		{"systemctl", "revert", "system.slice"},
		{"systemctl", "daemon-reload"},
		{"systemctl", "daemon-reexec"},
		{"systemctl", "stop", socket, service},
		{"systemctl", "daemon-reload"},
	} {
		do(t, act...)
		if now := group(t, st.Pid); now != dir || !id.Alive() {
			t.Fatalf("after %v the process is in %s, was in %s", act, now, dir)
		}
		for _, f := range files {
			if now := value(t, dir, f, ""); now != before[f] {
				t.Errorf("after %v %s is %q, was %q", act, f, now, before[f])
			}
		}
	}
	do(t, "systemctl", "start", socket, service)
	goesOn(t, c, &st, id)
	// One more, with its limits: the controllers are passed down still, or again.
	next := start(t, c, "b", "sleep 6000", protocol.Limits{CPUs: 0.5, MemMB: 64})
	if got := value(t, group(t, next.Pid), "cpu.max", ""); got != "50000 100000" {
		t.Errorf("cpu.max is %q", got)
	}
}

// What a process forked is killed with it, by one write of the kernel's own.
func TestStopKillsAll(t *testing.T) {
	c := daemon(t)
	st := start(t, c, "a", "for i in 1 2 3 4 5; do setsid sh -c 'trap \"\" TERM; sleep 6000' & done; sleep 6000", protocol.Limits{})
	dir := group(t, st.Pid)
	eventually(t, "all are there", func() bool { return len(strings.Fields(value(t, dir, "cgroup.procs", ""))) >= 7 })
	if got := value(t, dir, "cgroup.events", "populated"); got != "1" {
		t.Errorf("populated %s", got)
	}
	if _, err := c.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	exit(t, c, "a")
	if _, err := os.Stat(dir); err == nil {
		if got := value(t, dir, "cgroup.procs", ""); got != "" {
			t.Errorf("left: %s", got)
		}
	}
}

// A fork bomb is held by its limit, the rest of the machine is not: systemd starts what it is asked to.
func TestPidsLimitHoldsAForkBomb(t *testing.T) {
	c := daemon(t)
	const most = 30
	st := start(t, c, "a", "while :; do (sleep 6000 &) 2>/dev/null; sleep 0.01; done", protocol.Limits{Pids: most})
	dir := group(t, st.Pid)
	if got := value(t, dir, "pids.max", ""); got != strconv.Itoa(most) {
		t.Errorf("pids.max is %s", got)
	}
	eventually(t, "a fork that is refused", func() bool { return number(t, dir, "pids.events", "max") > 0 })
	if n, err := strconv.Atoi(value(t, dir, "pids.current", "")); err != nil || n > most {
		t.Errorf("%d processes, %v", n, err)
	}
	do(t, "systemd-run", "--wait", "--collect", "true")
	if _, err := c.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, c, "a"); e.Signal != int(syscall.SIGKILL) && e.Code == 0 {
		t.Errorf("%+v", e)
	}
}
