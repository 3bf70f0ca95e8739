package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/archive/archivetest"
	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/failpoint"
	"tandem/internal/unixhttp"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
)

// daemonEnv makes this program a daemon in the directory that it names.
const daemonEnv = "PROCRT_TEST_DAEMON"

func childDaemon(dir string) int {
	err := func() error {
		d, err := processdaemon.New(processdaemon.Options{DataDir: filepath.Join(dir, "data"), OwnProgram: true})
		if err != nil {
			return err
		}
		defer d.Close()
		l, err := unixhttp.Listen(context.Background(), filepath.Join(dir, "sock"), "")
		if err != nil {
			return err
		}
		return d.Serve(context.Background(), l)
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// mortal is a daemon in a process of its own, which is started again whenever it dies.
type mortal struct {
	*host
	deaths atomic.Int32
	mu     sync.Mutex
	cmd    *exec.Cmd
	closed bool
}

// newMortal starts one whose first life has the failpoints.
func newMortal(t testing.TB, points string) *mortal {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "procrt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &mortal{host: &host{t: t, dir: dir}}
	cgrouptest.Expect(processdaemon.Trees(filepath.Join(dir, "data")))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m.live(points) {
			points = ""
			m.deaths.Add(1)
		}
	}()
	t.Cleanup(func() {
		m.mu.Lock()
		m.closed = true
		m.mu.Unlock()
		m.kill()
		<-done
	})
	return m
}

// live returns after one life, and tells whether there is to be another.
func (m *mortal) live(points string) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), daemonEnv+"="+m.dir, failpoint.EnvVar+"="+points)
	err := cmd.Start()
	m.cmd = cmd
	m.mu.Unlock()
	if err != nil {
		m.t.Error(err)
		return false
	}
	_ = cmd.Wait() // it is killed
	return true
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		_ = m.cmd.Process.Kill() // it may be dead already
	}
}

// diedOnce tells that it has died once, which may be a moment after its last answer.
func (m *mortal) diedOnce() {
	m.t.Helper()
	for end := time.Now().Add(20 * time.Second); m.deaths.Load() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		continue
	}
	if n := m.deaths.Load(); n != 1 {
		m.t.Errorf("died %d times", n)
	}
}

// guarded serves an archive to who knows the password. hold is called with the
// number of the request in the middle of an answer.
func guarded(t testing.TB, hold func(n int32)) (uri api.ProcessURI, requests *atomic.Int32) {
	t.Helper()
	content := archivetest.Tar(t, archivetest.Entry{Name: "conf", Body: "content"}, archivetest.Entry{Name: "dir/x", Body: "content"})
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pwd, _ := r.BasicAuth(); user != "me" || pwd != "geheim" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		n := requests.Add(1)
		w.Write(content[:700])
		w.(http.Flusher).Flush()
		if hold != nil {
			hold(n)
		}
		w.Write(content[700:])
	}))
	t.Cleanup(s.Close)
	return api.ProcessURI{Value: s.URL + "/a.tar", User: "me", Password: "geheim"}, requests
}

func patient(r *Runtime) *Runtime {
	r.opt.Patience = 20 * time.Second
	return r
}

// upWith makes the task, starts it and looks at its content.
func upWith(t testing.TB, r *Runtime, task *executor.Task) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := r.Prepare(ctx, task, func(string) {}); err != nil {
		t.Fatal(err)
	}
	createAndStart(ctx, t, r, task)
}

func createAndStart(ctx context.Context, t testing.TB, r *Runtime, task *executor.Task) {
	t.Helper()
	if err := r.Create(ctx, task); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(ctx, task.ID); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"conf", "dir/x"} {
		if b, err := os.ReadFile(filepath.Join(task.Spec.Process.WorkPath, name)); err != nil || string(b) != "content" {
			t.Errorf("%q %v", b, err)
		}
	}
}

// TestFaultDaemonKilledAtAnyPointOfPrepare: a task whose archive needs a password comes up all
// the same, wherever its daemon is killed between the download and the start: before and after
// each record, before the user is looked up, when all is downloaded, kept, unpacked, merged and
// published, before and after the start command is run in the directories that are made for it.
func TestFaultDaemonKilledAtAnyPointOfPrepare(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"fetch/downloaded", "fetch/kept",
		"processdaemon/save/preparing", "processdaemon/saved/preparing", "processdaemon/prepare",
		"fetch/unpacked", "fetch/merge", "fetch/merged",
		"processdaemon/save/ready", "processdaemon/saved/ready",
		"processdaemon/save/starting", "processdaemon/saved/starting", "processdaemon/spawned", "processdaemon/recorded",
	} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			m := newMortal(t, point+"=kill")
			r := patient(m.runtime("group"))
			task := m.task(r, "a", "sleep 60")
			uri, requests := guarded(t, nil)
			task.Spec.Process.URIs = []api.ProcessURI{uri}
			if strings.Contains(point, "merge") {
				if err := os.MkdirAll(filepath.Join(task.Spec.Process.WorkPath, "dir"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			upWith(t, r, task)
			m.diedOnce()
			// What was in the cache is not asked for again.
			if n, known := requests.Load(), point != "fetch/downloaded" && point != "fetch/kept"; n > 2 || known && n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestFaultDaemonKilledWhileItUnpacks: the next one removes what there is and unpacks anew.
func TestFaultDaemonKilledWhileItUnpacks(t *testing.T) {
	t.Parallel()
	m := newMortal(t, "")
	r := patient(m.runtime("group"))
	task := m.task(r, "a", "sleep 60")
	work := task.Spec.Process.WorkPath
	entries := []archivetest.Entry{{Name: "conf", Body: "content"}, {Name: "dir/x", Body: "content"}}
	const files = 400
	for i := range files {
		entries = append(entries, archivetest.Entry{Name: fmt.Sprintf("many/%d", i), Body: "x"})
	}
	archive := filepath.Join(m.dir, "a.tar")
	if err := os.WriteFile(archive, archivetest.Tar(t, entries...), 0o644); err != nil {
		t.Fatal(err)
	}
	task.Spec.Process.URIs = []api.ProcessURI{{Value: archive}}
	beside := filepath.Join(filepath.Dir(work), ".tandem-*")
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			if first, err := filepath.Glob(filepath.Join(beside, "many", "1")); err == nil && len(first) > 0 {
				break
			}
		}
		m.kill()
	}()
	upWith(t, r, task)
	<-killed
	if got, err := os.ReadDir(filepath.Join(work, "many")); err != nil || len(got) != files {
		t.Errorf("%d files of %d: %v", len(got), files, err)
	}
	m.diedOnce()
	if left, err := filepath.Glob(beside); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// killedAtRequest makes a task whose archive comes from a server with basic auth, in the
// middle of whose answer number n the daemon is killed.
func (m *mortal) killedAtRequest(t *testing.T, r *Runtime, n int32) (task *executor.Task, requests *atomic.Int32) {
	t.Helper()
	task = m.task(r, "a", "sleep 60")
	uri, requests := guarded(t, func(got int32) {
		if got == n {
			m.kill()
		}
	})
	task.Spec.Process.URIs = []api.ProcessURI{uri}
	return task, requests
}

// TestFaultDaemonKilledDuringADownload: in the middle of the answer of a server with basic auth.
func TestFaultDaemonKilledDuringADownload(t *testing.T) {
	t.Parallel()
	m := newMortal(t, "")
	r := patient(m.runtime("group"))
	task, requests := m.killedAtRequest(t, r, 1)
	upWith(t, r, task)
	if m.deaths.Load() != 1 || requests.Load() != 2 {
		t.Errorf("died %d times, %d requests", m.deaths.Load(), requests.Load())
	}
}

// TestFaultDaemonKilledWithoutTheContent: the cache has lost what was fetched, and the daemon is
// killed while it fetches it again for the task: the executor makes the task anew.
func TestFaultDaemonKilledWithoutTheContent(t *testing.T) {
	t.Parallel()
	m := newMortal(t, "")
	r := patient(m.runtime("group"))
	task, requests := m.killedAtRequest(t, r, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if err := r.Prepare(ctx, task, func(string) {}); err != nil {
		t.Fatal(err)
	}
	blobs, err := filepath.Glob(filepath.Join(m.dir, "data/processd/cache/blobs/*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("%v %v", blobs, err)
	}
	if err := os.Remove(blobs[0]); err != nil {
		t.Fatal(err)
	}
	createAndStart(ctx, t, r, task)
	if m.deaths.Load() != 1 || requests.Load() != 3 {
		t.Errorf("died %d times, %d requests", m.deaths.Load(), requests.Load())
	}
}

// TestPatienceBeginsWhenTheDaemonGoes: not when a fetch began that took longer.
func TestPatienceBeginsWhenTheDaemonGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Runtime{opt: Options{Patience: 200 * time.Millisecond}}
		calls := 0
		err := r.patiently(t.Context(), func() error {
			if calls++; calls == 1 {
				time.Sleep(1100 * time.Millisecond) // what a fetch takes
				return client.ErrUnavailable
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if err := r.patiently(t.Context(), func() error { return client.ErrUnavailable }); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// TestProgressOfACreation: what the daemon does for a task reaches whoever waits for it.
func TestProgressOfACreation(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", "true")
	told := make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	t.Cleanup(tell)
	uri, _ := guarded(t, func(int32) { <-told })
	task.Spec.Process.URIs = []api.ProcessURI{uri}
	task.Progress = func(text string) {
		if strings.HasPrefix(text, "fetching "+uri.Value+": ") {
			tell()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// Nothing is in the cache, so the daemon fetches it now.
	if err := r.Create(ctx, task); err != nil {
		t.Fatal(err)
	}
}
