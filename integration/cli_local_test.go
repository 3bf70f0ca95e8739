package integration

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// localPorts are flags with ports that nobody listens on, as far as can be known.
func localPorts(t *testing.T) []string {
	t.Helper()
	var ports []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return []string{"--listen=127.0.0.1:" + ports[0], "--master-port=" + ports[1], "--agent-port=" + ports[2]}
}

// localStack is a running "tandem local".
type localStack struct {
	t      *testing.T
	dir    string
	flags  []string
	server string
	cmd    *exec.Cmd
	out    *lockedBuffer
	done   chan struct{}
}

// startLocal starts a stack in a directory of its own and waits until it says
// "ready". It is stopped at the end of the test, and nothing may be left then.
func startLocal(t *testing.T, flags ...string) *localStack {
	t.Helper()
	s := &localStack{t: t, dir: filepath.Join(testkit.ShortDir(t), "d")}
	nothingLeft(t, s.dir)
	expectGroups(filepath.Join(s.dir, "tasks"))
	ports := localPorts(t)
	s.server = "http://" + strings.TrimPrefix(ports[0], "--listen=")
	s.flags = slices.Concat(ports, flags)
	s.start()
	t.Cleanup(func() {
		if s.running() {
			s.stop()
		}
		if t.Failed() {
			t.Logf("tandem local:\n%s", s.out.String())
			for _, log := range []string{"tandem.log", "tandem-processd.log"} {
				text, _ := os.ReadFile(filepath.Join(s.dir, "log", log))
				t.Logf("%s:\n%s", log, lastBytes(string(text), 8000))
			}
		}
	})
	return s
}

func lastBytes(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

func (s *localStack) start(more ...string) {
	s.t.Helper()
	args := append(append([]string{"local", "--data-dir", s.dir}, s.flags...), more...)
	s.cmd = exec.Command(filepath.Join(harness.bin, "tandem"), args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.out = &lockedBuffer{}
	s.cmd.Stderr = s.out
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan struct{})
	s.done = make(chan struct{})
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			s.out.Write([]byte(lines.Text() + "\n"))
			if lines.Text() == "ready" {
				close(ready)
			}
		}
		s.cmd.Wait()
		close(s.done)
	}()
	select {
	case <-ready:
	case <-s.done:
		s.t.Fatalf("tandem local ended:\n%s", s.out.String())
	case <-time.After(30 * time.Second * patience):
		s.cmd.Process.Kill()
		<-s.done
		s.t.Fatalf("tandem local was not ready in time:\n%s", s.out.String())
	}
}

func (s *localStack) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// end sends a signal and waits; a stop that takes too long fails the test.
func (s *localStack) end(sig syscall.Signal) int {
	s.t.Helper()
	s.cmd.Process.Signal(sig)
	select {
	case <-s.done:
	case <-time.After(30 * time.Second * patience):
		s.t.Errorf("tandem local did not end in time after %s:\n%s", sig, s.out.String())
		s.cmd.Process.Kill()
		<-s.done
	}
	return s.cmd.ProcessState.ExitCode()
}

// stop ends the stack as Ctrl-C does.
func (s *localStack) stop() {
	s.t.Helper()
	if code := s.end(syscall.SIGINT); code != 0 {
		s.t.Errorf("tandem local ended with code %d:\n%s", code, s.out.String())
	}
}

func (s *localStack) tandem(args ...string) outcome {
	s.t.Helper()
	return tandem(s.t, []string{"TANDEM_SERVER=" + s.server, "NO_COLOR=1"}, args...)
}

// ok runs a command that must succeed and returns its output.
func (s *localStack) ok(args ...string) string {
	s.t.Helper()
	o := s.tandem(args...)
	if o.code != 0 {
		s.t.Fatalf("tandem %s: exit code %d:\n%s%s", strings.Join(args, " "), o.code, o.out, o.errOut)
	}
	return o.out
}

// sleeper is a process that only waits, under a name by which it can be found.
func sleeper(name string, instances int) string {
	return `{"apiVersion":"v4","kind":"process","metadata":{"name":"` + name + `","namespace":"test"},
  "restartPolicy":{"policy":"Always","interval":1},"killPolicy":{"gracePeriod":2},
  "spec":{"instance":` + strconv.Itoa(instances) + `,"template":{"spec":{"processes":[{"procName":"sleep","workPath":"/tmp",
  "startCmd":"/bin/sleep 98765","ports":[{"name":"p","hostPort":0,"protocol":"tcp"}],
  "resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`
}

// pids are the main processes of the tasks, in the order of the table.
func (s *localStack) pids() []string {
	s.t.Helper()
	var out []string
	for line := range strings.Lines(s.ok("get", "tasks", "-o", "wide", "-n", "test")) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == "RUNNING" {
			out = append(out, fields[len(fields)-4])
		}
	}
	return out
}

func TestCLILocalStopsAllThatRuns(t *testing.T) {
	s := startLocal(t, "--agents", "2", "--attributes", "zone:a", "--attributes", "zone:b")
	out := s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 3)), "--wait", "--timeout", "60s")
	if !strings.Contains(out, "process/test/nap created") {
		t.Errorf("apply says:\n%s", out)
	}
	if agents := s.ok("get", "agents"); !strings.Contains(agents, "127.0.0.2") || !strings.Contains(agents, "zone:b") {
		t.Errorf("agents:\n%s", agents)
	}
	pids := s.pids()
	if len(pids) != 3 {
		t.Fatalf("pids %v:\n%s", pids, s.ok("get", "tasks", "-o", "wide"))
	}
	s.stop()
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s still runs after the stop", pid)
		}
	}

	// What was applied is remembered and starts again.
	s.start()
	eventually(t, 30*time.Second, "the processes run again", func() bool { return len(s.pids()) == 3 })
	s.ok("delete", "process", "nap", "-n", "test", "--wait")
}

func TestCLILocalSecondStackOnTheSameDirectoryIsRefused(t *testing.T) {
	s := startLocal(t)
	o := tandem(t, nil, append([]string{"local", "--data-dir", s.dir}, localPorts(t)...)...)
	refused(t, o, 6, "data directory "+s.dir+" is in use", "pid "+strconv.Itoa(s.cmd.Process.Pid), s.server, "--data-dir")
	s.ok("get", "agents")
}

func TestCLILocalKeepLeavesTasksForTheNextStart(t *testing.T) {
	s := startLocal(t, "--keep")
	s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 1)), "--wait", "--timeout", "60s")
	before := s.pids()
	s.stop()
	if len(before) != 1 {
		t.Fatalf("pids %v", before)
	}
	if _, err := os.Stat("/proc/" + before[0]); err != nil {
		t.Fatalf("with --keep the process must go on: %v", err)
	}
	s.start()
	eventually(t, 30*time.Second, "the same process is running", func() bool {
		now := s.pids()
		return len(now) == 1 && now[0] == before[0]
	})
	s.flags = s.flags[:len(s.flags)-1]
	s.stop()
	s.start()
	s.ok("delete", "process", "nap", "-n", "test", "--wait")
}

func TestCLILocalTakesUpWhatAKilledStackLeft(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 2)), "--wait", "--timeout", "60s")
	before := s.pids()
	s.end(syscall.SIGKILL)
	for _, pid := range before {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			t.Errorf("process %s died with the stack", pid)
		}
	}
	other := tandem(t, nil, append(append([]string{"local", "--data-dir", s.dir}, s.flags...), "--agents=2")...)
	refused(t, other, 6, "was killed or stopped with --keep", "--agents 1")

	s.start()
	eventually(t, 30*time.Second, "the same processes are running", func() bool {
		return strings.Join(s.pids(), " ") == strings.Join(before, " ")
	})
}

// stubborn is a process that only SIGKILL ends.
func stubborn() string {
	text := strings.Replace(sleeper("stubborn", 1), `"/bin/sleep 98765"`, `"trap '' TERM; while :; do sleep 1; done"`, 1)
	return strings.Replace(strings.Replace(text, `"gracePeriod":2`, `"gracePeriod":5`, 1), `"procName":"sleep"`, `"procName":"sh"`, 1)
}

func TestCLILocalStopWaitsForWhatADeadExecutorLeft(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "stubborn.json", stubborn()), "--wait", "--timeout", "60s")
	executors := processesWithEnv(t, "tandem-executor", "TANDEM_DATA_DIR="+filepath.Join(s.dir, "tasks"))
	if len(executors) != 1 {
		t.Fatalf("executors: %v", executors)
	}
	if err := syscall.Kill(executors[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The daemon gives an orphan three seconds; the stop must not be faster.
	s.stop()
}

// processesWithEnv returns the pids of processes of a program with a variable in their environment.
func processesWithEnv(t *testing.T, program, variable string) []int {
	t.Helper()
	var out []int
	for _, pid := range processesWith(t, program) {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), variable) {
			out = append(out, pid)
		}
	}
	return out
}

func TestCLILocalEndOfTheTerminalStopsIt(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 1)), "--wait", "--timeout", "60s")
	before := s.pids()
	if code := s.end(syscall.SIGHUP); code != 0 {
		t.Errorf("code %d:\n%s", code, s.out.String())
	}
	for _, pid := range before {
		if n, err := strconv.Atoi(pid); err != nil || alive(n) {
			t.Errorf("process %s runs on (%v)", pid, err)
		}
	}
	s.start()
	s.ok("delete", "process", "nap", "-n", "test")
	s.stop()
}

func TestCLILocalSecondSignalForces(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "stubborn.json", stubborn()), "--wait", "--timeout", "60s")
	s.cmd.Process.Signal(syscall.SIGINT)
	eventually(t, 10*time.Second, "the stop begins", func() bool { return strings.Contains(s.out.String(), "stopping what runs") })
	// An end in order, which takes the grace, is code 0.
	if code := s.end(syscall.SIGINT); code != 1 {
		t.Errorf("code %d:\n%s", code, s.out.String())
	}
	// The next start cleans up.
	s.start()
	s.ok("delete", "process", "stubborn", "-n", "test")
	s.stop()
}

func TestCLILocalStartsAKilledDaemonAgain(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "-f", file(t, "sleep.json", sleeper("nap", 1)), "--wait", "--timeout", "60s")
	before := s.pids()
	daemons := processesWith(t, filepath.Join(s.dir, "tasks", "workspace"))
	if len(daemons) != 1 {
		t.Fatalf("process daemons: %v", daemons)
	}
	if err := syscall.Kill(daemons[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "another daemon", func() bool {
		now := processesWith(t, filepath.Join(s.dir, "tasks", "workspace"))
		return len(now) == 1 && now[0] != daemons[0]
	})
	s.ok("scale", "process/nap", "2", "-n", "test", "--wait", "--timeout", "30s")
	if after := s.pids(); len(after) != 2 || after[0] != before[0] {
		t.Errorf("before %v, after %v", before, after)
	}
}
