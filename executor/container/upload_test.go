package container

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/execstream"
)

// inside runs a script in a task and returns what it writes.
func (f *fixture) inside(t *executor.Task, script string) string {
	f.t.Helper()
	var out strings.Builder
	if code, err := f.Session(f.ctx(), t.ID, api.ExecRequest{Command: []string{"/bin/sh", "-c", script}}, execstream.Terminal{Stdout: &out, Stderr: &out}); code != 0 || err != nil {
		f.t.Fatalf("%s: code %d, %v, %s", script, code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// TestUpload: a file is where the container's processes look for it, whole, with owner
// and mode, and no link of the container leads it to the agent's files.
func TestUpload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	volume, outside := t.TempDir(), t.TempDir()
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("sings"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := f.task("sleep 600", func(e *executor.Task) {
		e.Spec.Container.Volumes = append(e.Spec.Container.Volumes,
			api.ContainerVolume{HostPath: volume, MountPath: "/data"}, api.ContainerVolume{HostPath: outside, MountPath: "/ro", ReadOnly: true})
		e.Spec.Files = []api.TaskFile{{Path: "/secret", Content: []byte("s"), Mode: 0o600}}
	})
	f.launch(task)
	f.inside(task, "mkdir -p /real /d && ln -s /real /abs && ln -s "+outside+" /out && ln -s ../../../../../.."+canary+" /d/song && echo old > /d/tool && chmod 4751 /d/tool && chown 12:13 /d/tool && mkfifo /d/pipe")
	put := func(file api.UploadFile) error { return f.Upload(f.ctx(), task.ID, file) }
	for _, x := range []struct {
		file  api.UploadFile
		at    string
		owner string
	}{
		{api.UploadFile{Path: "/d/new"}, "/d/new", "644 0 0"},
		{api.UploadFile{Path: "/d/tool"}, "/d/tool", "751 12 13"},
		{api.UploadFile{Path: "/abs/f", Mode: 0o640, User: "1000:1001"}, "/real/f", "640 1000 1001"},
		{api.UploadFile{Path: "/../../d/up"}, "/d/up", "644 0 0"},
		{api.UploadFile{Path: "/d/song"}, "/d/song", "644 0 0"},
		{api.UploadFile{Path: "/data/v"}, "/data/v", "644 0 0"},
		// A file system in memory, which the engine's archives do not show.
		{api.UploadFile{Path: "/dev/shm/m"}, "/dev/shm/m", "644 0 0"},
	} {
		x.file.Content = []byte("content of " + x.file.Path)
		if err := put(x.file); err != nil {
			t.Errorf("%s: %v", x.file.Path, err)
			continue
		}
		if got := f.inside(task, "stat -c '%a %u %g' "+x.at+"; cat "+x.at); got != x.owner+"\n"+string(x.file.Content) {
			t.Errorf("%s: %q", x.file.Path, got)
		}
	}
	for path, want := range map[string]string{
		"d/x": "not absolute", "/none/x": "does not exist", "/d": "no regular file", "/d/pipe": "no regular file", "/out/x": "does not exist",
		"/ro/x": "read-only", "/secret": "a mount of its own", "/proc/sys/kernel/hostname": "", "/d/new/x": "not a directory", "/proc/1/root/x": "",
	} {
		if err := put(api.UploadFile{Path: path, Content: []byte("evil")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := put(api.UploadFile{Path: "/d/x", User: "nobody-here"}); err == nil || !strings.Contains(err.Error(), "no user of the container") {
		t.Error(err)
	}
	if b, err := os.ReadFile(canary); string(b) != "sings" || err != nil {
		t.Errorf("the canary: %q %v", b, err)
	}
	for _, dir := range []string{volume, outside} {
		entries, err := os.ReadDir(dir)
		if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".tmp") || e.Name() == "x" }) {
			t.Errorf("left in %s: %v %v", dir, entries, err)
		}
	}
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := put(api.UploadFile{Path: "/d/late"}); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Error(err)
	}
}

// TestUploadIsTheUsers: a new file in a container that does not run as root is its user's.
func TestUploadIsTheUsers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 600", func(e *executor.Task) { e.Spec.Container.User = "1234:2345" })
	f.launch(task)
	if err := f.Upload(f.ctx(), task.ID, api.UploadFile{Path: "/tmp-file", Content: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if got := f.inside(task, "stat -c '%u %g' /tmp-file"); got != "1234 2345" {
		t.Error(got)
	}
}

// TestCommit: the image has the container's files and its own environment; neither
// the task's nor its labels nor what is mounted is in it, and no image is replaced.
func TestCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("echo kept > /state; sleep 600", func(e *executor.Task) {
		e.Env = append(e.Env, "PASSWORD=hunter2")
		e.Spec.Files = []api.TaskFile{{Path: "/secret", Content: []byte("hunter2"), Mode: 0o600}}
	})
	s := f.launch(task)
	for f.inside(task, "test -e /state && echo yes || echo no") != "yes" {
		continue
	}
	name := "tandem-test-commit-" + strconv.Itoa(os.Getpid()) + ":before"
	id, err := f.Commit(f.ctx(), task.ID, name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := docker.ImageRemove(f.ctx(), name, image.RemoveOptions{}); err != nil {
			t.Error(err)
		}
	}()
	got, err := docker.ImageInspect(f.ctx(), name)
	if err != nil || got.ID != id {
		t.Fatalf("%s %s %v", got.ID, id, err)
	}
	if !slices.Contains(got.Config.Env, "PASSWORD=") || slices.ContainsFunc(got.Config.Env, func(e string) bool { return strings.Contains(e, "hunter2") }) {
		t.Errorf("environment %q", got.Config.Env)
	}
	for k, v := range got.Config.Labels {
		if v != "" {
			t.Errorf("label %s=%s", k, v)
		}
	}
	if c, err := docker.ContainerInspect(f.ctx(), s.ContainerID); err != nil || !c.State.Running || c.State.Pid != s.Pid {
		t.Errorf("the container: %+v %v", c.State, err)
	}
	if _, err := f.Commit(f.ctx(), task.ID, name); err == nil || !strings.Contains(err.Error(), "on this agent already") {
		t.Errorf("again: %v", err)
	}
	// What runs from it has the file, not the secret, and is nobody's task.
	copied := f.task("cat /state; ls -l /secret | cut -c 1-10; wc -c < /secret", func(e *executor.Task) { e.Spec.Container.Image = name })
	f.launch(copied)
	if exit, out := f.finish(copied); exit.Code != 0 || !strings.HasPrefix(out, "kept\n") || !strings.HasSuffix(strings.TrimSpace(out), "0") {
		t.Errorf("%+v %q", exit, out)
	}
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(f.ctx(), task.ID, name+"2"); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("after its end: %v", err)
	}
	if err := f.Remove(f.ctx(), copied.ID); err != nil {
		t.Error(err)
	}
}
