package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/link"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (m *fakeMaster) shutdown(executor string) {
	m.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{
		FrameworkID: mesos.FrameworkID{Value: "f1"}, ExecutorID: executor}})
}

func TestSandboxesAreCollected(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	clock := newManualClock()
	f := testFlags(t, m)
	f.GCDelay, f.GCDiskHeadroom = time.Hour, 0
	a := startAgent(t, f, func(a *Agent) { a.clock = clock })
	clock.endWith(t, a)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	m.running(runOf(true, "x2", "ok", "t2"))
	gone, stays := sandboxOf(t, a, "x1"), sandboxOf(t, a, "x2")
	if err := os.Symlink("/etc", filepath.Join(gone, "etc")); err != nil {
		t.Fatal(err)
	}
	m.shutdown("x1")
	clock.waitForTimer(t, reapInterval)
	clock.advance(reapInterval)
	m.exited("x1")
	m.ack(m.update("t1", mesos.TASK_FAILED))
	clock.waitForTimer(t, f.DiskWatchInterval)
	if !exists(gone) {
		t.Fatal("the sandbox is gone at once")
	}
	clock.advance(f.GCDelay)
	eventually(t, "the sandbox is gone, and all that was there for it alone", func() bool {
		return !exists(filepath.Dir(filepath.Dir(gone)))
	})
	if !exists(stays) || !exists("/etc/passwd") {
		t.Error("more than that is gone")
	}
	eventually(t, "it is counted", func() bool {
		v := map[string]float64{}
		a.loop.do(a.ctx, func() { v = a.metrics() })
		return v["gc/path_removals_succeeded"] == 1 && v["gc/path_removals_pending"] == 0 && v["gc/path_removals_failed"] == 0
	})
}

// What an agent did not live to remove is removed by the next one.
func TestCollectionSurvivesARestart(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	f.GCDelay, f.GCDiskHeadroom = 10*time.Hour, 0
	a := startAgent(t, f)
	waitRegistered(t, a)
	dirs := map[string]string{}
	for _, x := range []string{"ended", "old", "live", "orphan"} {
		r := runOf(x != "orphan", x, "ok", "t-"+x)
		if x == "orphan" {
			r.Framework.ID.Value, r.Executor.FrameworkID.Value = "f2", "f2"
			m.run(r)
			m.ack(m.update("t-"+x, mesos.TASK_RUNNING))
			a.loop.do(a.ctx, func() { dirs[x] = a.frameworks["f2"].executors[x].directory })
			continue
		}
		m.running(r)
		dirs[x] = sandboxOf(t, a, x)
	}
	for _, x := range []string{"ended", "old"} {
		m.shutdown(x)
		m.exited(x)
		m.ack(m.update("t-"+x, mesos.TASK_FAILED))
	}
	quiet(t, a)
	another := filepath.Join(a.store.Work(), "slaves/of-before/frameworks/f/executors/x/runs/c")
	anotherMeta := filepath.Join(a.store.Work(), "meta/slaves/of-before")
	restart(t, a, func() {
		long := time.Now().Add(-20 * time.Hour)
		for _, dir := range []string{another, anotherMeta} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{dirs["old"], dirs["live"], dirs["orphan"], another, anotherMeta} {
			if err := os.Chtimes(dir, long, long); err != nil {
				t.Fatal(err)
			}
		}
	})
	eventually(t, "what is old is gone", func() bool {
		return !exists(dirs["old"]) && !exists(anotherMeta) && !exists(filepath.Join(a.store.Work(), "slaves/of-before"))
	})
	for _, x := range []string{"ended", "live", "orphan"} {
		if !exists(dirs[x]) {
			t.Errorf("the sandbox of %s is gone", x)
		}
	}
}

func TestMaxAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		headroom, usage float64
		want            time.Duration
	}{{0, 0, 100}, {0.1, 0, 90}, {0.25, 0.25, 50}, {0.1, 0.9, 0}, {0.1, 1, 0}, {1, 0, 0}} {
		if got := maxAge(100, c.headroom, c.usage); got != c.want {
			t.Errorf("headroom %v, usage %v: %d, not %d", c.headroom, c.usage, got, c.want)
		}
	}
	if u := diskUsage(t.TempDir()); u < 0 || u > 1 {
		t.Errorf("disk usage %v", u)
	}
}
