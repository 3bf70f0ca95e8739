package api

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func processSpec() *TaskSpec {
	return &TaskSpec{
		Version:   TaskSpecVersion,
		Taskgroup: TaskgroupRef{ID: "2.mongodb.test.local.17", Name: "mongodb-2", Application: "mongodb", Namespace: "test", Cluster: "local", Index: 2, Size: 1},
		Name:      "mongod", Kind: TaskProcess, NodeIP: "127.0.0.2",
		Ports: []TaskPort{{Name: "svc_port", ContainerPort: 27017, HostPort: 27017, Protocol: "tcp"}},
		Process: &ProcessTask{
			ProcName: "mongod",
			WorkPath: "${work_base_dir}/${namespace}.${processname}.${instanceid}/mongodb",
			PidFile:  "${workPath}/mongodb.pid",
			URIs:     []ProcessURI{{Value: "http://h/mongodb-v1.tar.gz", OutputDir: "${work_base_dir}/${namespace}.${processname}.${instanceid}"}, {Value: "file:///x"}},
			StartCmd: "./start.sh --bind ${hostip}:${ports.svc_port} $${HOME} $$",
			StopCmd:  "./stop.sh ${pidFile}",
		},
		Env: []TaskEnvVar{
			{Name: "pid_file", Value: "${pidFile}"},
			{Name: "${namespace}_X", Value: "${bcs.taskgroupname} ${bcs.ports.svc_port}"},
			{Name: "SECRET", Value: "${hostip}", Literal: true},
			{Name: "BCS_POD_ID", Value: "another"},
		},
		Files:        []TaskFile{{Path: "etc/mongo.conf", Content: []byte("x")}, {Path: "${run_base_dir}/f"}},
		HealthChecks: []HealthCheck{{Type: "COMMAND", Command: &CommandCheck{Value: "check ${workPath}"}}},
		Labels:       map[string]string{"a": "${namespace}"},
	}
}

func TestExpandProcess(t *testing.T) {
	t.Parallel()
	spec := processSpec()
	before := toJSON(t, spec)
	got, err := ExpandSpec(spec, Dirs{WorkBase: "/var/lib/tandem/work_dir", RunBase: "/var/lib/tandem/run_dir"})
	if err != nil {
		t.Fatal(err)
	}
	if after := toJSON(t, spec); after != before {
		t.Errorf("the original changed:\n%s\n%s", before, after)
	}
	const base = "/var/lib/tandem/work_dir/test.mongodb.2"
	want := processSpec()
	want.Process.WorkPath = base + "/mongodb"
	want.Process.PidFile = base + "/mongodb/mongodb.pid"
	want.Process.URIs = []ProcessURI{{Value: "http://h/mongodb-v1.tar.gz", OutputDir: base}, {Value: "file:///x", OutputDir: base + "/mongodb"}}
	want.Process.StartCmd = "./start.sh --bind 127.0.0.2:27017 ${HOME} $$"
	want.Process.StopCmd = "./stop.sh " + base + "/mongodb/mongodb.pid"
	want.Env = []TaskEnvVar{
		{Name: "pid_file", Value: base + "/mongodb/mongodb.pid", Literal: true},
		{Name: "test_X", Value: "mongodb-2 27017", Literal: true},
		{Name: "SECRET", Value: "${hostip}", Literal: true},
		{Name: "BCS_POD_ID", Value: "2.mongodb.test.local.17", Literal: true},
		{Name: "BCS_NODE_IP", Value: "127.0.0.2", Literal: true},
	}
	want.Files[0].Path = base + "/mongodb/etc/mongo.conf"
	want.Files[1].Path = "/var/lib/tandem/run_dir/f"
	want.HealthChecks[0].Command.Value = "check " + base + "/mongodb"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The copy shares nothing that either of the two may change.
	got.HealthChecks[0].Command.Value, got.Labels["a"], got.Ports[0].HostPort, got.Process.URIs[0].Value = "", "", 1, ""
	if after := toJSON(t, spec); after != before {
		t.Errorf("the copy shares with the original:\n%s\n%s", before, after)
	}
}

func TestExpandContainer(t *testing.T) {
	t.Parallel()
	spec := &TaskSpec{
		Taskgroup: TaskgroupRef{ID: "0.web.ns.c.1", Name: "web-0", Application: "web", Namespace: "ns"},
		Kind:      TaskContainer, NodeIP: "10.0.0.1",
		Ports: []TaskPort{{Name: "in", ContainerPort: 80}, {Name: "out", ContainerPort: 80, HostPort: 31000}},
		Container: &ContainerTask{
			Command: []string{"/bin/sh"},
			Args:    []string{"-c", "run -bind ${BCS_NODE_IP} ${X:-${bcs.hostip}} ${hostip} $${bcs.hostip} ${open"},
			Volumes: []ContainerVolume{{HostPath: "/data/$BCS_POD_ID/${bcs.instanceid}/x", MountPath: "/x"}, {HostPath: "/d/${BCS_POD_ID}/$BCS_POD_IDX", MountPath: "/y"}, {MountPath: "/z"}},
		},
		Env: []TaskEnvVar{{Name: "A", Value: "${bcs.namespace}/${bcs.appname}/${bcs.instanceid}/${bcs.taskgroupid} ${bcs.ports.in},${bcs.ports.out} ${namespace}"}},
	}
	got, err := ExpandSpec(spec, Dirs{})
	if err != nil {
		t.Fatal(err)
	}
	if a := got.Container.Args[1]; a != "run -bind ${BCS_NODE_IP} ${X:-10.0.0.1} ${hostip} ${bcs.hostip} ${open" {
		t.Errorf("args: %s", a)
	}
	if v := got.Env[0].Value; v != "ns/web/0/0.web.ns.c.1 80,31000 ${namespace}" {
		t.Errorf("env: %s", v)
	}
	var paths []string
	for _, v := range got.Container.Volumes {
		paths = append(paths, v.HostPath)
	}
	if diff := cmp.Diff([]string{"/data/0.web.ns.c.1/0/x", "/d/0.web.ns.c.1/$BCS_POD_IDX", ""}, paths); diff != "" {
		t.Error(diff)
	}
}

// TestExpandOnce: what a variable stands for is never expanded again, so that no
// value can smuggle in a variable.
func TestExpandOnce(t *testing.T) {
	t.Parallel()
	spec := processSpec()
	spec.Taskgroup.Application = "${hostip}"
	spec.Process.StartCmd = "${processname} $${processname} $$${processname}"
	got, err := ExpandSpec(spec, Dirs{WorkBase: "/w", RunBase: "/r"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Process.StartCmd != "'${hostip}' ${processname} $${processname}" {
		t.Errorf("start: %s", got.Process.StartCmd)
	}
	if got.Process.WorkPath != "/w/test.${hostip}.2/mongodb" {
		t.Errorf("work path: %s", got.Process.WorkPath)
	}
}

func TestExpandRefuses(t *testing.T) {
	t.Parallel()
	spec := processSpec()
	spec.NodeIP = ""
	spec.Process.StopCmd = "${nothing} ${"
	spec.Process.PidFile = "../x.pid"
	spec.Process.URIs[0].OutputDir = "/a/../b"
	spec.Ports[0] = TaskPort{Name: "svc_port"}
	_, err := ExpandSpec(spec, Dirs{WorkBase: "/w"})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("%v", err)
	}
	var got []string
	for _, e := range errs {
		got = append(got, e.Path+" "+e.Value)
	}
	want := []string{
		"env[1].value bcs.ports.svc_port", "files[1].path run_base_dir", "process.pidFile ../x.pid",
		"process.startCmd hostip", "process.startCmd ports.svc_port", "process.stopCmd nothing", "process.stopCmd ${", "process.uris[0].outputDir /a/../b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, err)
	}

	spec = processSpec()
	spec.Process.WorkPath = "relative"
	if _, err := ExpandSpec(spec, Dirs{WorkBase: "/w", RunBase: "/r"}); err == nil {
		t.Error("a relative work path is accepted")
	}
	spec = processSpec()
	spec.Process.WorkPath = "/${pidFile}"
	if _, err := ExpandSpec(spec, Dirs{WorkBase: "/w", RunBase: "/r"}); err == nil {
		t.Error("a work path that needs the pid file is accepted")
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FuzzExpand holds expansion to a slow and simple model of it.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "${hostip}", "$${hostip}", "${", "$${", "${a}${hostip}", "${x-${hostip}}", "$$${hostip}}", strings.Repeat("${", 50)} {
		f.Add(s, true)
		f.Add(strings.ReplaceAll(s, "hostip", "bcs.hostip"), false)
	}
	f.Fuzz(func(t *testing.T, s string, process bool) {
		spec := processSpec()
		if !process {
			spec.Kind = TaskContainer
		}
		v := NewVars(spec, Dirs{WorkBase: "/w", RunBase: "/${hostip}"})
		got, unknown := v.Expand(s)
		if !strings.Contains(s, "${") && (got != s || unknown != nil) {
			t.Fatalf("%q became %q", s, got)
		}
		if len(unknown) > 0 {
			return
		}
		if want := modelExpand(s, v.values, process); got != want {
			t.Fatalf("%q: got %q, want %q", s, got, want)
		}
	})
}

// modelExpand looks at each position of s; it knows nothing of unknown variables.
func modelExpand(s string, values map[string]string, process bool) string {
	out := ""
	for i := 0; i < len(s); {
		ours := func(rest string) bool { return process || strings.HasPrefix(rest, "bcs.") }
		switch {
		case strings.HasPrefix(s[i:], "$${") && ours(s[i+3:]):
			out += "${"
			i += 3
		case strings.HasPrefix(s[i:], "${") && ours(s[i+2:]):
			end := strings.IndexByte(s[i:], '}')
			out += values[s[i+2:i+end]]
			i += end + 1
		default:
			out += s[i : i+1]
			i++
		}
	}
	return out
}

func BenchmarkExpandSpec(b *testing.B) {
	spec := processSpec()
	dirs := Dirs{WorkBase: "/w", RunBase: "/r"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ExpandSpec(spec, dirs); err != nil {
			b.Fatal(err)
		}
	}
}
