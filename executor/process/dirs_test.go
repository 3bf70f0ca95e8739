package process

import (
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/processdaemon"
)

// TestWarmAsksForTheDirectoriesOnce: all tasks of an executor get what the daemon said before
// the first of them came, without another call; and what another daemon says when that
// has taken its place.
func TestWarmAsksForTheDirectoriesOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	r.Warm(t.Context())
	first := filepath.Join(h.data, "workspace/work_dir")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if dirs, err := r.Dirs(t.Context()); err != nil || dirs.WorkBase != first {
				t.Errorf("%+v %v, want %s", dirs, err, first)
			}
		})
	}
	wg.Wait()
	if n := h.count("GET /v1/info"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	h.down()
	h.data = filepath.Join(h.dir, "other")
	cgrouptest.Expect(processdaemon.Trees(h.data))
	h.up()
	eventually(t, "the end of the connection is known", func() bool { return r.c.Lost() > 0 })
	if dirs, err := r.Dirs(t.Context()); err != nil || dirs.WorkBase != filepath.Join(h.data, "workspace/work_dir") {
		t.Errorf("%+v %v of a daemon of %s", dirs, err, h.data)
	}
}

// TestDirsWaitForWarm: a task that comes while the daemon is being asked asks no second time.
func TestDirsWaitForWarm(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	asked, answer := make(chan struct{}), make(chan struct{})
	h.plays(func(http.ResponseWriter, *http.Request) bool {
		close(asked)
		<-answer
		return false
	})
	var wg sync.WaitGroup
	wg.Go(func() { r.Warm(t.Context()) })
	<-asked
	wg.Go(func() {
		if dirs, err := r.Dirs(t.Context()); err != nil || dirs.WorkBase == "" {
			t.Errorf("%+v %v", dirs, err)
		}
	})
	close(answer)
	wg.Wait()
	if n := h.count("GET /v1/info"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestFaultNoDaemonToWarmUpWith: a daemon that is not there while the executor subscribes, and
// one that is no daemon, are no failure of the task that comes when it is.
func TestFaultNoDaemonToWarmUpWith(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.down()
	away := h.runtime("away")
	away.Warm(t.Context())
	h.up()
	h.plays(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusOK)
		return true
	})
	odd := h.runtime("odd")
	odd.Warm(t.Context())
	h.plays(nil)
	for _, r := range []*Runtime{away, odd} {
		if dirs, err := r.Dirs(t.Context()); err != nil || dirs.WorkBase == "" {
			t.Errorf("%+v %v", dirs, err)
		}
	}
}
