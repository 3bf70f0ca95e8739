package processdaemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestFilesOfTheAgentAreReadAsTheTasksUser: by a task and by a fetch before it, with the
// default user where none is named.
func TestFilesOfTheAgentAreReadAsTheTasksUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	d := newDaemon(t, func(o *Options) { o.DefaultUser = "nobody" })
	secret := filepath.Join(testkit.PublicDir(t), "secret")
	write(t, secret, "geheim", 0o600)
	try := func(id, user string) protocol.Status {
		t.Helper()
		s := spec(d, id, "true")
		s.User, s.URIs = user, []protocol.URI{{Value: "file://" + secret}}
		st := create(t, d, s)
		if st.State == ready {
			if got := read(t, filepath.Join(s.WorkPath, "secret")); got != "geheim" {
				t.Errorf("%s: %q", id, got)
			}
		} else if exists(s.WorkPath) {
			t.Errorf("%s: the outputDir is there", id)
		}
		return st
	}
	const refusal = "uid 65534, whom it is for, may not read it: permission denied"
	// Before and after root's task has brought it into the cache.
	for _, round := range []string{"1", "2"} {
		for id, user := range map[string]string{"nobody": "nobody", "default": "", "number": "65534"} {
			if st := try(id+round, user); st.State != ended || !strings.Contains(st.Failure, refusal) {
				t.Errorf("%s: %+v", id, st)
			}
		}
		if st := try("root"+round, "root"); st.State != ready {
			t.Errorf("%+v", st)
		}
	}
	uris := []protocol.URI{{Value: secret}}
	for user, want := range map[string]string{"nobody": refusal, "": refusal, "no-such-user": "not known on this agent", "root": ""} {
		_, err := d.Fetch(t.Context(), user, uris, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", user, err)
		}
	}
}

// TestFetchSaysForWhom: over the socket, as an executor does it.
func TestFetchSaysForWhom(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	p := newProc(t)
	p.start("")
	secret := filepath.Join(p.dir, "secret")
	write(t, secret, "geheim", 0o600)
	uris := []protocol.URI{{Value: secret}}
	if _, err := p.c.Fetch(context.Background(), "root", uris, nil); err != nil {
		t.Error(err)
	}
	if _, err := p.c.Fetch(context.Background(), "nobody", uris, nil); err == nil || !strings.Contains(err.Error(), "may not read it") {
		t.Error(err)
	}
}

// TestLinksInTheWayToAWorkPathLeadTheDaemonNowhere: what its user puts there, before the
// directory is made and while the task runs.
func TestLinksInTheWayToAWorkPathLeadTheDaemonNowhere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	d := newDaemon(t)
	outside := testkit.PublicDir(t)
	theirs := filepath.Join(d.workBase(), "theirs")
	link := func(name string) {
		t.Helper()
		if err := errors.Join(os.Symlink(outside, name), os.Lchown(name, nobodyUID, nobodyUID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(theirs, "work"), 0o755), os.Chown(theirs, nobodyUID, nobodyUID)); err != nil {
		t.Fatal(err)
	}
	link(filepath.Join(theirs, "link"))
	s := spec(d, "a", "sleep 600")
	asNobody(t, &s)
	s.WorkPath = filepath.Join(theirs, "link/new")
	run(t, d, s)
	if st := await(t, d, "a", func(st protocol.Status) bool { return st.State == ended }); !strings.Contains(st.Failure, "workPath: ") || !strings.Contains(st.Failure, "escapes") {
		t.Errorf("%+v", st)
	}
	s = spec(d, "b", "sleep 600")
	asNobody(t, &s)
	s.WorkPath = filepath.Join(theirs, "work")
	run(t, d, s)
	awaitState(t, d, "b", running)
	f := protocol.File{Path: "x", Content: []byte("x")}
	if err := d.Upload("b", f); err != nil {
		t.Error(err)
	}
	if err := os.Rename(s.WorkPath, s.WorkPath+".moved"); err != nil {
		t.Fatal(err)
	}
	link(s.WorkPath)
	if err := d.Upload("b", f); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("%v", err)
	}
	if e, err := os.ReadDir(outside); err != nil || len(e) != 0 {
		t.Errorf("outside: %v %v", e, err)
	}
}
