package integration

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// box is a container task of the test image that runs a line of shell.
func box(name, mode, line string) *api.TaskSpec {
	return &api.TaskSpec{
		Name: name, Kind: api.TaskContainer,
		Container:  &api.ContainerTask{Image: harness.image, Command: []string{"/bin/sh", "-c"}, Args: []string{line}, PullPolicy: "Never"},
		Network:    api.TaskNetwork{Mode: mode},
		KillPolicy: api.TaskKillPolicy{GracePeriodSeconds: 1},
	}
}

func phaseNames(phases []api.TaskPhase) string {
	var names []string
	for _, p := range phases {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// containersOf returns the ids of a taskgroup's containers, running or not.
func containersOf(t *testing.T, group string) []string {
	t.Helper()
	list, err := harness.engine.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "tandem.owner="+group))})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestExecutorRunsContainersToTheirEnds(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("good", "HOST", "echo hello; exit 0"), box("long", "NONE", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
	c.waitState(g, "good", mesos.TASK_FINISHED)
	if r := c.report(g, "good"); r.ExitCode == nil || *r.ExitCode != 0 {
		t.Errorf("report %+v", r)
	} else if names := phaseNames(r.Phases); !strings.HasPrefix(r.ImageDigest, "sha256:") || names != "staged preparing prepared creating created starting running stopping removing" {
		t.Errorf("digest %q, phases %s", r.ImageDigest, names)
	}
	if s := c.waitState(g, "long", mesos.TASK_RUNNING); s.GetContainerStatus() == nil {
		t.Error("no container_status")
	}
	c.kill(g, "long")
	c.waitState(g, "long", mesos.TASK_KILLED)
	if got := c.states(g, "long"); got != "STARTING RUNNING KILLING KILLED" {
		t.Errorf("states %s", got)
	}
	c.waitAllGone(g)
	out, err := os.ReadFile(filepath.Join(c.report(g, "good").Sandbox, "stdout"))
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		t.Errorf("stdout of good: %q, %v", out, err)
	}
}

func TestExecutorFailedContainerEndsItsTaskgroup(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("bad", "HOST", "sleep 1; echo no such luck >&2; exit 3"), box("other", "HOST", "exec sleep 1000"))
	s := c.waitState(g, "bad", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "exit code 3") || !strings.Contains(s.GetMessage(), "no such luck") {
		t.Errorf("message %q", s.GetMessage())
	}
	s = c.waitState(g, "other", mesos.TASK_KILLED)
	if !strings.Contains(s.GetMessage(), `"bad"`) {
		t.Errorf("message %q", s.GetMessage())
	}
	c.waitExecutorGone(g)
	if left := containersOf(t, g); len(left) > 0 {
		t.Errorf("containers left: %v", left)
	}
}

func TestExecutorBridgeContainersShareOneNetworkAndItsPorts(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	port := func(s *api.TaskSpec, name string, containerPort, hostPort int) *api.TaskSpec {
		s.Ports = []api.TaskPort{{Name: name, ContainerPort: containerPort, HostPort: hostPort, Protocol: "tcp"}}
		return s
	}
	serve := func(port string) string {
		return `mkdir -p /tmp/w$PPID; cd /tmp; env > env.txt; exec httpd -f -p ` + port
	}
	a := port(box("a", "BRIDGE", strings.ReplaceAll(serve("8080"), "mkdir -p /tmp/w$PPID; ", "")), "http", 8080, 31801)
	b := port(box("b", "BRIDGE", strings.ReplaceAll(serve("8081"), "mkdir -p /tmp/w$PPID; ", "")), "admin", 8081, 31802)
	g := c.launch(a, b)
	c.waitState(g, "a", mesos.TASK_RUNNING)
	s := c.waitState(g, "b", mesos.TASK_RUNNING)
	get := func(url string) string {
		var body string
		eventually(t, 5*time.Second, url, func() bool {
			resp, err := http.Get(url)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			body = string(text)
			return err == nil && resp.StatusCode == http.StatusOK
		})
		return body
	}
	env := get("http://127.0.0.1:31802/env.txt")
	for _, want := range []string{"PORT0=31802\n", "PORT_ADMIN=31802\n", "BCS_POD_ID=" + g + "\n", "BCS_NODE_IP=127.0.0.1\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("environment lacks %q:\n%s", want, env)
		}
	}
	for _, not := range []string{"MESOS_AGENT_ENDPOINT", "MESOS_EXECUTOR_ID", "LIBPROCESS"} {
		if strings.Contains(env, not) {
			t.Errorf("environment holds %s:\n%s", not, env)
		}
	}
	get("http://127.0.0.1:31801/env.txt")
	first, second := c.report(g, "a"), c.report(g, "b")
	if len(first.IPs) == 0 || len(second.IPs) == 0 || first.IPs[0] != second.IPs[0] || first.IPs[0] == "127.0.0.1" {
		t.Errorf("addresses %v and %v, want one of the bridge's for both", first.IPs, second.IPs)
	}
	infos := s.GetContainerStatus().GetNetworkInfos()
	if len(infos) != 1 || len(infos[0].IPAddresses) != 1 || infos[0].IPAddresses[0].GetIPAddress() != second.IPs[0] {
		t.Errorf("network_infos %v", infos)
	}
	// Another taskgroup that wants the same port is told who has it.
	again := c.launch(port(box("late", "BRIDGE", "sleep 100"), "http", 80, 31801))
	s = c.waitState(again, "late", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "31801") || !strings.Contains(s.GetMessage(), "already in use") {
		t.Errorf("message %q", s.GetMessage())
	}
	// The first of them does not hold the network, so that its end changes nothing for the other.
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	get("http://127.0.0.1:31802/env.txt")
	get("http://" + second.IPs[0] + ":8081/env.txt")
	c.kill(g, "b")
	c.waitState(g, "b", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	if left := containersOf(t, g); len(left) > 0 {
		t.Errorf("containers left: %v", left)
	}
	c.waitExecutorGone(again)
	c.nothingLeft()
}

func TestExecutorMissingImageFailsWithItsName(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	bad := box("bad", "HOST", "true")
	bad.Container.Image = "tandem-test-does-not-exist:1"
	g := c.launch(box("good", "HOST", "exec sleep 1000"), bad)
	s := c.waitState(g, "bad", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "tandem-test-does-not-exist:1") {
		t.Errorf("message %q", s.GetMessage())
	}
	c.waitState(g, "good", mesos.TASK_KILLED)
	if got := c.states(g, "good"); strings.Contains(got, "RUNNING") {
		t.Errorf("states %s: it ran although its sibling's image is missing", got)
	}
	c.waitExecutorGone(g)
}

func TestExecutorTellsWhatIsWrongWithASpecification(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{noDaemon: true})
	s := box("x", "HOST", "true")
	s.Env = []api.TaskEnvVar{{Name: "A", Value: "${bcs.nosuch}"}}
	g := c.launch(s)
	status := c.waitState(g, "x", mesos.TASK_ERROR)
	if !strings.Contains(status.GetMessage(), "bcs.nosuch") {
		t.Errorf("message %q", status.GetMessage())
	}
	c.waitExecutorGone(g)
}

func TestFaultAgentRestartFindsItsContainers(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true, checkpoint: true})
	g := c.launch(box("a", "HOST", "trap 'exit 0' TERM; while :; do sleep 0.1; done"), box("short", "HOST", "sleep 1"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.waitState(g, "short", mesos.TASK_RUNNING)
	pid := c.executorPid(g)
	c.agent.Kill()
	// It ends while nobody is there to hear of it.
	eventually(t, 10*time.Second, "the end of short", func() bool { return len(containersOf(t, g)) == 1 })
	c.startAgent()
	c.waitState(g, "short", mesos.TASK_FINISHED)
	if now := c.executorPid(g); now != pid {
		t.Errorf("executor was %d, is %d", pid, now)
	}
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultAgentGoneWithoutCheckpointEndsEverything(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("a", "HOST", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.agent.Kill()
	c.waitAllGone(g)
	c.startAgent()
}

func TestFaultContainerKilledFromOutsideFails(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("a", "HOST", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	if err := syscall.Kill(c.report(g, "a").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := c.waitState(g, "a", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "signal 9") && !strings.Contains(s.GetMessage(), "137") {
		t.Errorf("message %q", s.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultExecutorKilledLeavesContainersToTheReaper(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	g := c.launch(box("a", "HOST", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	if err := syscall.Kill(c.executorPid(g), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.waitState(g, "a", mesos.TASK_FAILED)
	eventually(t, 10*time.Second, "the reaper", func() bool { return len(containersOf(t, g)) == 0 })
	c.nothingLeft()
}

func TestExecutorShutdownOfTheFrameworkLeavesNothing(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("a", "HOST", "trap '' TERM; while :; do sleep 0.1; done"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second*patience)
	defer cancel()
	if err := c.agent.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	c.waitAllGone(g)
	c.startAgent()
}
