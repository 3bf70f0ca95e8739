package api

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTaskParts(t *testing.T) {
	t.Parallel()
	load := func(name string) *PodSpec {
		src, err := os.ReadFile("testdata/artifacts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		a, ok := decodeOne(t, string(src)).(*Application)
		if !ok {
			t.Fatal("not an application")
		}
		return &a.Spec.Template.Spec
	}
	c := load("consul.application.json").Containers[0]
	got := c.Task()
	want := &ContainerTask{
		Image: "consul:latest", Command: []string{"/bin/sh"}, Args: c.Args, PullPolicy: "IfNotPresent",
		Volumes: []ContainerVolume{
			{Name: "consul-data", HostPath: "/data/consul/data", MountPath: "/consul/data"},
			{Name: "consul-config", HostPath: "/data/consul/config", MountPath: "/consul/config"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	p := load("mongodb.process.json").Processes[0]
	const base = "${work_base_dir}/${namespace}.${processname}.${instanceid}"
	wantProcess := &ProcessTask{
		ProcName: "mongod", User: "root", WorkPath: base + "/mongodb", PidFile: base + "/mongodb/mongodb.pid",
		URIs:     []ProcessURI{{Value: "http://xxxxxx/mongodb-v1.tar.gz", OutputDir: base, PullPolicy: "IfNotPresent"}},
		StartCmd: "./start.sh", StopCmd: "./stop.sh", StartGracePeriodSeconds: 2,
	}
	if diff := cmp.Diff(wantProcess, p.Task()); diff != "" {
		t.Error(diff)
	}
}

// TestStartTimeoutOfAProcess: what it says, otherwise 90 s or a longer grace period; none in
// the foreground.
func TestStartTimeoutOfAProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    Process
		want time.Duration
	}{
		{Process{PidFile: "p"}, 90 * time.Second},
		{Process{PidFile: "p", StartGracePeriod: 30}, 90 * time.Second},
		{Process{PidFile: "p", StartGracePeriod: 300}, 300 * time.Second},
		{Process{PidFile: "p", StartGracePeriod: 300, StartTimeout: 7}, 7 * time.Second},
		{Process{StartTimeout: 7, StartGracePeriod: 300}, 0},
	} {
		if got := c.p.Task().StartTimeout(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.p, got, c.want)
		}
	}
}
