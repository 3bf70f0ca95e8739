package container

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/journal"
)

// TestFiles: content, mode and owner arrive, also under a read-only root; the
// secret is on tmpfs and nowhere else, and gone with the container.
func TestFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const secret = "correct-horse"
	task := f.task("cat /etc/app/deep/key /conf; stat -c '%a %u %g' /etc/app/deep/key /conf /num /mine; "+
		"/bin/busybox df -T /etc/app/deep/key | /bin/busybox awk 'NR==2 {print $2}'; echo x 2>/dev/null >/conf || echo refused; echo new >/num; cat /num", func(e *executor.Task) {
		e.Spec.Container.ReadOnlyRoot = true
		e.Spec.Container.User = "0:0"
		e.Spec.Files = []api.TaskFile{
			{Path: "/etc/app/deep/key", Content: []byte(secret), Mode: 0o400, User: "app", Secret: true},
			{Path: "/conf", Content: []byte("\nplain\n")},
			{Path: "/num", Mode: 0o640, User: "12:34"},
			{Path: "/mine", Mode: 0o400},
		}
	})
	s := f.launch(task)
	if _, out := f.finish(task); out != secret+"\nplain\n400 4711 4712\n444 0 0\n640 12 34\n400 0 0\ntmpfs\nrefused\nnew\n" {
		t.Errorf("got %q, %s", out, f.read(task, "stderr"))
	}
	_, raw, err := docker.ContainerInspectWithRaw(f.ctx(), s.ContainerID, false)
	if err != nil || strings.Contains(string(raw), secret) {
		t.Errorf("the secret is in the container's description (%v)", err)
	}
	inSandbox(t, f.dir, task, secret)
	dir := f.tasks[task.ID].files
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("files stay after the container: %v", err)
	}
}

// inSandbox looks for a secret in every file below dir but the task's own output.
func inSandbox(t *testing.T, dir string, task *executor.Task, secret string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(task.Sandbox, "stdout") {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), secret) {
			t.Errorf("the secret is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFilesOfTheContainersUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("cat /key; id -u", func(e *executor.Task) {
		e.Spec.Container.User = "app"
		e.Spec.Files = []api.TaskFile{{Path: "/key", Content: []byte("mine\n"), Mode: 0o400, Secret: true}}
	})
	f.launch(task)
	if _, out := f.finish(task); out != "mine\n4711\n" {
		t.Errorf("got %q", out)
	}
}

func TestFilesThatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const secret = "correct-horse"
	for _, c := range []struct {
		want  int
		files []api.TaskFile
	}{
		{2, []api.TaskFile{{Path: "relative", Content: []byte(secret)}, {Path: "/x/"}, {Path: "/y"}}},
		{1, []api.TaskFile{{Path: "/x", Content: []byte(secret)}, {Path: "/./x"}}},
		{1, []api.TaskFile{{Path: "/x", User: "nobody-here", Content: []byte(secret)}}},
	} {
		bad := f.task("true", func(e *executor.Task) { e.Spec.Files = c.files })
		err := f.Create(f.ctx(), bad)
		var errs api.Errors
		if !errors.As(err, &errs) || len(errs) != c.want || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v", err)
		}
		if err := f.Remove(f.ctx(), bad.ID); err != nil {
			t.Error(err)
		}
		if root, err := memoryRoot(); err != nil {
			t.Error(err)
		} else if _, err := os.Stat(filesDir(root, bad.Owner, bad.ID)); err == nil {
			t.Error("the files of a refused task stay")
		}
	}
}

// TestCleanerRemovesFiles: those of a dead executor go, and nothing else that a record may name.
func TestCleanerRemovesFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("true", func(e *executor.Task) { e.Spec.Files = []api.TaskFile{{Path: "/x", Content: []byte("y")}} })
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	dir := f.tasks[task.ID].files
	recs, err := f.owner.Records()
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	recs[0].Created = time.Time{}
	if err := NewCleaner("")(f.ctx(), recs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("files stay")
	}
	other := t.TempDir()
	forged := journal.Record{Kind: Kind, ID: "x", Owner: "o", Data: []byte(`{"name":"none","files":"` + other + `"}`)}
	if err := NewCleaner("")(f.ctx(), forged); err == nil || !strings.Contains(err.Error(), "left as it is") {
		t.Errorf("forged record: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestCleanerRemovesFilesAtOnce: an executor that is killed after it wrote a secret and
// before it made the container leaves a record that stays for a while, but no secret.
func TestCleanerRemovesFilesAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	root, err := memoryRoot()
	if err != nil {
		t.Skip("no file system in memory: ", err)
	}
	dir := filesDir(root, f.owner.Name(), "never-made")
	if err := writeFiles(dir, []api.TaskFile{{Path: "/x", Content: []byte("y")}}); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rec := journal.Record{
		Kind: Kind, ID: "never-made", Owner: f.owner.Name(), Created: time.Now(), Data: []byte(`{"name":"tandem-test-never-made","files":"` + dir + `"}`),
	}
	if err := NewCleaner("")(f.ctx(), rec); err == nil || !strings.Contains(err.Error(), "looking again") {
		t.Errorf("the record of a container that may yet come: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the secret stays: %v", err)
	}
}

// TestPropagation: what is mounted later below a slave volume appears in the container.
func TestPropagation(t *testing.T) {
	t.Parallel()
	c, err := compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Volumes = []api.ContainerVolume{{HostPath: "/data", MountPath: "/data", Propagation: "rslave"}}
	})
	if err != nil || c.spec.HostConfig.Mounts[0].BindOptions.Propagation != "rslave" {
		t.Errorf("%v %+v", err, c)
	}
	_, err = compileTask(t, "", func(e *executor.Task) {
		e.Spec.Container.Volumes = []api.ContainerVolume{{HostPath: "/data", MountPath: "/data", Propagation: "both"}}
	})
	if err == nil || !strings.Contains(err.Error(), "rslave") {
		t.Errorf("%v", err)
	}
	f := newFixture(t)
	volume := func(source string) *executor.Task {
		return f.task("until test -e /data/below/mark; do sleep 0.05; done; echo seen", func(e *executor.Task) {
			e.Spec.Container.Volumes = []api.ContainerVolume{{HostPath: source, MountPath: "/data", Propagation: "rslave"}}
		})
	}
	shared := filepath.Join(f.dir, "shared")
	below := filepath.Join(shared, "below")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func(at string) {
		t.Helper()
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
			t.Skip("mount(2) is not permitted here: ", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount(shared)
	if err := unix.Mount("", shared, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	private := volume(shared)
	if err := f.Create(f.ctx(), private); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Start(f.ctx(), private.ID); err == nil || !strings.Contains(err.Error(), "mount --make-rshared") {
		t.Errorf("a private mount: %v", err)
	}
	if err := unix.Mount("", shared, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	task := volume(shared)
	f.launch(task)
	mount(below)
	if err := os.WriteFile(filepath.Join(below, "mark"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, out := f.finish(task); out != "seen\n" {
		t.Errorf("got %q", out)
	}
}
