package executor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

func ptr[T any](v T) *T { return &v }

func TestPlainCommandBecomesAProcess(t *testing.T) {
	t.Parallel()
	s, foreign, err := decodeSpec(&mesos.TaskInfo{
		Name: "web server", TaskID: mesos.TaskID{Value: "web.1"}, Data: []byte("private to the framework"),
		Command: &mesos.CommandInfo{
			Value: ptr("exec sleep $TIME"), User: ptr("nobody"),
			Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: "TIME", Value: ptr("${x}")}}},
			URIs:        []mesos.CommandInfo_URI{{Value: "http://example.com/a.tgz", Cache: ptr(true)}},
		},
		Resources: []mesos.Resource{
			{Name: "cpus", Scalar: &mesos.Value_Scalar{Value: 0.5}},
			{Name: "ports", Ranges: &mesos.Value_Ranges{Range: []mesos.Value_Range{{Begin: 31000, End: 31001}}}},
		},
	}, "executor-1")
	if err != nil || !foreign {
		t.Fatalf("foreign %v, error %v", foreign, err)
	}
	want := &api.TaskSpec{
		Version: api.TaskSpecVersion, Name: "web.1", Kind: api.TaskProcess,
		Taskgroup: api.TaskgroupRef{ID: "executor-1", Name: "executor-1", Size: 1},
		Network:   api.TaskNetwork{Mode: "HOST"},
		Process: &api.ProcessTask{
			ProcName: "web server", User: "nobody", StartCmd: "exec sleep $TIME",
			URIs: []api.ProcessURI{{Value: "http://example.com/a.tgz", PullPolicy: "IfNotPresent"}},
		},
		Env:      []api.TaskEnvVar{{Name: "TIME", Value: "${x}", Literal: true}},
		Requests: api.TaskResources{CPUs: 0.5},
		Ports: []api.TaskPort{
			{ContainerPort: 31000, HostPort: 31000, Protocol: "tcp"}, {ContainerPort: 31001, HostPort: 31001, Protocol: "tcp"},
		},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

func TestPlainCommandWithoutShellIsQuoted(t *testing.T) {
	t.Parallel()
	got := commandLine(&mesos.CommandInfo{Shell: ptr(false), Value: ptr("/bin/echo"), Arguments: []string{"echo", "it's", "$HOME", ""}})
	if want := `'/bin/echo' 'it'\''s' '$HOME' ''`; got != want {
		t.Errorf("command line %s, want %s", got, want)
	}
}

func TestPlainDockerContainerBecomesAContainer(t *testing.T) {
	t.Parallel()
	s, _, err := decodeSpec(&mesos.TaskInfo{
		Name: "web", TaskID: mesos.TaskID{Value: "web.1"},
		Command: &mesos.CommandInfo{Shell: ptr(false), Arguments: []string{"--verbose"}},
		Container: &mesos.ContainerInfo{
			Type: ptr(mesos.ContainerInfo_DOCKER), Hostname: ptr("web"),
			Volumes: []mesos.Volume{{Mode: ptr(mesos.RO), ContainerPath: "/data", HostPath: ptr("/srv")}},
			Docker: &mesos.ContainerInfo_DockerInfo{
				Image: "redis:7", Network: ptr(mesos.ContainerInfo_DockerInfo_BRIDGE), ForcePullImage: ptr(true),
				PortMappings: []mesos.ContainerInfo_DockerInfo_PortMapping{{HostPort: 31000, ContainerPort: 6379}},
				Parameters:   []mesos.Parameter{{Key: "ulimit", Value: "nofile=1024"}},
			},
		},
	}, "executor-1")
	if err != nil {
		t.Fatal(err)
	}
	want := &api.TaskSpec{
		Version: api.TaskSpecVersion, Name: "web.1", Kind: api.TaskContainer,
		Taskgroup: api.TaskgroupRef{ID: "executor-1", Name: "executor-1", Size: 1},
		Network:   api.TaskNetwork{Mode: "BRIDGE"},
		Container: &api.ContainerTask{
			Image: "redis:7", Args: []string{"--verbose"}, Hostname: "web", PullPolicy: "Always",
			Parameters: []api.TaskParameter{{Key: "ulimit", Value: "nofile=1024"}},
			Volumes:    []api.ContainerVolume{{HostPath: "/srv", MountPath: "/data", ReadOnly: true}},
		},
		Ports: []api.TaskPort{{ContainerPort: 6379, HostPort: 31000, Protocol: "tcp"}},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

func TestPlainTaskThatCannotBeHonouredIsRefused(t *testing.T) {
	t.Parallel()
	for want, info := range map[string]*mesos.TaskInfo{
		"command.value": {Command: &mesos.CommandInfo{}},
		"variables[0]": {Command: &mesos.CommandInfo{Value: ptr("x"), Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{
			{Name: "S", Type: ptr(mesos.Environment_Variable_SECRET)}}}}},
		"container.type": {Container: &mesos.ContainerInfo{Type: ptr(mesos.ContainerInfo_MESOS)}},
		"command.uris":   {Command: &mesos.CommandInfo{Value: ptr("x"), URIs: []mesos.CommandInfo_URI{{Value: "http://x/y", Executable: ptr(true)}}}},
	} {
		if _, _, err := decodeSpec(info, "e"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}

func TestPlainTaskRunsWithoutExpansion(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(mesos.TaskInfo{
			Name: "plain", TaskID: mesos.TaskID{Value: "p"}, AgentID: mesos.AgentID{Value: "agent-1"},
			Command:    &mesos.CommandInfo{Value: ptr("echo ${namespace}")},
			KillPolicy: &mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: 4e9}},
		})
		r.settle()
		r.wantStates("p", "TASK_STARTING", "TASK_RUNNING")
		run := r.runtime.task("p")
		if run.Spec.Process.StartCmd != "echo ${namespace}" || run.Spec.Process.WorkPath != run.Sandbox {
			t.Errorf("process %+v in sandbox %s", run.Spec.Process, run.Sandbox)
		}
		r.agent.kill("p", 0)
		r.settle()
		if !r.runtime.has("stop p 4s") {
			t.Errorf("calls %v, want the kill policy of the TaskInfo", r.runtime.called())
		}
	})
}

// TestPlainCommandRunsAsItsFrameworksUser: as Mesos has it, unless it names a user itself.
func TestPlainCommandRunsAsItsFrameworksUser(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(
			mesos.TaskInfo{Name: "a", TaskID: mesos.TaskID{Value: "a"}, Command: &mesos.CommandInfo{Value: ptr("run")}},
			mesos.TaskInfo{Name: "b", TaskID: mesos.TaskID{Value: "b"}, Command: &mesos.CommandInfo{Value: ptr("run"), User: ptr("daemon")}},
		)
		r.settle()
		for id, want := range map[string]string{"a": "root", "b": "daemon"} { // root is the framework's
			if got := r.runtime.task(id).Spec.Process.User; got != want {
				t.Errorf("%s runs as %q, want %q", id, got, want)
			}
		}
	})
}
