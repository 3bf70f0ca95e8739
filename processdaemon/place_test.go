package processdaemon

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

func asNobody(t *testing.T, s *protocol.Spec) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("files are given to other users by root only")
	}
	s.User = "nobody"
}

const nobodyUID = 65534

func uidOf(t *testing.T, path string) uint32 {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Uid
}

// TestParentsOfFilesAreMadeForTheTasksUser: also the workPath, when the file comes first.
func TestParentsOfFilesAreMadeForTheTasksUser(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "sh -c 'touch here etc/deep/here && cat etc/deep/secret && exec sleep 600'")
	asNobody(t, &s)
	s.WorkPath = filepath.Join(d.workBase(), "new/app")
	create(t, d, s)
	file := filepath.Join(s.WorkPath, "etc/deep/secret")
	if err := d.PutFiles("a", []protocol.File{{Path: "etc/deep/secret", Content: []byte("geheim\n"), Mode: 0o400, Secret: true}}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "etc", "etc/deep", "etc/deep/secret"} {
		if uid := uidOf(t, filepath.Join(s.WorkPath, dir)); uid != nobodyUID {
			t.Errorf("%q is of user %d", dir, uid)
		}
	}
	if _, err := d.Start("a"); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", running)
	eventually(t, "it to have read its secret", func() bool { return strings.Contains(read(t, filepath.Join(s.Sandbox, "stdout")), "geheim") })
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if exists(file) || !exists(filepath.Join(s.WorkPath, "etc/deep/here")) {
		t.Error("the secret is there, or what the task has written is not")
	}
}

// TestLinksOfTheTasksUserLeadTheDaemonNowhere: neither where it writes, nor where it removes.
func TestLinksOfTheTasksUserLeadTheDaemonNowhere(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "sleep 600")
	asNobody(t, &s)
	create(t, d, s)
	outside := testkit.PublicDir(t)
	victim := filepath.Join(outside, "passwd")
	write(t, victim, "untouched", 0o644)
	link := func(to, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(name, nobodyUID, nobodyUID); err != nil {
			t.Fatal(err)
		}
	}
	link(outside, filepath.Join(s.WorkPath, "etc"))
	elsewhere := testkit.PublicDir(t)
	link(outside, filepath.Join(elsewhere, "theirs"))
	for _, path := range []string{"etc/passwd", filepath.Join(s.WorkPath, "etc/passwd"), "etc/sub/x", filepath.Join(elsewhere, "theirs/passwd")} {
		if err := d.PutFiles("a", []protocol.File{{Path: path, Content: []byte("x")}}); err == nil {
			t.Errorf("%s is written", path)
		}
	}
	if read(t, victim) != "untouched" || exists(filepath.Join(outside, "sub")) {
		t.Error("the daemon wrote behind a link of the task's user")
	}
	// A link within, and one of root's, are places like any other.
	link("conf.d", filepath.Join(s.WorkPath, "conf"))
	if err := os.Mkdir(filepath.Join(s.WorkPath, "conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(testkit.PublicDir(t), "real")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(elsewhere, "roots")); err != nil {
		t.Fatal(err)
	}
	files := []protocol.File{{Path: "conf/a"}, {Path: filepath.Join(elsewhere, "roots/new/b")}, {Path: "moved/passwd"}}
	if err := d.PutFiles("a", files); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(s.WorkPath, "conf.d/a"), filepath.Join(target, "new/b")} {
		if !exists(path) {
			t.Errorf("%s is not there", path)
		}
	}
	// Its user exchanges a directory after the file was written.
	if err := os.Rename(filepath.Join(s.WorkPath, "moved"), filepath.Join(s.WorkPath, "away")); err != nil {
		t.Fatal(err)
	}
	link(outside, filepath.Join(s.WorkPath, "moved"))
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if read(t, victim) != "untouched" {
		t.Error("the daemon removed behind a link of the task's user")
	}
	for _, path := range []string{filepath.Join(s.WorkPath, "conf.d/a"), filepath.Join(target, "new/b")} {
		if exists(path) {
			t.Errorf("%s is left", path)
		}
	}
}
