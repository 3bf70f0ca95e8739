package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// plainDocker is a DOCKER container of another framework. Mesos allows a task with
// an executor no command, so that it runs what its image says.
func plainDocker(image string, change func(*mesos.TaskInfo, *mesos.ContainerInfo_DockerInfo)) mesos.TaskInfo {
	docker, bridge := mesos.ContainerInfo_DOCKER, mesos.ContainerInfo_DockerInfo_BRIDGE
	info := &mesos.ContainerInfo_DockerInfo{Image: image, Network: &bridge}
	task := mesos.TaskInfo{Container: &mesos.ContainerInfo{Type: &docker, Docker: info}}
	change(&task, info)
	return task
}

// imageThatRuns makes an image whose command is a line of shell.
func imageThatRuns(t *testing.T, line string) string {
	t.Helper()
	e := harness.engine
	made, err := e.ContainerCreate(t.Context(), &container.Config{Image: harness.image}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Replace(harness.image, ":latest", ":"+strings.ToLower(t.Name()), 1)
	_, err = e.ContainerCommit(t.Context(), made.ID, container.CommitOptions{Reference: name, Config: &container.Config{Cmd: []string{"/bin/sh", "-c", line}}})
	if rmErr := e.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{Force: true}); err != nil || rmErr != nil {
		t.Fatal(err, rmErr)
	}
	t.Cleanup(func() {
		if _, err := e.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// TestPlainDockerTaskWithAllThatMesosPromises: network, port mapping, parameters,
// health check and kill policy of a TaskInfo that knows nothing of Tandem.
func TestPlainDockerTaskWithAllThatMesosPromises(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	const line = `mkdir /www; ulimit -n > /www/index.html; httpd -p 8080 -h /www; trap 'echo told; sleep 1; exit 0' TERM; while :; do sleep 0.1; done`
	hostname := "plain-host"
	g := c.launchPlain("plain", plainDocker(imageThatRuns(t, line), func(task *mesos.TaskInfo, d *mesos.ContainerInfo_DockerInfo) {
		d.PortMappings = []mesos.ContainerInfo_DockerInfo_PortMapping{{HostPort: 31841, ContainerPort: 8080}}
		d.Parameters = []mesos.Parameter{{Key: "ulimit", Value: "nofile=1234:1234"}}
		task.Container.Hostname = &hostname
		task.HealthCheck = &mesos.HealthCheck{
			Type: mesos.HealthCheck_HTTP, HTTP: &mesos.HealthCheck_HTTPCheckInfo{Port: 8080, Path: new("/index.html")},
			DelaySeconds: new(0.0), GracePeriodSeconds: new(30.0), IntervalSeconds: new(0.2), TimeoutSeconds: new(5.0),
		}
		task.KillPolicy = &mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: (30 * time.Second).Nanoseconds()}}
	}))
	c.waitHealth(g, "plain", true)
	resp, err := http.Get("http://127.0.0.1:31841/index.html")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, 100)
	n, _ := resp.Body.Read(text)
	if got := string(text[:n]); got != "1234\n" {
		t.Errorf("the server says %q", got)
	}
	id := containersOf(t, g)[0]
	got, err := harness.engine.ContainerInspect(t.Context(), id)
	if err != nil || got.Config.Hostname != hostname {
		t.Errorf("hostname %q, %v", got.Config.Hostname, err)
	}
	if n := len(containersOf(t, g)); n != 1 {
		t.Errorf("%d containers, a single one pays for no sandbox", n)
	}
	infos := c.last(g, "plain").ContainerStatus.GetNetworkInfos()
	if len(infos) != 1 || len(infos[0].PortMappings) != 1 || infos[0].PortMappings[0].HostPort != 31841 {
		t.Errorf("network_infos %v", infos)
	}
	c.kill(g, "plain")
	c.waitState(g, "plain", mesos.TASK_KILLED)
	// Its grace is longer than it needs: it has ended as it wanted to.
	if r := c.report(g, "plain"); r.ExitCode == nil || *r.ExitCode != 0 {
		t.Errorf("report %+v, want the exit code 0 of its trap", r)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

// TestPlainDockerTaskThatForcesAPull does not run the image that is here.
func TestPlainDockerTaskThatForcesAPull(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launchPlain("plain", plainDocker(harness.image, func(_ *mesos.TaskInfo, d *mesos.ContainerInfo_DockerInfo) {
		d.ForcePullImage = new(true)
	}))
	eventually(t, 20*time.Second, "news of the pull", func() bool {
		s := c.last(g, "plain")
		if c.over(g, "plain") || s.GetState() == mesos.TASK_RUNNING {
			// A pull that is refused for good is one, too.
			return s.GetState() == mesos.TASK_FAILED && strings.Contains(s.GetMessage(), "pull")
		}
		return strings.Contains(s.GetMessage(), "pull")
	})
	if !c.over(g, "plain") {
		c.kill(g, "plain")
		c.waitState(g, "plain", mesos.TASK_KILLED)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

// TestPlainDockerTaskWithAParameterThatIsUnknown is refused, not run without it.
func TestPlainDockerTaskWithAParameterThatIsUnknown(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launchPlain("plain", plainDocker(harness.image, func(_ *mesos.TaskInfo, d *mesos.ContainerInfo_DockerInfo) {
		d.Parameters = []mesos.Parameter{{Key: "ulimits", Value: "nofile=1"}}
	}))
	s := c.waitState(g, "plain", mesos.TASK_ERROR)
	if !strings.Contains(s.GetMessage(), "ulimit") {
		t.Errorf("message %q does not name the nearest known", s.GetMessage())
	}
	c.waitExecutorGone(g)
}

// TestPlainCommandTaskKeepsItsKillPolicyAndChecks: of a process.
func TestPlainCommandTaskKeepsItsKillPolicyAndChecks(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	line := `trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done`
	g := c.launchPlain("plain", mesos.TaskInfo{
		Command: &mesos.CommandInfo{Value: &line},
		HealthCheck: &mesos.HealthCheck{
			Type: mesos.HealthCheck_COMMAND, Command: &mesos.CommandInfo{Value: new("true")},
			DelaySeconds: new(0.0), IntervalSeconds: new(0.2), TimeoutSeconds: new(5.0),
		},
		KillPolicy: &mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: (30 * time.Second).Nanoseconds()}},
	})
	c.waitHealth(g, "plain", true)
	c.kill(g, "plain")
	c.waitState(g, "plain", mesos.TASK_KILLED)
	if r := c.report(g, "plain"); r.ExitCode == nil || *r.ExitCode != 0 {
		t.Errorf("report %+v, want the exit code 0 of its trap", r)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}
