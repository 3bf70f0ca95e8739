package integration

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/enginetest"
)

// Here the whole executor stands before an engine that fails: through a proxy that
// breaks calls, and with an engine of the test's own that is stopped and started.

const engineSocket = "/var/run/docker.sock"

// behindProxy makes a cluster's executors speak to the engine through a proxy.
func (c *cluster) behindProxy() *enginetest.Proxy {
	c.t.Helper()
	p := enginetest.NewProxy(c.t, engineSocket)
	c.executorEnv = "DOCKER_HOST=" + p.Host
	return p
}

// TestFaultEngineAnswersBadly: every kind of call fails once in one
// way, and the states are those of the tasks all the same.
func TestFaultEngineAnswersBadly(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for _, fault := range []enginetest.Fault{enginetest.DropRequest, enginetest.DropResponse, enginetest.Fail500, enginetest.HalfClose} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterOptions{noDaemon: true})
			p := c.behindProxy()
			// Not those that make a launch fail by right: that is told as it is, too.
			for _, call := range []string{"attach$", "/wait$", "containers/[0-9a-f]{64}/json$", "/logs$", "/events$", "/kill$", "DELETE .*"} {
				p.Arm(call, fault, 1)
			}
			done := c.launch(box("done", "NONE", "echo up; sleep 0.5; exit 0"))
			failed := c.launch(box("failed", "NONE", "echo up; sleep 0.5; exit 7"))
			killed := c.launch(box("killed", "NONE", "exec sleep 1000"))
			c.waitState(killed, "killed", mesos.TASK_RUNNING)
			c.kill(killed, "killed")
			c.waitState(done, "done", mesos.TASK_FINISHED)
			if s := c.waitState(failed, "failed", mesos.TASK_FAILED); !strings.Contains(s.GetMessage(), "exit code 7") {
				t.Errorf("message %q", s.GetMessage())
			}
			c.waitState(killed, "killed", mesos.TASK_KILLED)
			for _, g := range []string{done, failed, killed} {
				c.waitExecutorGone(g)
				if left := containersOf(t, g); len(left) > 0 {
					t.Errorf("containers left: %v", left)
				}
			}
			c.nothingLeft()
		})
	}
}

// TestFaultEngineIsSilentDuringAKill: the task ends at once, its end is told
// within the limits of the states, and the process daemon removes the container
// when the engine speaks again.
func TestFaultEngineIsSilentDuringAKill(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	p := c.behindProxy()
	g := c.launch(box("mute", "NONE", "trap '' TERM; while :; do sleep 0.1; done"))
	c.waitState(g, "mute", mesos.TASK_RUNNING)
	pid := c.report(g, "mute").Pid
	if pid <= 0 {
		t.Fatal("no pid in the report")
	}
	p.Arm("", enginetest.Silence, -1)
	c.kill(g, "mute")
	eventually(t, 20*time.Second, "the process is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	c.waitState(g, "mute", mesos.TASK_KILLED)
	// The daemon speaks to the engine itself, not through the proxy.
	c.waitExecutorGone(g)
	eventually(t, 30*time.Second, "the container is removed", func() bool { return len(containersOf(t, g)) == 0 })
	c.nothingLeft()
}

// TestFaultE5ContainerRemovedBehindOurBack: somebody removes the container of a running task.
func TestFaultE5ContainerRemovedBehindOurBack(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(box("victim", "NONE", "exec sleep 1000"))
	c.waitState(g, "victim", mesos.TASK_RUNNING)
	if err := harness.engine.ContainerRemove(t.Context(), containersOf(t, g)[0], container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c.waitState(g, "victim", mesos.TASK_FAILED)
	// A few hundredths of a second in rest; an end that the kernel did not tell is noticed after half a minute.
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("known after %v", d)
	} else {
		t.Logf("known after %v", d)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

// TestFaultEngineIsRestarted: a task that the engine ended by its own end
// has failed, whatever its exit code, and what is left is removed when it is back.
func TestFaultEngineIsRestarted(t *testing.T) {
	t.Parallel()
	needEngine(t)
	e := enginetest.StartEngine(t)
	if err := importBusybox(t.Context(), e.Client, harness.image); err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, clusterOptions{noDaemon: true})
	c.executorEnv = "DOCKER_HOST=" + e.Host
	g := c.launch(box("ended", "NONE", "trap 'exit 0' TERM; while :; do sleep 0.05; done"))
	c.waitState(g, "ended", mesos.TASK_RUNNING)
	e.End(syscall.SIGTERM)
	e.Start()
	if s := c.waitState(g, "ended", mesos.TASK_FAILED); !strings.Contains(s.GetMessage(), "Docker Engine") {
		t.Errorf("message %q", s.GetMessage())
	}
	if got := c.states(g, "ended"); got != "STARTING RUNNING FAILED" {
		t.Errorf("states %s", got)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
	list, err := e.Client.ContainerList(context.Background(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "tandem.owner="+g))})
	if err != nil || len(list) > 0 {
		t.Errorf("left %v, %v", list, err)
	}
	// Without an engine from the beginning: said with the remedy, and nothing is left.
	e.End(syscall.SIGTERM)
	g = c.launch(box("none", "NONE", "true"))
	if s := c.waitState(g, "none", mesos.TASK_FAILED); !strings.Contains(s.GetMessage(), e.Host) || !strings.Contains(s.GetMessage(), "start a Docker Engine") ||
		s.GetReason() != mesos.REASON_CONTAINER_LAUNCH_FAILED {
		t.Errorf("message %q, reason %v", s.GetMessage(), s.GetReason())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}
