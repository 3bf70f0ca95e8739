package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/container/policy"
)

// compileTask compiles a task without any engine.
func compileTask(t *testing.T, join string, change func(*executor.Task)) (*compiled, error) {
	t.Helper()
	e, err := engine.New("")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{engine: e, opt: Options{Policy: policy.Default(), PublishAddress: "127.0.0.2", Deny: []string{"/var/lib/tandem"}}}
	task := &executor.Task{ID: "1.0.0.web.test.c1", Owner: "0.web.test.c1.1", Sandbox: "/sandbox", Env: []string{"A=b"},
		Spec: &api.TaskSpec{
			Taskgroup: api.TaskgroupRef{ID: "0.web.test.c1.1", Name: "web-0", Namespace: "test"},
			Container: &api.ContainerTask{Image: "redis:7", Hostname: "h"},
			Network:   api.TaskNetwork{Mode: "BRIDGE"},
		}}
	change(task)
	return r.compile(task, join)
}

func TestCompilePlain(t *testing.T) {
	t.Parallel()
	c, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Command = []string{"/bin/sh"}
		e.Spec.Container.Args = []string{"-c", "true"}
		e.Spec.Container.WorkingDir = "/w"
		e.Spec.Labels = map[string]string{"podname": "web", labelOwner: "forged", "namespace": "forged"}
		e.Publish = []api.TaskPort{{ContainerPort: 80, HostPort: 31000, Protocol: "tcp"}, {ContainerPort: 53, HostPort: 31001, Protocol: "udp"}, {ContainerPort: 81}}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Spec{
		Hostname: "h", Env: []string{"A=b"}, Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "true"}, Image: "redis:7", WorkingDir: "/w",
		Labels: map[string]string{"podname": "web", "namespace": "test", "pod_name": "web-0",
			labelOwner: "0.web.test.c1.1", labelTask: "1.0.0.web.test.c1", labelTaskgroup: "0.web.test.c1.1"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "53/udp": {}},
		AttachStdout: true, AttachStderr: true,
		HostConfig: engine.HostConfig{NetworkMode: "bridge", LogConfig: logConfig, CapDrop: []string{"NET_RAW"},
			PortBindings: map[string][]engine.PortBinding{"80/tcp": {{HostIP: "127.0.0.2", HostPort: "31000"}}, "53/udp": {{HostIP: "127.0.0.2", HostPort: "31001"}}}},
	}
	if diff := cmp.Diff(want, c.spec); diff != "" {
		t.Error(diff)
	}
}

// TestE8ReadOnlyVolumes: the flag reaches the engine, and paths with colons mean what they say.
func TestE8ReadOnlyVolumes(t *testing.T) {
	t.Parallel()
	c, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Volumes = []api.ContainerVolume{
			{Name: "conf", HostPath: "/data/a:rw", MountPath: "/conf", ReadOnly: true},
			{Name: "../../up", MountPath: "/scratch"},
			{MountPath: "/var/lib/x"},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []engine.Mount{
		{Type: "bind", Source: "/data/a:rw", Target: "/conf", ReadOnly: true},
		{Type: "bind", Source: "/sandbox/volumes/..-..-up", Target: "/scratch"},
		{Type: "bind", Source: "/sandbox/volumes/var-lib-x", Target: "/var/lib/x"},
	}
	if diff := cmp.Diff(want, c.spec.HostConfig.Mounts); diff != "" {
		t.Error(diff)
	}
}

// TestE9NoHostnameInSharedNetwork: the engine refuses a hostname in a network that is not the container's own.
func TestE9NoHostnameInSharedNetwork(t *testing.T) {
	t.Parallel()
	for name, join := range map[string]string{"HOST": "", "BRIDGE": "0123"} {
		c, err := compileTask(t, join, func(e *executor.Task) {
			e.Spec.Network.Mode = name
			e.Publish = []api.TaskPort{{ContainerPort: 80, HostPort: 80, Protocol: "tcp"}}
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.spec.Hostname != "" || c.spec.HostConfig.PortBindings != nil {
			t.Errorf("%s %q: hostname %q, bindings %v", name, join, c.spec.Hostname, c.spec.HostConfig.PortBindings)
		}
	}
}

func TestNetworkModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		network api.TaskNetwork
		params  []api.TaskParameter
		want    string
		err     string
	}{
		{api.TaskNetwork{}, nil, "none", ""},
		{api.TaskNetwork{Mode: "NONE"}, nil, "none", ""},
		{api.TaskNetwork{Mode: "HOST"}, nil, "host", ""},
		{api.TaskNetwork{Mode: "CUSTOM", Type: "cnm", Name: "backend"}, nil, "backend", ""},
		{api.TaskNetwork{Mode: "USER"}, []api.TaskParameter{{Key: "net", Value: "backend"}}, "backend", ""},
		{api.TaskNetwork{Mode: "CUSTOM", Name: "backend"}, []api.TaskParameter{{Key: "ip", Value: "10.1.2.3"}}, "backend", ""},
		{api.TaskNetwork{Mode: "HOST"}, []api.TaskParameter{{Key: "net", Value: "host"}}, "host", ""},
		{api.TaskNetwork{Mode: "BRIDGE"}, []api.TaskParameter{{Key: "net", Value: "host"}}, "", "contradicts"},
		{api.TaskNetwork{Mode: "BRIDGE"}, []api.TaskParameter{{Key: "net", Value: "container:abc"}}, "", "is refused"},
		{api.TaskNetwork{Mode: "BRIDGE"}, []api.TaskParameter{{Key: "ip", Value: "10.1.2.3"}}, "", "custom network"},
		{api.TaskNetwork{Mode: "CUSTOM", Name: "container:abc"}, nil, "", "network name"},
		{api.TaskNetwork{Mode: "CUSTOM", Type: "cni", Name: "backend"}, nil, "", "CNI networks are not available"},
	} {
		got, err := compileTask(t, "", func(e *executor.Task) { e.Spec.Network, e.Spec.Container.Parameters = c.network, c.params })
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v %v: error %v, want %q", c.network, c.params, err, c.err)
			}
			continue
		}
		if err != nil || got.spec.HostConfig.NetworkMode != c.want {
			t.Errorf("%+v %v: %v", c.network, c.params, err)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	c, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Parameters = []api.TaskParameter{
			{Key: "ulimit", Value: "nofile=1024:2048"}, {Key: "ulimit", Value: "core=-1"}, {Key: "rm", Value: "true"},
			{Key: "shm-size", Value: "64"}, {Key: "oom-kill-disable", Value: "false"}, {Key: "ipc", Value: "shareable"}, {Key: "P"},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := engine.HostConfig{NetworkMode: "bridge", LogConfig: logConfig, IpcMode: "shareable", CapDrop: []string{"NET_RAW"}, ShmSize: 64 << 20, OomKillDisable: &no,
		Ulimits: []engine.Ulimit{{Name: "nofile", Soft: 1024, Hard: 2048}, {Name: "core", Soft: -1, Hard: -1}}}
	if diff := cmp.Diff(want, c.spec.HostConfig); diff != "" {
		t.Error(diff)
	}
}

// TestRefusals: every mistake is reported at once, with its path and its remedy.
func TestRefusals(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/var/run", link); err != nil {
		t.Fatal(err)
	}
	_, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Limits.MemMB = 4
		e.Spec.Container.Parameters = []api.TaskParameter{
			{Key: "ulimits", Value: "x"}, {Key: "ulimit", Value: "nofile=lots"}, {Key: "shm-size", Value: "64m"}, {Key: "ipc", Value: "container:abc"}, {Key: "cap-add", Value: "SYS_ADMIN"},
			{Key: "oom-kill-disable", Value: "perhaps"}, {Key: "ip", Value: "10"}, {Key: "ulimit", Value: "nofile=9:1"},
		}
		e.Spec.Container.Volumes = []api.ContainerVolume{
			{HostPath: "/var/run/docker.sock", MountPath: "/var/run/docker.sock", ReadOnly: true},
			{HostPath: "/run", MountPath: "/hostrun"},
			{HostPath: link + "/", MountPath: "/linked"},
			{HostPath: "/tmp/..", MountPath: "/all"},
			{HostPath: "/run/tandem", MountPath: "/t"},
			{HostPath: "relative", MountPath: "/r"},
			{HostPath: "/data", MountPath: "relative"},
			{HostPath: "/data", MountPath: "/x/.."},
			{HostPath: "/data", MountPath: "/t/"},
			{HostPath: "/var/lib/tandem/journal", MountPath: "/journal"},
		}
	})
	var errs api.Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range errs {
		got[e.Path] = e.Message
	}
	for path, text := range map[string]string{
		"limits.memMB":                  "at least 6 MB",
		"container.parameters[0].key":   `did you mean "ulimit"`,
		"container.parameters[1].value": "nofile=65536",
		"container.parameters[2].value": "number of megabytes",
		"container.parameters[3].value": "private, shareable",
		"container.parameters[4].key":   "is unknown",
		"container.parameters[5].value": "neither true nor false",
		"container.parameters[6].value": "no IP address",
		"container.parameters[7].value": "soft limit above",
		"container.volumes[0].hostPath": "control of the agent", "container.volumes[1].hostPath": "control of the agent",
		"container.volumes[2].hostPath": "control of the agent", "container.volumes[3].hostPath": "control of the agent",
		"container.volumes[4].hostPath": "control of the agent", "container.volumes[5].hostPath": "absolute",
		"container.volumes[6].mountPath": "absolute", "container.volumes[7].mountPath": "hide the whole image",
		"container.volumes[8].mountPath": "another volume", "container.volumes[9].hostPath": "/var/lib/tandem",
	} {
		if !strings.Contains(got[path], text) {
			t.Errorf("%s: %q lacks %q", path, got[path], text)
		}
		delete(got, path)
	}
	delete(got, "container.parameters") // ip outside a custom network
	for path, text := range got {
		t.Errorf("unexpected: %s: %s", path, text)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		requests, limits api.TaskResources
		want             engine.HostConfig
	}{
		{api.TaskResources{}, api.TaskResources{}, engine.HostConfig{}},
		{api.TaskResources{CPUs: 0.5, MemMB: 64}, api.TaskResources{}, engine.HostConfig{CPUShares: 512, Memory: 64 << 20, MemorySwap: 64 << 20}},
		{api.TaskResources{CPUs: 0.001, MemMB: 1}, api.TaskResources{CPUs: 0.001}, engine.HostConfig{CPUShares: 2, CPUPeriod: 100000, CPUQuota: 1000, Memory: 6 << 20, MemorySwap: 6 << 20}},
		{api.TaskResources{CPUs: 1, MemMB: 64}, api.TaskResources{CPUs: 2, MemMB: 1024}, engine.HostConfig{CPUShares: 1024, CPUPeriod: 100000, CPUQuota: 200000, Memory: 1 << 30, MemorySwap: 1 << 30}},
	} {
		var errs api.Errors
		var got engine.HostConfig
		resources(&errs, &api.TaskSpec{Requests: c.requests, Limits: c.limits}, &got)
		if diff := cmp.Diff(c.want, got); diff != "" || errs != nil {
			t.Error(diff, errs)
		}
	}
}

func TestContainerName(t *testing.T) {
	t.Parallel()
	if got := containerName("1700000000.0.2.web.test.c1"); got != "tandem-1700000000.0.2.web.test.c1" {
		t.Error(got)
	}
	a, b := containerName("a/b"), containerName("a:b")
	if a == b || !strings.HasPrefix(a, "tandem-a-b-") {
		t.Errorf("%q and %q", a, b)
	}
	if long := containerName(strings.Repeat("x", 400)); len(long) > 220 {
		t.Errorf("%d characters", len(long))
	}
}

func TestSplitReference(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0a", 32)
	for ref, want := range map[string][2]string{
		"redis":                    {"redis", "latest"},
		"redis:7":                  {"redis", "7"},
		"localhost:5000/a/b":       {"localhost:5000/a/b", "latest"},
		"localhost:5000/a/b:v1":    {"localhost:5000/a/b", "v1"},
		"redis@" + digest:          {"redis", digest},
		"host:1/redis:7@" + digest: {"host:1/redis", digest},
		digest:                     {digest, ""},
	} {
		name, tag, err := splitReference(ref)
		if err != nil || name != want[0] || tag != want[1] {
			t.Errorf("%s: %q %q %v", ref, name, tag, err)
		}
	}
	for _, ref := range []string{"", "../containers/x", "a b", "redis:", "redis@sha256:1", "-x", "a//b", "redis:7/../../x", "a?b"} {
		if name, tag, err := splitReference(ref); err == nil {
			t.Errorf("%q is %q %q", ref, name, tag)
		}
	}
}

func FuzzSplitReference(f *testing.F) {
	f.Add("localhost:5000/a/b:v1@sha256:00")
	f.Fuzz(func(t *testing.T, ref string) {
		name, tag, err := splitReference(ref)
		if err == nil && (strings.Contains(name, "..") && strings.Contains(name, "/..") || strings.ContainsAny(name+tag, "?#% \n")) {
			t.Fatalf("%q -> %q %q", ref, name, tag)
		}
	})
}
