package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/pause"
	"tandem/internal/enginetest"
	"tandem/internal/journal"
)

// The tests run against the engine of this machine, with an image of their own
// made from busybox. The official client makes it and looks at what came of a
// call, so that our own client is not its own judge.
var (
	docker    *client.Client
	noEngine  string // why tests that need an engine are skipped
	testImage = fmt.Sprintf("tandem-test-container-%d-%d:latest", os.Getpid(), rand.IntN(1<<30))
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(launchVar); spec != "" {
		launchForKilling(spec)
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	ctx := context.Background()
	var err error
	docker, err = client.NewClientWithOpts(client.WithHost(client.DefaultDockerHost), client.WithAPIVersionNegotiation())
	if err == nil {
		err = importImage(ctx, docker)
	}
	if err != nil {
		noEngine = err.Error()
		fmt.Fprintln(os.Stderr, "tests that need a Docker Engine are skipped:", err)
	}
	code := m.Run()
	if noEngine == "" {
		if _, err := docker.ImageRemove(ctx, testImage, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
			fmt.Fprintln(os.Stderr, "test image stays:", err)
			code = 1
		}
	}
	if name, _, err := pause.Image(); err == nil && noEngine == "" {
		// It is not there when no test needed it, and stays when somebody uses it.
		_, _ = docker.ImageRemove(ctx, name, image.RemoveOptions{PruneChildren: true})
	}
	docker.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// importImage makes an image of busybox and a user, without any registry.
func importImage(ctx context.Context, docker *client.Client) error {
	busybox := ""
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(p); err == nil {
			busybox = p
		}
	}
	if busybox == "" {
		return errors.New("no /bin/busybox: install busybox-static")
	}
	bin, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err = w.WriteHeader(&h); err == nil {
			_, err = w.Write(content)
		}
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, bin)
	for _, n := range []string{"sh", "sleep", "cat", "id", "ls", "stat", "echo", "nc", "ip", "mount", "touch", "pwd", "hostname", "kill", "seq", "env", "mkdir", "ln", "chmod", "chown", "mkfifo", "wc", "cut"} {
		add(tar.Header{Name: "bin/" + n, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644, Typeflag: tar.TypeReg}, []byte("root:x:0:0::/:/bin/sh\napp:x:4711:4712::/:/bin/sh\n"))
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	name, tag, _ := strings.Cut(testImage, ":")
	out, err := docker.ImageImport(ctx, image.ImportSource{Source: &buf, SourceName: "-"}, name+":"+tag,
		image.ImportOptions{Changes: []string{`ENTRYPOINT ["/bin/sh", "-c"]`, `CMD ["echo from the image"]`, "ENV PATH=/bin"}})
	if err != nil {
		return err
	}
	defer out.Close()
	var sink bytes.Buffer
	_, err = sink.ReadFrom(out)
	return err
}

// fixture is a runtime with a journal of its own.
type fixture struct {
	*Runtime
	t       *testing.T
	journal *journal.Journal
	owner   *journal.Owner
	dir     string
	// docker looks at the engine that the runtime uses, whose address is host.
	docker *client.Client
	host   string
	n      int
	mutex  sync.Mutex // for tests that make tasks in several goroutines
}

func newFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	if noEngine != "" {
		t.Skip("no Docker Engine: ", noEngine)
	}
	f := &fixture{t: t, dir: t.TempDir(), docker: docker}
	var err error
	if f.journal, err = journal.Open(filepath.Join(f.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if f.owner, err = f.journal.Own(fmt.Sprintf("0.test.tandem.c1.%d", rand.Int64())); err != nil {
		t.Fatal(err)
	}
	opt := Options{Journal: f.owner, PublishAddress: "127.0.0.1"}
	for _, c := range change {
		c(&opt)
	}
	if f.Runtime, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		// A runtime of its own: the one under test may speak through a broken proxy, or be closed.
		f.Close()
		recs, err := f.owner.Records()
		if err != nil {
			t.Error(err)
		}
		for _, rec := range recs {
			rec.Created = time.Time{}
			if err := NewCleaner(f.host)(ctx, rec); err != nil {
				t.Error(err)
			}
			if err := f.owner.Delete(rec.Kind, rec.ID); err != nil {
				t.Error(err)
			}
		}
		f.owner.Close()
		if left := f.containers(); len(left) > 0 {
			t.Errorf("containers left: %v", left)
		}
	})
	return f
}

// task returns a task that runs a shell script in a network of its own.
func (f *fixture) task(script string, change ...func(*executor.Task)) *executor.Task {
	f.n++
	t := &executor.Task{
		ID: fmt.Sprintf("%d.%d.0.test.tandem.c1", rand.Int64(), f.n), Owner: f.owner.Name(),
		Sandbox: filepath.Join(f.dir, fmt.Sprintf("task%d", f.n)),
		Spec: &api.TaskSpec{
			Version: api.TaskSpecVersion, Name: "main", Kind: api.TaskContainer, NodeIP: "127.0.0.1",
			Taskgroup: api.TaskgroupRef{ID: f.owner.Name(), Name: "test-0", Namespace: "tandem"},
			Container: &api.ContainerTask{Image: testImage, Args: []string{script}},
			Network:   api.TaskNetwork{Mode: "NONE"},
		},
	}
	for _, c := range change {
		c(t)
	}
	return t
}

// ctx ends with the test, and earlier when something hangs.
func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}

// launch brings a task to running.
func (f *fixture) launch(t *executor.Task) executor.Started {
	f.t.Helper()
	ctx := f.ctx()
	if err := f.Prepare(ctx, t, func(string) {}); err != nil {
		f.t.Fatal("prepare:", err)
	}
	if err := f.Create(ctx, t); err != nil {
		f.t.Fatal("create:", err)
	}
	s, err := f.Start(ctx, t.ID)
	if err != nil {
		f.t.Fatal("start:", err)
	}
	return s
}

// finish waits for a task's end and returns how it ended and its output.
func (f *fixture) finish(t *executor.Task) (executor.Exit, string) {
	f.t.Helper()
	exit, err := f.Wait(f.ctx(), t.ID)
	if err != nil {
		f.t.Fatal("wait:", err)
	}
	return exit, f.read(t, "stdout")
}

func (f *fixture) read(t *executor.Task, name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(t.Sandbox, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// eventually polls until ok, at most half a minute.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened: " + what)
		}
	}
}

// behindProxy is a fixture whose runtime speaks through a proxy.
func behindProxy(t *testing.T) (*fixture, *enginetest.Proxy) {
	t.Helper()
	if noEngine != "" {
		t.Skip("no Docker Engine: ", noEngine)
	}
	p := enginetest.NewProxy(t, "/var/run/docker.sock")
	return newFixture(t, func(o *Options) { o.Host, o.ExitPatience = p.Host, time.Second }), p
}

// startEngine starts an engine of the test's own, with the test image in it.
func startEngine(t *testing.T, args ...string) *enginetest.Engine {
	t.Helper()
	if noEngine != "" {
		t.Skip("no Docker Engine: ", noEngine)
	}
	e := enginetest.StartEngine(t, args...)
	if err := importImage(t.Context(), e.Client); err != nil {
		t.Fatal(err)
	}
	return e
}

// fixtureAt is one whose runtime speaks to this engine.
func fixtureAt(t *testing.T, e *enginetest.Engine, patience time.Duration) *fixture {
	f := newFixture(t, func(o *Options) { o.Host, o.ExitPatience = e.Host, patience })
	f.docker, f.host = e.Client, e.Host
	return f
}
