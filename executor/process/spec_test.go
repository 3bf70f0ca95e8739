package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tandem/api"
	"tandem/executor"
	"tandem/processdaemon/protocol"
)

// TestSpecOf: everything that an artifact says of a process reaches the daemon.
func TestSpecOf(t *testing.T) {
	t.Parallel()
	p := api.Process{
		ProcName: "mongod", User: "nobody", WorkPath: "/w", PidFile: "/w/pid", StartCmd: "start", StopCmd: "stop", KillCmd: "kill",
		ReloadCmd: "reload", StartGracePeriod: 3, StartTimeout: 40, PidsLimit: 50, NewPrivileges: "allow", LogPath: "/var/log/*.log", Umask: "027", Nice: 2, OOMScoreAdj: 10,
		Ulimits: []string{"nofile=1:2", "core=-1", "nonsense"}, URIs: []api.URI{{Value: "file:///x", OutputDir: "/o", Mode: "0640"}},
	}
	task := &executor.Task{ID: "id", Owner: "owner", Sandbox: "/s", Env: []string{"A=b"}, Spec: &api.TaskSpec{Name: "n", Process: p.Task()}}
	want := &protocol.Spec{
		ID: "id", Owner: "owner", Leased: true, Name: "n", ProcName: "mongod", User: "nobody", WorkPath: "/w", PidFile: "/w/pid",
		StartCmd: "start", StopCmd: "stop", KillCmd: "kill", ReloadCmd: "reload", StartTimeout: 40 * time.Second, StartGrace: 3 * time.Second, Limits: protocol.Limits{Pids: 50}, Env: []string{"A=b"},
		Sandbox: "/s", URIs: []protocol.URI{{Value: "file:///x", OutputDir: "/o", Mode: 0o640, Digest: "d"}},
		NewPrivileges: "allow", LogPath: "/var/log/*.log", Umask: "027", Nice: 2, OOMScoreAdj: 10,
		Rlimits: []protocol.Rlimit{{Name: "nofile", Soft: 1, Hard: 2}, {Name: "core", Soft: -1, Hard: -1}, {Name: "nonsense"}},
	}
	if diff := cmp.Diff(want, specOf(task, []string{"d"})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
