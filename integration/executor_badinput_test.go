package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	session "tandem/scheduler/mesos"
)

// launchRaw starts a task whose data is what the framework made of it.
func (c *cluster) launchRaw(name, data string) string {
	c.t.Helper()
	id, offer, executor := c.take()
	task := mesos.TaskInfo{Name: name, TaskID: mesos.TaskID{Value: name + "." + id}, AgentID: offer.AgentID, Data: []byte(data), Resources: resources(0.1, 32, 0)}
	c.session.Send(session.Accept([]string{offer.ID.Value}, []mesos.Offer_Operation{session.LaunchGroup(executor, []mesos.TaskInfo{task})}, 0))
	return id
}

// TestBadInput: what cannot be run is refused by the whole executor with the state and the
// reason that Mesos has for it, with a message that names thing, value and remedy,
// and nothing of it is left: no container, no record, no file in memory.
func TestBadInput(t *testing.T) { //nolint:tparallel // the cases wait for what was launched together
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	const secret = "correct-horse-battery"
	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Www-Authenticate", `Basic realm="test"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`, http.StatusUnauthorized)
	}))
	defer closed.Close()
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, http.StatusNotFound)
		}
	}))
	defer empty.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	policyFile := filepath.Join(c.dir, "policy.yaml")
	if err := os.WriteFile(policyFile, []byte("hostPaths: [/srv/data]\nprivileged: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := func(mode string, change func(*api.TaskSpec)) string {
		s := box("bad", mode, "exec sleep 100")
		s.Version = api.TaskSpecVersion
		s.Files = []api.TaskFile{{Path: "/etc/secret", Content: []byte(secret), Secret: true}}
		change(s)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	container := func(change func(*api.ContainerTask)) string {
		return spec("NONE", func(s *api.TaskSpec) { change(s.Container) })
	}
	const launch, invalid, unauthorized = mesos.REASON_CONTAINER_LAUNCH_FAILED, mesos.REASON_TASK_INVALID, mesos.REASON_TASK_UNAUTHORIZED
	for name, bad := range map[string]struct {
		data   string
		state  mesos.TaskState
		reason mesos.TaskStatus_Reason
		words  []string
	}{
		"image missing, Never": {container(func(c *api.ContainerTask) { c.Image = "nowhere:1" }), mesos.TASK_FAILED, launch,
			[]string{`image "nowhere:1"`, "imagePullPolicy is Never", "docker load"}},
		"image missing in its registry": {container(func(c *api.ContainerTask) {
			c.Image, c.PullPolicy = strings.TrimPrefix(empty.URL, "http://")+"/app:none", "IfNotPresent"
		}), mesos.TASK_FAILED, launch, []string{"/app:none", "manifest", "check the name"}},
		"bad credentials": {container(func(c *api.ContainerTask) {
			c.Image, c.PullPolicy, c.RegistryUser, c.RegistryPass = strings.TrimPrefix(closed.URL, "http://")+"/app:1", "Always", "joe", secret
		}), mesos.TASK_FAILED, launch, []string{"/app:1", "imagePullUser and imagePullPasswd"}},
		"no image reference": {container(func(c *api.ContainerTask) { c.Image = "Not An Image" }), mesos.TASK_ERROR, invalid,
			[]string{`image "Not An Image"`, "write it as name, name:tag"}},
		"port taken": {spec("BRIDGE", func(s *api.TaskSpec) {
			s.Ports = []api.TaskPort{{Name: "http", ContainerPort: 80, HostPort: port, Protocol: "tcp"}}
		}), mesos.TASK_FAILED, launch, []string{"http", strconv.Itoa(port), "already in use", fmt.Sprintf("(pid %d)", os.Getpid())}},
		"network unknown": {spec("CUSTOM", func(s *api.TaskSpec) { s.Network.Type, s.Network.Name = "cnm", "tandem-test-nosuch" }), mesos.TASK_FAILED, launch,
			[]string{`network "tandem-test-nosuch"`, "docker network create"}},
		"volume refused by the policy": {container(func(c *api.ContainerTask) {
			c.Volumes = []api.ContainerVolume{{HostPath: "/etc", MountPath: "/host"}}
		}), mesos.TASK_ERROR, unauthorized, []string{"volumes[0].hostPath", "/etc", "policy", "/srv/data"}},
		"engine socket": {container(func(c *api.ContainerTask) {
			c.Volumes = []api.ContainerVolume{{HostPath: "/var/run/docker.sock", MountPath: "/s"}}
		}), mesos.TASK_ERROR, unauthorized, []string{"/var/run/docker.sock", "policy"}},
		"privileged": {container(func(c *api.ContainerTask) { c.Privileged = true }), mesos.TASK_ERROR, unauthorized, []string{"privileged", "policy"}},
		"unknown parameter": {container(func(c *api.ContainerTask) {
			c.Parameters = []api.TaskParameter{{Key: "ulimits", Value: "nofile=1"}}
		}), mesos.TASK_ERROR, invalid, []string{"ulimits", `did you mean "ulimit"?`}},
		"command that is not there": {container(func(c *api.ContainerTask) { c.Command = []string{"/no/such"} }), mesos.TASK_FAILED, launch,
			[]string{`command "/no/such"`, "does not exist in image", "check command and args"}},
		"no task":         {`{"version": "tandem/v1", "name": "bad", "kind": 7}`, mesos.TASK_ERROR, invalid, []string{"no task specification", "field kind"}},
		"no JSON":         {`{"version": "tandem/v1", "kind": `, mesos.TASK_ERROR, invalid, []string{"no task specification", "malformed JSON at byte"}},
		"unknown version": {`{"version": "tandem/v9", "name": "bad", "kind": "container"}`, mesos.TASK_ERROR, invalid, []string{`version "tandem/v9"`, "understands tandem/v1", "use an executor of the scheduler's release"}},
		"unknown kind":    {`{"version": "tandem/v1", "name": "bad", "kind": "vm"}`, mesos.TASK_ERROR, invalid, []string{`"vm"`, "use container or process"}},
	} {
		c.executorEnv = "TANDEM_EXECUTOR_POLICY=" + policyFile
		g := c.launchRaw("bad", bad.data)
		t.Run(name, func(t *testing.T) {
			s := c.waitState(g, "bad", bad.state)
			if s.GetReason() != bad.reason || s.GetSource() != mesos.SOURCE_EXECUTOR {
				t.Errorf("reason %v, source %v: %s", s.GetReason(), s.GetSource(), s.GetMessage())
			}
			for _, word := range bad.words {
				if !strings.Contains(s.GetMessage(), word) {
					t.Errorf("message %q lacks %q", s.GetMessage(), word)
				}
			}
			for _, s := range c.all(g, "bad") {
				if strings.Contains(s.GetMessage(), secret) || strings.Contains(string(s.Data), secret) {
					t.Error("a secret in an update")
				}
			}
			if strings.Contains(c.executorLog(g), secret) {
				t.Error("a secret in the log")
			}
			c.waitExecutorGone(g)
			if left := containersOf(t, g); len(left) > 0 {
				t.Errorf("containers left: %v", left)
			}
		})
	}
	c.nothingLeft()
	// Files of secrets are kept by directories that the records name; none of ours is left.
	for _, root := range []string{"/run/tandem-files", "/dev/shm/tandem-files"} {
		files, _ := filepath.Glob(filepath.Join(root, "*", "*"))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && string(b) == secret {
				t.Errorf("%s is left", f)
			}
		}
	}
}
