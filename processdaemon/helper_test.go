package processdaemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/processdaemon/protocol"
)

// logTo sends the daemon's log to the test's.
func logTo(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// publicTemp is a directory that other users may enter, which t.TempDir is not.
func publicTemp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "processd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newDaemon starts a daemon in this process. At the end of the test it stops
// all tasks and checks that nothing is left.
func newDaemon(t testing.TB, change ...func(*Options)) *Daemon {
	t.Helper()
	opts := Options{DataDir: filepath.Join(publicTemp(t), "data"), Log: logTo(t), ReapInterval: 20 * time.Millisecond}
	for _, f := range change {
		f(&opts)
	}
	cgrouptest.Expect(Trees(opts.DataDir))
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.StopAll(ctx, 0); err != nil {
			t.Error("stop all:", err)
		}
		if left, err := d.tree.Groups(); err != nil || len(left) > 0 {
			t.Errorf("control groups left: %v, %v", left, err)
		}
		// What happens from here on must not reach a test that has ended.
		d.Close()
	})
	return d
}

// spec returns a foreground task.
func spec(d *Daemon, id, cmd string) protocol.Spec {
	return protocol.Spec{
		ID: id, Owner: "owner", Name: "name-" + id, StartCmd: cmd,
		WorkPath: filepath.Join(d.workBase(), id), Sandbox: filepath.Join(d.opts.Workspace, "sandbox", id),
	}
}

// run creates and starts a task.
func run(t testing.TB, d *Daemon, s protocol.Spec) protocol.Status {
	t.Helper()
	create(t, d, s)
	st, err := d.Start(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func create(t testing.TB, d *Daemon, s protocol.Spec) protocol.Status {
	t.Helper()
	if _, err := d.Create(s); err != nil {
		t.Fatal(err)
	}
	return await(t, d, s.ID, func(st protocol.Status) bool { return st.State != preparing })
}

func await(t testing.TB, d *Daemon, id string, ok func(protocol.Status) bool) protocol.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	st, err := d.Status(id)
	for err == nil && !ok(st) {
		st, err = d.Wait(ctx, id, st.Version)
	}
	if err != nil {
		t.Fatalf("task %s: %v; last status %+v", id, err, st)
	}
	return st
}

func awaitState(t testing.TB, d *Daemon, id string, want protocol.State) protocol.Status {
	t.Helper()
	return await(t, d, id, func(st protocol.Status) bool {
		if st.State == ended && want != ended {
			t.Fatalf("task %s ended, want %s: %+v %+v", id, want, st, st.Exit)
		}
		return st.State == want
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
