package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// proc is a process task that runs a line of shell.
func proc(c *cluster, name, line string) *api.TaskSpec {
	return &api.TaskSpec{
		Name: name, Kind: api.TaskProcess, Network: api.TaskNetwork{Mode: "HOST"},
		Process:    &api.ProcessTask{ProcName: "sh", WorkPath: "${work_base_dir}/${namespace}.${processname}." + name, StartCmd: line},
		KillPolicy: api.TaskKillPolicy{GracePeriodSeconds: 2},
	}
}

// alive tells whether a pid is a running process, not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestExecutorRunsProcessesToTheirEnds(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	g := c.launch(
		proc(c, "good", "echo hello; exit 0"),
		proc(c, "long", "exec sleep 1000"),
	)
	c.waitState(g, "good", mesos.TASK_FINISHED)
	if r := c.report(g, "good"); r.ExitCode == nil || *r.ExitCode != 0 {
		t.Errorf("report %+v", r)
	}
	c.waitState(g, "long", mesos.TASK_RUNNING)
	pid := c.report(g, "long").Pid
	if !alive(pid) {
		t.Errorf("pid %d of a running process is not alive", pid)
	}
	c.kill(g, "long")
	c.waitState(g, "long", mesos.TASK_KILLED)
	if got := c.states(g, "long"); got != "STARTING RUNNING KILLING KILLED" {
		t.Errorf("states %s", got)
	}
	if alive(pid) {
		t.Errorf("pid %d lives after TASK_KILLED", pid)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
	out, err := os.ReadFile(filepath.Join(c.report(g, "good").Sandbox, "stdout"))
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		t.Errorf("stdout of good: %q, %v", out, err)
	}
}

func TestExecutorProcessEnvironment(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	s := proc(c, "env", "env; exit 0")
	s.Ports = []api.TaskPort{{Name: "svc-port", ContainerPort: 31811, HostPort: 31811, Protocol: "tcp"}}
	s.Env = []api.TaskEnvVar{{Name: "WHERE", Value: "${hostip}:${ports.svc-port} ${work_base_dir}"}, {Name: "RAW", Value: "${x}", Literal: true}}
	g := c.launch(s)
	c.waitState(g, "env", mesos.TASK_FINISHED)
	out, err := os.ReadFile(filepath.Join(c.report(g, "env").Sandbox, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	env := "\n" + string(out)
	for _, want := range []string{
		"\nWHERE=127.0.0.1:31811 " + c.dir + "/workspace/work_dir\n", "\nRAW=${x}\n", "\nPORT0=31811\n", "\nPORT_SVC_PORT=31811\n",
		"\nBCS_POD_ID=" + g + "\n", "\nBCS_TASK_ID=env." + g + "\n", "\nBCS_NODE_IP=127.0.0.1\n", "\nMESOS_SANDBOX=" + c.dir,
	} {
		if !strings.Contains(env, want) {
			t.Errorf("environment lacks %q:%s", want, env)
		}
	}
	for _, not := range []string{"MESOS_AGENT_ENDPOINT", "MESOS_EXECUTOR_ID", "LIBPROCESS", "TOKEN"} {
		if strings.Contains(env, not) {
			t.Errorf("environment holds %s:%s", not, env)
		}
	}
	c.waitExecutorGone(g)
}

func TestExecutorMixedTaskgroup(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	g := c.launch(proc(c, "process", "exec sleep 1000"), box("container", "BRIDGE", "exec sleep 1000"))
	c.waitState(g, "process", mesos.TASK_RUNNING)
	c.waitState(g, "container", mesos.TASK_RUNNING)
	pid := c.report(g, "process").Pid
	if err := syscall.Kill(c.report(g, "container").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.waitState(g, "container", mesos.TASK_FAILED)
	s := c.waitState(g, "process", mesos.TASK_KILLED)
	if !strings.Contains(s.GetMessage(), `"container"`) || alive(pid) {
		t.Errorf("message %q, process alive: %v", s.GetMessage(), alive(pid))
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestExecutorMissingArchiveFailsWithItsURL(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := proc(c, "x", "exec sleep 1000")
	s.Process.URIs = []api.ProcessURI{{Value: server.URL + "/nothing.tar.gz", OutputDir: s.Process.WorkPath}}
	g := c.launch(s)
	status := c.waitState(g, "x", mesos.TASK_FAILED)
	if !strings.Contains(status.GetMessage(), "/nothing.tar.gz") || !strings.Contains(status.GetMessage(), "404") {
		t.Errorf("message %q", status.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestExecutorMissingStartCommandFailsWithItsName(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	g := c.launch(proc(c, "x", "./no-such-program"))
	status := c.waitState(g, "x", mesos.TASK_FAILED)
	if !strings.Contains(status.GetMessage(), "no-such-program") {
		t.Errorf("message %q", status.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestExecutorTakenPortFailsWithTheListener(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	s := proc(c, "x", "exec sleep 1000")
	s.Ports = []api.TaskPort{{Name: "http", ContainerPort: port, HostPort: port, Protocol: "tcp"}}
	g := c.launch(s)
	status := c.waitState(g, "x", mesos.TASK_FAILED)
	if m := status.GetMessage(); !strings.Contains(m, strconv.Itoa(port)) || !strings.Contains(m, fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("message %q, want port %d and pid %d in it", m, port, os.Getpid())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultProcessKilledFromOutsideFails(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	g := c.launch(proc(c, "a", "echo last words; exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	// RUNNING says that the process was started, not that it has said anything.
	stdout := filepath.Join(c.report(g, "a").Sandbox, "stdout")
	eventually(t, 10*time.Second, "its words", func() bool {
		text, err := os.ReadFile(stdout)
		return err == nil && strings.Contains(string(text), "last words")
	})
	if err := syscall.Kill(c.report(g, "a").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := c.waitState(g, "a", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "signal 9") || !strings.Contains(s.GetMessage(), "last words") {
		t.Errorf("message %q", s.GetMessage())
	}
	if r := c.report(g, "a"); r.Signal != 9 || !strings.Contains(r.Output, "last words") {
		t.Errorf("report %+v", r)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultExecutorKilledLeavesProcessesToTheReaper(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	pid := c.report(g, "a").Pid
	if err := syscall.Kill(c.executorPid(g), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.waitState(g, "a", mesos.TASK_FAILED)
	eventually(t, 10*time.Second, "the reaper", func() bool { return !alive(pid) })
	c.nothingLeft()
}

func TestFaultExecutorKilledDuringAFetchLeavesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	release := make(chan struct{})
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
	defer server.Close()
	defer close(release)
	s := proc(c, "a", "exec sleep 1000")
	s.Process.URIs = []api.ProcessURI{{Value: server.URL + "/slow.tar.gz", OutputDir: s.Process.WorkPath}}
	g := c.launch(s)
	<-asked
	if err := syscall.Kill(c.executorPid(g), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.waitState(g, "a", mesos.TASK_FAILED)
	c.nothingLeft()
}

func TestE3KillDuringAFetchEndsAtOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	release := make(chan struct{})
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-release }))
	defer server.Close()
	defer close(release)
	s := proc(c, "a", "exec sleep 1000")
	s.Process.URIs = []api.ProcessURI{{Value: server.URL + "/slow.tar.gz", OutputDir: s.Process.WorkPath}}
	g := c.launch(s)
	<-asked
	c.waitState(g, "a", mesos.TASK_STARTING)
	began := time.Now()
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	// A fetch that does not end when it is told to is left after five seconds.
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %s", took)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultAgentRestartFindsItsProcesses(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{checkpoint: true})
	g := c.launch(proc(c, "a", "exec sleep 1000"), proc(c, "b", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.waitState(g, "b", mesos.TASK_RUNNING)
	pid, executor := c.report(g, "a").Pid, c.executorPid(g)
	c.agent.Kill()
	// It ends while nobody is there to hear of it.
	if err := syscall.Kill(c.report(g, "b").Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.startAgent()
	c.waitState(g, "b", mesos.TASK_FAILED)
	c.waitState(g, "a", mesos.TASK_KILLED)
	if alive(pid) {
		t.Errorf("process %d lives after its taskgroup has failed", pid)
	}
	c.waitExecutorGone(g)
	if executor == 0 {
		t.Error("the executor was not found")
	}
	c.nothingLeft()
}

func TestFaultDaemonRestartKeepsProcesses(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	pid := c.report(g, "a").Pid
	c.daemon.end(syscall.SIGKILL)
	c.daemon.start()
	time.Sleep(300 * time.Millisecond) // nothing may happen now
	if !alive(pid) || c.states(g, "a") != "STARTING RUNNING" {
		t.Errorf("states %s, process alive: %v", c.states(g, "a"), alive(pid))
	}
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	if alive(pid) {
		t.Errorf("process %d lives after TASK_KILLED", pid)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestExecutorRunsPlainTasksOfOtherFrameworks(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	line, value := `echo "$GREETING ${namespace-unset}"; pwd; exit 0`, "hello"
	g := c.launchPlain("plain", mesos.TaskInfo{
		Command: &mesos.CommandInfo{Value: &line, Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: "GREETING", Value: &value}}}},
	})
	c.waitState(g, "plain", mesos.TASK_FINISHED)
	sandbox := c.report(g, "plain").Sandbox
	out, err := os.ReadFile(filepath.Join(sandbox, "stdout"))
	if want := "hello unset\n" + sandbox + "\n"; err != nil || string(out) != want {
		t.Errorf("stdout %q, %v, want %q", out, err, want)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestExecutorRunsPlainDockerTasksOfOtherFrameworks(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	docker, host := mesos.ContainerInfo_DOCKER, mesos.ContainerInfo_DockerInfo_HOST
	g := c.launchPlain("plain", mesos.TaskInfo{
		Container: &mesos.ContainerInfo{Type: &docker, Docker: &mesos.ContainerInfo_DockerInfo{Image: harness.image, Network: &host}},
	})
	s := c.waitState(g, "plain", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "exit code 4") || !strings.Contains(s.GetMessage(), "hello") {
		t.Errorf("message %q", s.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}
