package processdaemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tandem/processdaemon/protocol"
)

const showAttrs = `umask; ulimit -Sn; ulimit -Hn; ulimit -c; nice; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status`

func shown(t *testing.T, s protocol.Spec) string {
	t.Helper()
	return strings.Join(strings.Fields(read(t, filepath.Join(s.Sandbox, "stdout"))), " ")
}

// TestAttributes: what a task asks for holds for its process and for commands beside
// it; new privileges are denied to all but root.
func TestAttributes(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	d := newDaemon(t)
	s := spec(d, "a", showAttrs+"; exec sleep 60")
	s.User, s.Umask, s.Nice, s.OOMScoreAdj = "nobody", "027", 3, 500
	s.Rlimits = []protocol.Rlimit{{Name: "nofile", Soft: 100, Hard: 200}, {Name: "core", Soft: -1, Hard: -1}}
	run(t, d, s)
	awaitState(t, d, "a", running)
	const want = "0027 100 200 unlimited 3 500 NoNewPrivs: 1"
	eventually(t, "its output", func() bool { return strings.Contains(shown(t, s), "NoNewPrivs") })
	if got := shown(t, s); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	res, err := d.Exec(t.Context(), "a", protocol.ExecRequest{Argv: []string{"/bin/sh", "-c", showAttrs}}, func() {})
	if got := strings.Join(strings.Fields(res.Output), " "); err != nil || !strings.HasPrefix(got, "0027 ") || !strings.HasSuffix(got, " 3 0 NoNewPrivs: 1") {
		// Its limits come an instant after its start.
		t.Errorf("beside it: %q %v", got, err)
	}
	for id, c := range map[string]struct{ user, privs, want string }{
		"root": {"root", "", "0"}, "root-denied": {"root", protocol.NewPrivilegesDeny, "1"}, "user-allowed": {"nobody", protocol.NewPrivilegesAllow, "0"},
	} {
		s := spec(d, id, "grep NoNewPrivs /proc/self/status")
		s.User, s.NewPrivileges = c.user, c.privs
		run(t, d, s)
		if st := awaitState(t, d, id, ended); shown(t, s) != "NoNewPrivs: "+c.want {
			t.Errorf("%s: %q, want %s (%+v)", id, shown(t, s), c.want, st)
		}
	}
}

func TestBadAttributes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "true")
	s.Umask, s.Nice, s.OOMScoreAdj, s.NewPrivileges, s.NetNS = "9", 20, -1001, "perhaps", "x"
	s.Rlimits = []protocol.Rlimit{{Name: "files"}, {Name: "nofile", Soft: 2, Hard: 1}, {Name: "nofile", Hard: 1}}
	_, err := d.Create(s)
	for _, want := range []string{`umask "9"`, "nice 20", "oomScoreAdj -1001", `newPrivileges "perhaps"`, `netNS "x"`, "rlimits[0]: unknown resource", "rlimits[1]: nofile: the soft limit 2", "rlimits[2]: nofile is there twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not tell about %s", err, want)
		}
	}
	s = spec(d, "b", "true")
	s.NetNS = "/no/such/netns"
	run(t, d, s)
	if st := awaitState(t, d, "b", ended); !strings.Contains(st.Failure, "/no/such/netns") || st.Pid != 0 {
		t.Errorf("%+v", st)
	}
}

// TestNetNS: a process and the commands beside it are in the namespace that they are given.
func TestNetNS(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	d := newDaemon(t)
	// A task's process owns the namespace, as in a taskgroup that shares one.
	owner := spec(d, "owner", "exec unshare -n sh -c 'readlink /proc/self/ns/net; exec sleep 60'")
	st := run(t, d, owner)
	eventually(t, "the namespace, or why there is none", func() bool {
		b, _ := os.ReadFile(filepath.Join(owner.Sandbox, "stdout"))
		now, err := d.Status("owner")
		return len(b) > 0 || err != nil || now.State == ended
	})
	if now, _ := d.Status("owner"); now.State == ended {
		t.Skip("no network namespace can be made here:", read(t, filepath.Join(owner.Sandbox, "stderr")))
	}
	ns := shown(t, owner)
	s := spec(d, "a", "readlink /proc/self/ns/net; exec sleep 60")
	s.NetNS = fmt.Sprintf("/proc/%d/ns/net", st.Pid)
	if _, err := fmt.Sscanf(ns, "net:[%d]", &s.NetNSInode); err != nil {
		t.Fatal(ns, err)
	}
	run(t, d, s)
	awaitState(t, d, "a", running)
	eventually(t, "its output", func() bool { return shown(t, s) != "" })
	if got := shown(t, s); got != ns {
		t.Errorf("it runs in %s, want %s", got, ns)
	}
	res, err := d.Exec(t.Context(), "a", protocol.ExecRequest{Argv: []string{"readlink", "/proc/self/ns/net"}}, func() {})
	if strings.TrimSpace(res.Output) != ns || err != nil {
		t.Errorf("beside it: %+v %v", res, err)
	}
	s.ID, s.NetNSInode = "b", s.NetNSInode+1
	run(t, d, s)
	if st := awaitState(t, d, "b", ended); !strings.Contains(st.Failure, "another one has taken its place") {
		t.Errorf("%+v", st)
	}
	if out, err := exec.Command("readlink", "/proc/self/ns/net").Output(); err != nil || strings.TrimSpace(string(out)) == ns {
		t.Errorf("the daemon is in the namespace itself: %s %v", out, err)
	}
}
