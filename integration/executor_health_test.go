package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// everySecond is a check from the start on, once a second.
func everySecond(h api.HealthCheck, failures uint32) api.HealthCheck {
	// Where one failure ends a task, a machine with much to do must not be taken for one.
	h.IntervalSeconds, h.TimeoutSeconds, h.ConsecutiveFailures = 1, 10, failures
	return h
}

// withinASecond is a check that gets no answer, of which one need not be sure for long.
func withinASecond(h api.HealthCheck) api.HealthCheck {
	h.TimeoutSeconds = 1
	return h
}

func byCommand(line string, failures uint32) api.HealthCheck {
	return everySecond(api.HealthCheck{Type: api.CheckCommand, Command: &api.CommandCheck{Value: line}}, failures)
}

// closedPort is a port on which nothing listens, outside the range of random ports.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// healths are the values of healthy in a task's updates: - for none; equal ones in a row count once.
func (c *cluster) healths(group, name string) string {
	var s strings.Builder
	last := ""
	for _, u := range c.all(group, name) {
		v := "-"
		if u.Healthy != nil {
			v = map[bool]string{true: "h", false: "u"}[*u.Healthy]
		}
		if v != last {
			s.WriteString(v)
		}
		last = v
	}
	return s.String()
}

func (c *cluster) waitHealth(group, name string, healthy bool) mesos.TaskStatus {
	c.t.Helper()
	var s mesos.TaskStatus
	eventually(c.t, 30*time.Second, fmt.Sprintf("%s healthy %t", name, healthy), func() bool {
		s = c.last(group, name)
		if c.over(group, name) {
			c.t.Fatalf("%s has ended: %s %s", name, s.GetState(), s.GetMessage())
		}
		return s.Healthy != nil && *s.Healthy == healthy
	})
	return s
}

// It starts slowly, is healthy, stops answering, and fails.
func TestHealthOfAContainer(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	for _, mode := range []string{"HOST", "BRIDGE", "NONE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			port := closedPort(t)
			s := box("web", mode, fmt.Sprintf(`mkdir /www; echo fine > /www/index.html; sleep 2
				httpd -f -p %d -h /www & web=$!; while [ ! -e /tmp/stop ]; do sleep 0.1; done; kill $web; exec sleep 1000`, port))
			s.Ports = []api.TaskPort{{Name: "http", ContainerPort: port, Protocol: "tcp"}}
			web := everySecond(api.HealthCheck{Type: api.CheckHTTP, HTTP: &api.HTTPCheck{PortName: "http", Path: "/index.html"}}, 2)
			web.GracePeriodSeconds = 60
			stop := byCommand("ls /www/index.html", 0)
			s.HealthChecks = []api.HealthCheck{web, stop}
			g := c.launch(s)
			u := c.waitHealth(g, "web", true)
			if u.GetReason() != mesos.REASON_TASK_HEALTH_CHECK_STATUS_UPDATED || u.GetSource() != mesos.SOURCE_EXECUTOR || u.GetState() != mesos.TASK_RUNNING {
				t.Errorf("update %s %s %s", u.GetState(), u.GetReason(), u.GetSource())
			}
			touchIn(t, containersOf(t, g)[0], "/tmp/stop")
			u = c.waitState(g, "web", mesos.TASK_FAILED)
			if !strings.Contains(u.GetMessage(), fmt.Sprintf("health check HTTP %d/index.html failed 2 times in a row, last: ", port)) || !strings.Contains(u.GetMessage(), "connection refused") {
				t.Errorf("message %q", u.GetMessage())
			}
			if got := c.healths(g, "web"); got != "-hu" {
				t.Errorf("health %s, want -hu", got)
			}
			if r := decodeReport(t, u); len(r.Checks) != 2 || *r.Checks[0].Healthy || !*r.Checks[1].Healthy {
				t.Errorf("checks %+v", r.Checks)
			}
			c.waitExecutorGone(g)
			if left := containersOf(t, g); len(left) > 0 {
				t.Errorf("containers left: %v", left)
			}
		})
	}
}

// touchIn makes a file in a container from outside.
func touchIn(t *testing.T, id, path string) {
	t.Helper()
	x, err := harness.engine.ContainerExecCreate(t.Context(), id, container.ExecOptions{Cmd: []string{"/bin/sh", "-c", "> " + path}})
	if err == nil {
		err = harness.engine.ContainerExecStart(t.Context(), x.ID, container.ExecStartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestHealthOfAProcessComesAndGoes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	mark := filepath.Join(c.dir, "fine")
	put := func() {
		t.Helper()
		if err := os.WriteFile(mark, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s := proc(c, "p", "exec sleep 1000")
	s.HealthChecks = []api.HealthCheck{byCommand("test -e "+mark, 1000)}
	g := c.launch(s)
	c.waitHealth(g, "p", true)
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if u := c.waitHealth(g, "p", false); u.GetMessage() != "health check COMMAND failed: exit code 1" {
		t.Errorf("message %q", u.GetMessage())
	}
	put()
	c.waitHealth(g, "p", true)
	// The daemon is away: nobody can tell, so nothing is said.
	c.daemon.end(9)
	c.daemon.start()
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	c.waitHealth(g, "p", false)
	if got := c.healths(g, "p"); got != "-huhu" {
		t.Errorf("health %s, the last after a restart of the daemon", got)
	}
	c.kill(g, "p")
	c.waitState(g, "p", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestHealthFailuresTellWhy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	port := closedPort(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	mutePort := mute.Addr().(*net.TCPAddr).Port
	for name, x := range map[string]struct {
		check   api.HealthCheck
		message string
	}{
		"closed":  {everySecond(api.HealthCheck{Type: api.CheckTCP, TCP: &api.TCPCheck{Port: port}}, 2), fmt.Sprintf("2 times in a row, last: 127.0.0.1:%d: connection refused", port)},
		"mute":    {withinASecond(everySecond(api.HealthCheck{Type: api.CheckHTTP, HTTP: &api.HTTPCheck{Port: mutePort, Path: "/"}}, 1)), "failed: no answer within 1s"},
		"nogrpc":  {withinASecond(everySecond(api.HealthCheck{Type: api.CheckGRPC, GRPC: &api.GRPCCheck{Port: mutePort}}, 1)), "health check GRPC"},
		"output":  {byCommand("echo replica is behind; exit 3", 2), "exit code 3: replica is behind"},
		"slow":    {withinASecond(byCommand("sleep 4713", 1)), "failed: no answer within 1s"},
		"missing": {byCommand("no-such-program --check", 1), "exit code 127: no-such-program: no such program in PATH"},
	} {
		s := proc(c, name, "exec sleep 1000")
		s.HealthChecks = []api.HealthCheck{x.check}
		g := c.launch(s)
		u := c.waitState(g, name, mesos.TASK_FAILED)
		if !strings.Contains(u.GetMessage(), x.message) || u.Healthy == nil || *u.Healthy {
			t.Errorf("%s: message %q, healthy %v; want %q", name, u.GetMessage(), u.Healthy, x.message)
		}
		if got := c.states(g, name); got != "STARTING RUNNING FAILED" {
			t.Errorf("%s: states %s", name, got)
		}
		c.waitExecutorGone(g)
	}
	if left := processesWith(t, "sleep 4713"); len(left) > 0 {
		t.Errorf("commands of checks left: %v", left)
	}
	c.nothingLeft()
}

func TestKillWhileACheckIsUnderWay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	long := byCommand("sleep 4712", 1)
	long.TimeoutSeconds, long.IntervalSeconds = 3600, 7200
	s := proc(c, "p", "exec sleep 1000")
	s.HealthChecks = []api.HealthCheck{long}
	specs := []*api.TaskSpec{s}
	if harness.engine != nil {
		b := box("c", "NONE", "exec sleep 1000")
		b.HealthChecks = []api.HealthCheck{long}
		specs = append(specs, b)
	}
	g := c.launch(specs...)
	eventually(t, 30*time.Second, "the checks", func() bool { return len(processesWith(t, "sleep 4712")) == len(specs) })
	for _, s := range specs {
		c.kill(g, s.Name)
	}
	for _, s := range specs {
		if u := c.waitState(g, s.Name, mesos.TASK_KILLED); u.Healthy != nil {
			t.Errorf("%s: healthy %t", s.Name, *u.Healthy)
		}
	}
	c.waitExecutorGone(g)
	if left := processesWith(t, "sleep 4712"); len(left) > 0 {
		t.Errorf("commands of checks left: %v", left)
	}
	c.nothingLeft()
}

func TestHealthOfPlainTasks(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	// The task is alive until the command has told its exit code, however long that takes.
	alive, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	g := c.launchPlain("plain", mesos.TaskInfo{
		Command: &mesos.CommandInfo{Value: new("sleep 1000")},
		HealthCheck: &mesos.HealthCheck{
			Type: mesos.HealthCheck_TCP, TCP: &mesos.HealthCheck_TCPCheckInfo{Port: uint32(alive.Addr().(*net.TCPAddr).Port)},
			DelaySeconds: new(0.0), GracePeriodSeconds: new(0.0), IntervalSeconds: new(0.2), TimeoutSeconds: new(5.0),
		},
		Check: &mesos.CheckInfo{
			Type: mesos.CheckInfo_COMMAND, Command: &mesos.CheckInfo_Command{Command: mesos.CommandInfo{Value: new("exit $CODE"), Environment: &mesos.Environment{
				Variables: []mesos.Environment_Variable{{Name: "CODE", Value: new("7")}},
			}}},
			DelaySeconds: new(0.0), IntervalSeconds: new(0.1), TimeoutSeconds: new(5.0),
		},
	})
	eventually(t, 20*time.Second, "the exit code of the check", func() bool {
		return slices.ContainsFunc(c.all(g, "plain"), func(u mesos.TaskStatus) bool {
			return u.GetReason() == mesos.REASON_TASK_CHECK_STATUS_UPDATED && u.CheckStatus.GetCommand().GetExitCode() == 7
		})
	})
	alive.Close()
	u := c.waitState(g, "plain", mesos.TASK_FAILED)
	if !strings.Contains(u.GetMessage(), "failed 3 times in a row") {
		t.Errorf("message %q", u.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}
