package processdaemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
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

// newDaemon starts a daemon in this process. At the end of the test it stops
// all tasks and checks that nothing is left.
func newDaemon(t testing.TB, change ...func(*Options)) *Daemon {
	t.Helper()
	opts := Options{DataDir: filepath.Join(testkit.PublicDir(t), "data"), Log: logTo(t), ReapInterval: 20 * time.Millisecond}
	for _, f := range change {
		f(&opts)
	}
	cgrouptest.Expect(Trees(opts.DataDir))
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// patience is for what takes milliseconds on a machine that has nothing else to do.
const patience = time.Minute

func await(t testing.TB, d *Daemon, id string, ok func(protocol.Status) bool) protocol.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
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
	// A child that another test forks meanwhile would have a program open for writing until its exec,
	// and nobody could run it (execve(2), ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(content), mode)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
