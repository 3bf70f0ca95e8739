package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/journal"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/unpack"
)

func TestMain(m *testing.M) {
	if keeper.Asked() {
		os.Exit(keeper.Main())
	}
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
	if dir := os.Getenv(daemonEnv); dir != "" {
		os.Exit(childDaemon(dir))
	}
	testkit.SideBySide(8)
	goleak.VerifyTestMain(groups{m})
}

// groups runs the tests, and fails when the control groups of a daemon are left.
type groups struct{ m *testing.M }

func (g groups) Run() int { return cgrouptest.Run(g.m.Run) }

// host is an agent's daemon in this process, which a test can take away and bring back.
type host struct {
	t    testing.TB
	dir  string
	stop func()
	// asked counts the requests, as "GET /v1/tasks/a?after=1".
	mu    sync.Mutex
	asked map[string]int
	// trick answers in the daemon's place when it returns true; nil never does.
	trick func(w http.ResponseWriter, r *http.Request) bool
	// data is the daemon's directory.
	data string
	// pass is the daemon's own answer, hangUp ends the connections that there are.
	pass   func(w http.ResponseWriter, r *http.Request)
	hangUp func()
}

// plays sets what answers in the daemon's place.
func (h *host) plays(trick func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trick = trick
}

// count is the number of requests that begin like this.
func (h *host) count(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for what, times := range h.asked {
		if strings.HasPrefix(what, prefix) {
			n += times
		}
	}
	return n
}

func newHost(t testing.TB) *host {
	t.Helper()
	dir := testkit.ShortDir(t)
	h := &host{t: t, dir: dir, asked: map[string]int{}, data: filepath.Join(dir, "data")}
	cgrouptest.Expect(processdaemon.Trees(h.data))
	h.up()
	t.Cleanup(h.down)
	return h
}

func (h *host) socket() string { return filepath.Join(h.dir, "sock") }

func (h *host) up() {
	h.t.Helper()
	d, err := processdaemon.New(processdaemon.Options{DataDir: h.data, Log: slog.New(slog.DiscardHandler), ReapInterval: 20 * time.Millisecond})
	if err != nil {
		h.t.Fatal(err)
	}
	l, err := unixhttp.Listen(context.Background(), h.socket(), "")
	if err != nil {
		h.t.Fatal(err)
	}
	api := d.Handler()
	h.pass = api.ServeHTTP
	s := unixhttp.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked[r.Method+" "+r.URL.String()]++
		trick := h.trick
		h.mu.Unlock()
		if trick != nil && trick(w, r) {
			return
		}
		api.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(context.Background())
	s.BaseContext = func(net.Listener) context.Context { return ctx }
	var conns sync.Map
	s.ConnState = func(c net.Conn, _ http.ConnState) { conns.Store(c, nil) }
	h.hangUp = func() { conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true }) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.t.Error(err)
		}
	})
	h.stop = func() {
		cancel()
		if err := s.Shutdown(context.Background()); err != nil {
			h.t.Error(err)
		}
		wg.Wait()
		d.Close()
	}
}

func (h *host) down() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *host) runtime(owner string) *Runtime {
	h.t.Helper()
	j, err := journal.Open(filepath.Join(h.dir, "data/journal"))
	if err != nil {
		h.t.Fatal(err)
	}
	o, err := j.Own(owner)
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := New(Options{Socket: h.socket(), Journal: o, Patience: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		ids, err := r.List(context.Background())
		for _, id := range ids {
			if err := r.Stop(context.Background(), id, 0); err != nil {
				h.t.Error(err)
			}
			if err := r.Remove(context.Background(), id); err != nil {
				h.t.Error(err)
			}
		}
		if err != nil {
			h.t.Error(err)
		}
		r.Close()
		o.Close()
	})
	return r
}

func (h *host) task(r *Runtime, id, cmd string) *executor.Task {
	h.t.Helper()
	dirs, err := r.Dirs(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	return &executor.Task{
		ID: id, Owner: "group", Sandbox: filepath.Join(h.dir, "sandbox", id), Env: []string{"A=b"},
		Spec: &api.TaskSpec{Name: "redis", Kind: api.TaskProcess, Process: &api.ProcessTask{
			ProcName: "redis", StartCmd: cmd, WorkPath: filepath.Join(dirs.WorkBase, id),
		}},
	}
}

func launch(t testing.TB, r *Runtime, task *executor.Task) executor.Started {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.Prepare(ctx, task, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := r.Create(ctx, task); err != nil {
		t.Fatal(err)
	}
	st, err := r.Start(ctx, task.ID)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func wait(t testing.TB, r *Runtime, id string) executor.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := r.Wait(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestLifeOfAProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	for id, c := range map[string]struct {
		cmd  string
		code int
	}{"good": {"echo hello", 0}, "bad": {"echo $A >&2; exit 5", 5}} {
		st := launch(t, r, h.task(r, id, c.cmd))
		if st.Pid == 0 || st.At.IsZero() {
			t.Errorf("%+v", st)
		}
		if e := wait(t, r, id); !e.Known || e.Code != c.code || e.At.IsZero() {
			t.Errorf("%s: %+v", id, e)
		}
	}
	if text, err := r.Tail(t.Context(), "bad", 100); text != "b" || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if ids, err := r.List(t.Context()); len(ids) != 2 || err != nil {
		t.Error(ids, err)
	}
	for range 2 {
		if err := r.Stop(t.Context(), "good", time.Second); err != nil {
			t.Error(err)
		}
		if err := r.Remove(t.Context(), "good"); err != nil {
			t.Error(err)
		}
	}
	if ids, _ := r.List(t.Context()); len(ids) != 1 {
		t.Error(ids)
	}
	if _, err := r.Wait(t.Context(), "good"); err == nil {
		t.Error("the end of an unknown task is known")
	}
}

func TestStopAndSignal(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	launch(t, r, h.task(r, "a", "sleep 60"))
	launch(t, r, h.task(r, "b", "sleep 60"))
	c := h.task(r, "c", "sleep 60")
	c.Spec.Process.StopCmd = "exit 4"
	launch(t, r, c)
	if err := r.Stop(t.Context(), "c", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, "c"); e.Signal != int(syscall.SIGTERM) || !strings.Contains(e.StopFailure, `stopCmd "exit 4": exit code 4`) {
		t.Errorf("%+v", e)
	}
	if err := r.Stop(t.Context(), "a", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, "a"); e.Signal != int(syscall.SIGTERM) || e.StopFailure != "" {
		t.Errorf("%+v", e)
	}
	if err := r.Signal(t.Context(), "b", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, "b"); e.Signal != int(syscall.SIGUSR1) {
		t.Errorf("%+v", e)
	}
}

// TestFaultDaemonRestart: the daemon goes and comes back while a process runs
// and somebody waits for it.
func TestFaultDaemonRestart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	st := launch(t, r, h.task(r, "a", "sleep 60"))
	done := make(chan executor.Exit, 1)
	go func() { done <- wait(t, r, "a") }()
	for range 3 {
		h.down()
		time.Sleep(20 * time.Millisecond)
		h.up()
		select {
		case e := <-done:
			t.Fatalf("the restart ended the task: %+v", e)
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-done:
		// Adopted by a daemon in the same program, which is still the parent.
		if e.Signal != int(syscall.SIGKILL) && e.Known {
			t.Errorf("%+v", e)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the end was not noticed")
	}
	// A stop that finds the daemon away waits for it.
	launch(t, r, h.task(r, "b", "sleep 60"))
	h.down()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(context.Background(), "b", 5*time.Second) }()
	time.Sleep(50 * time.Millisecond)
	h.up()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestDaemonAway(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	h.down()
	defer h.up()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Dirs(ctx); err == nil || !strings.Contains(err.Error(), "is tandem-processd running?") || !strings.Contains(err.Error(), h.socket()) {
		t.Errorf("%v", err)
	}
	if _, err := r.Wait(ctx, "a"); err == nil {
		t.Error("no error")
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	gone := h.task(r, "gone", "true")
	gone.Spec.Process.URIs = []api.ProcessURI{{Value: srv.URL + "/x.tar.gz"}}
	if err := r.Prepare(t.Context(), gone, nil); err == nil || !strings.Contains(err.Error(), `process "redis": uris[0]: fetch `+srv.URL+"/x.tar.gz: the server answered 404") {
		t.Errorf("%v", err)
	}
	missing := h.task(r, "missing", "./start.sh")
	if err := r.Create(t.Context(), missing); err != nil {
		t.Fatal(err)
	}
	want := `process "redis": startCmd "./start.sh": no such file in workPath ` + missing.Spec.Process.WorkPath
	if _, err := r.Start(t.Context(), "missing"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	stranger := h.task(r, "stranger", "true")
	stranger.Spec.Process.User = "no-such-user"
	if err := r.Create(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), `user "no-such-user"`) {
		t.Errorf("%v", err)
	}
	if err := r.Create(t.Context(), &executor.Task{ID: "x", Spec: &api.TaskSpec{}}); err == nil {
		t.Error("a task without a process part")
	}
}

// TestProgressOfALongFetch: how much of how much reaches whoever waits for the task.
func TestProgressOfALongFetch(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	half, told := make([]byte, 1_000_000), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2000000")
		w.Write(half)
		w.(http.Flusher).Flush()
		<-told
		w.Write(half)
	}))
	t.Cleanup(srv.Close)
	task := h.task(r, "long", "true")
	task.Spec.Process.URIs = []api.ProcessURI{{Value: srv.URL + "/x?token=geheim"}}
	tell := sync.OnceFunc(func() { close(told) })
	err := r.Prepare(t.Context(), task, func(text string) {
		if strings.HasPrefix(text, "fetching "+srv.URL+"/x: ") && strings.HasSuffix(text, " of 2.0 MB") {
			tell()
		}
	})
	if err != nil {
		t.Error(err)
	}
	tell()
}

func TestArchiveAndFiles(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	tool := filepath.Join(h.dir, "tool.sh")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\ncat conf\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	task := h.task(r, "a", "./tool.sh")
	task.Spec.Process.URIs = []api.ProcessURI{{Value: "file://" + tool}}
	task.Spec.Files = []api.TaskFile{{Path: "conf", Content: []byte("from a configmap\n"), Mode: 0o444}}
	launch(t, r, task)
	if e := wait(t, r, "a"); !e.Known || e.Code != 0 {
		t.Errorf("%+v", e)
	}
	if text, err := r.Tail(t.Context(), "a", 100); text != "from a configmap" {
		t.Errorf("%q %v", text, err)
	}
}

// TestPrepareIsForTheTasksUser: what that user may not read, the executor does not fetch.
func TestPrepareIsForTheTasksUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	h := newHost(t)
	r := h.runtime("group")
	secret := filepath.Join(h.dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{"root": "", "nobody": "may not read it"} {
		task := h.task(r, "as-"+user, "true")
		task.Spec.Process.User, task.Spec.Process.URIs = user, []api.ProcessURI{{Value: "file://" + secret}}
		err := r.Prepare(t.Context(), task, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// TestCancelledStartLeavesNothing: the executor gives up in the middle.
func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", "sleep 60")
	task.Spec.Process.PidFile = "never.pid"
	if err := r.Create(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.Start(ctx, "a"); err == nil {
		t.Fatal("no error")
	}
	if err := r.Stop(t.Context(), "a", time.Second); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}
