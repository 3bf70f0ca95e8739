package processdaemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/protocol"
)

// TestFaultMainThatLeftItsControlGroupIsKilled: root can move itself out of its group,
// and be deaf besides.
func TestFaultMainThatLeftItsControlGroupIsKilled(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: nobody else can leave a control group")
	}
	d := newDaemon(t)
	if d.tree.Mode() == cgroup.ModeSession {
		t.Skip("no control groups here: " + d.Info().Tracking)
	}
	// cgroup.procs of the hierarchy's root, whichever it is.
	leave := `for f in /sys/fs/cgroup/unified/cgroup.procs /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/freezer/cgroup.procs; do [ -e $f ] && echo $$ > $f; done; `
	for id, c := range map[string]struct {
		trap  string
		grace time.Duration
		want  protocol.Exit
	}{
		"deaf":  {`""`, 100 * time.Millisecond, protocol.Exit{Known: true, Signal: 9}},
		"hears": {`"exit 6"`, time.Hour, protocol.Exit{Known: true, Code: 6}},
	} {
		s := spec(d, id, "trap "+c.trap+" TERM; "+leave+": > up; while :; do sleep 0.05; done")
		run(t, d, s)
		st := awaitState(t, d, id, running)
		eventually(t, "it is up", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
		tk, err := d.task(id)
		if err != nil {
			t.Fatal(err)
		}
		if in, err := tk.group.Contains(st.Pid); in || err != nil {
			t.Skipf("it could not leave its group: %v %v", in, err)
		}
		if _, err := d.Stop(id, c.grace); err != nil {
			t.Fatal(err)
		}
		if st := awaitState(t, d, id, ended); st.Exit == nil || *st.Exit != c.want {
			t.Errorf("%s: %+v", id, st.Exit)
		}
	}
}

// TestDurationsBeyondMeasureAreLong: the longest that JSON can say is no deadline in the past.
func TestDurationsBeyondMeasureAreLong(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, much := range []time.Duration{math.MaxInt64, math.MaxInt64 / 3, longest} {
		id := much.String()
		s := pidFileSpec(t, d, id, `trap "sleep 0.3; exit 7" TERM; : > up; while :; do sleep 0.02; done`)
		s.StartGrace, s.StartTimeout = much, much
		run(t, d, s)
		awaitState(t, d, id, running)
		eventually(t, "its trap", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
		if _, err := d.Stop(id, much); err != nil {
			t.Fatal(err)
		}
		if st := awaitState(t, d, id, ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
			t.Errorf("%v: %+v", much, st.Exit)
		}
		// One that comes later is nearer.
		s = spec(d, "deaf-"+id, deaf)
		run(t, d, s)
		eventually(t, "it is deaf", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
		for _, grace := range []time.Duration{much, 100 * time.Millisecond} {
			if _, err := d.Stop(s.ID, grace); err != nil {
				t.Fatal(err)
			}
		}
		if st := awaitState(t, d, s.ID, ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) {
			t.Errorf("%v: %+v", much, st.Exit)
		}
	}
}

// serveRaw serves the API for clients that are none, and tells how many requests are
// under way, and how many have ended.
func serveRaw(t *testing.T, d *Daemon) (path string, requests func() (underWay, over int)) {
	t.Helper()
	path = filepath.Join(testkit.PublicDir(t), "sock")
	l, err := unixhttp.Listen(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var now, ended int
	count := func(begun, done int) { mu.Lock(); defer mu.Unlock(); now += begun - done; ended += done }
	h := d.Handler()
	s := unixhttp.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count(1, 0)
		defer count(0, 1)
		h.ServeHTTP(w, r)
	}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return path, func() (int, int) { mu.Lock(); defer mu.Unlock(); return now, ended }
}

// silent asks for something and never reads the answer.
func silent(t *testing.T, path, request string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\n\r\n", request); err != nil {
		t.Fatal(err)
	}
}

// TestReadersThatNeverReadAreLeft: neither events nor output are kept for them without end.
func TestReadersThatNeverReadAreLeft(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.patience = 100 * time.Millisecond
	path, requests := serveRaw(t, d)
	s := spec(d, "a", "head -c 20000000 /dev/zero; sleep 60")
	run(t, d, s)
	awaitState(t, d, "a", running)
	silent(t, path, "GET /v1/events")
	silent(t, path, "GET /v1/tasks/a/logs?follow=true&bytes=20000000")
	subscribers := func() int { d.feed.mu.Lock(); defer d.feed.mu.Unlock(); return len(d.feed.subs) }
	// The reader of output may have been left by now.
	eventually(t, "both are served", func() bool { now, over := requests(); return now+over == 2 && subscribers() == 1 })
	// Each of another task, as they come and go for years.
	text := strings.Repeat("x", 1000)
	for i := 0; subscribers() > 0; i++ {
		if i > 1_000_000 {
			t.Fatal("news are kept without end")
		}
		d.feed.publish(&protocol.Status{ID: strconv.Itoa(i), State: ended, Version: 1, Failure: text})
		if i%1000 == 0 {
			time.Sleep(time.Millisecond) // gives the machine to who serves
		}
	}
	eventually(t, "nobody is served", func() bool { now, over := requests(); return now == 0 && over == 2 })
}

// TestReloadThatHangsIsKilled: with what it forked, so that there can be another one; the
// process goes on.
func TestReloadThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.reloadTimeout = time.Second // in which it says its last words, on a machine that is busy, too
	s := spec(d, "a", "sleep 60")
	s.ReloadCmd = "echo asking >&2; sleep 60 & [ -e ok ] && exit 0; sleep 60"
	run(t, d, s)
	awaitState(t, d, "a", running)
	for number := 1; number <= 2; number++ {
		if _, err := d.Reload("a"); err != nil {
			t.Fatal(err)
		}
		st := await(t, d, "a", func(st protocol.Status) bool { return st.Reload.Number == number && !st.Reload.Running })
		if want := "did not end within 1s and was killed; its last words: asking"; !strings.Contains(st.Reload.Failure, want) || st.State != running {
			t.Errorf("%+v %s, want %q", st.Reload, st.State, want)
		}
	}
	eventually(t, "nothing of the command is left", func() bool { st, err := d.Stats("a"); return err == nil && st.Processes == 1 })
}

// TestRequestsThatMakeNoSense: each is answered with an Error, and none is taken for another.
func TestRequestsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	// The race detector makes a long body a slow one.
	d.maxBody, d.bodyTime = maxSpec+1<<20, 10*patience
	path, _ := serveRaw(t, d)
	c := unixhttp.Client(path)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("redirected") }
	t.Cleanup(c.CloseIdleConnections)
	create(t, d, spec(d, "a", "true"))
	big := `{"id":"b","startCmd":"` + strings.Repeat("x", int(d.maxBody)) + `"}`
	// Each < takes six bytes in a record.
	wide := `{"id":"b","sandbox":"/tmp","startCmd":"true","env":["A=` + strings.Repeat("<", maxSpec/5) + `"]}`
	longID := strings.Repeat("i", maxID+1)
	for _, x := range []struct {
		method, path, body string
		status             int
		code, want         string
	}{
		{"DELETE", "/v1/info", "", 405, "invalid", "takes GET or HEAD"},
		{"POST", "/v1/tasks/a", "{}", 405, "invalid", "takes DELETE or GET or HEAD or PUT"},
		{"GET", "/v2/info", "", 404, "invalid", "no such path"},
		{"GET", "/", "", 404, "invalid", "no such path"},
		{"PUT", "/v1/tasks/", "{}", 404, "invalid", "no such path"},
		{"PUT", "/v1/tasks//a", "{}", 404, "invalid", "no such path"},
		{"DELETE", "/v1/tasks/x/../a", "", 404, "invalid", "no such path"},
		{"GET", "/v1/tasks/none", "", 404, "not_found", "not known"},
		{"PUT", "/v1/tasks/b", "", 400, "invalid", "not the JSON"},
		{"PUT", "/v1/tasks/b", "[]", 400, "invalid", "body: field"},
		{"PUT", "/v1/tasks/b", `{"id":"c"}`, 400, "invalid", "differ"},
		{"PUT", "/v1/tasks/b", `{"id":"b","limits":{"pids":"many"}}`, 400, "invalid", "limits.pids"},
		{"PUT", "/v1/tasks/b", `{"id":"b","limits":{"cpus":-1}}`, 400, "invalid", "no sensible amounts"},
		{"PUT", "/v1/tasks/b", `{"id":"b","startGrace":"5s"}`, 400, "invalid", "startGrace: want a number of nanoseconds"},
		{"PUT", "/v1/tasks/b", big, 400, "invalid", "more than 9 MiB"},
		{"PUT", "/v1/tasks/b", wide, 400, "invalid", "at most 8 are taken"},
		{"PUT", "/v1/tasks/" + longID, `{"id":"` + longID + `","startCmd":"true","sandbox":"/tmp"}`, 400, "invalid", "at most 1024 bytes"},
		{"PUT", "/v1/tasks/%2F", `{"id":"/","startCmd":"true","sandbox":"/tmp"}`, 404, "invalid", "no such path"},
		{"PUT", "/v1/tasks/a%0Ab", `{"id":"a\nb","startCmd":"true","sandbox":"/tmp"}`, 400, "invalid", "control characters"},
		{"POST", "/v1/tasks/a/stop", `{"grace":"soon"}`, 400, "invalid", "grace"},
		{"POST", "/v1/tasks/a/signal", `{"signal":65}`, 400, "invalid", "want 1 to 64"},
		{"GET", "/v1/tasks/a?after=x", "", 400, "invalid", "version number"},
		{"GET", "/v1/tasks/a?after=0&wait=-1s", "", 400, "invalid", "duration"},
		{"GET", "/v1/tasks/a/logs?stream=etc", "", 400, "invalid", "want stdout"},
		{"GET", "/v1/tasks/a/logs?bytes=-1", "", 400, "invalid", "positive"},
		{"POST", "/v1/tasks/a/session", "{}", 400, "invalid", "connection of its own"},
	} {
		name := fmt.Sprintf("%s %.40s", x.method, x.path)
		req, err := http.NewRequestWithContext(t.Context(), x.method, "http://processd"+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var e protocol.Error
		if jsonErr := json.Unmarshal(b, &e); err != nil || jsonErr != nil || resp.StatusCode != x.status || e.Code != x.code || !strings.Contains(e.Message, x.want) || len(b) > 1000 {
			t.Errorf("%s: %s %.300s %v %v, want %d %s %q", name, resp.Status, b, err, jsonErr, x.status, x.code, x.want)
		}
	}
	if all := d.List(""); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestIDsOfAllKinds: an id is a text, and no path.
func TestIDsOfAllKinds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	for i, id := range []string{
		".", "..", "a/b", "../../etc/passwd", "//", "a//b", "%2e%2e", "a b?c=d#e", "x&y;z", "\u00fc\u4e16\u754c", strings.Repeat("/..", 100), strings.Repeat("i", maxID),
	} {
		s := spec(d, strconv.Itoa(i), "sleep 60")
		s.ID = id
		if st, err := c.Create(t.Context(), &s); err != nil || st.ID != id {
			t.Errorf("%.40q: %.40q %v", id, st.ID, err)
			continue
		}
		if st, err := c.Start(t.Context(), id, patience); err != nil || st.State != running || st.ID != id {
			t.Errorf("%.40q: %+v %v", id, st, err)
		}
		if st, err := c.Stats(t.Context(), id); err != nil || st.ID != id || st.Processes != 1 {
			t.Errorf("%.40q: %+v %v", id, st, err)
		}
		if _, err := c.Stop(t.Context(), id, 0); err != nil {
			t.Errorf("%.40q: %v", id, err)
		}
		awaitState(t, d, id, ended)
		if err := c.Delete(t.Context(), id); err != nil {
			t.Errorf("%.40q: %v", id, err)
		}
		if _, err := d.Status(id); !isCode(err, protocol.CodeNotFound) {
			t.Errorf("%.40q: %v", id, err)
		}
	}
}

// TestManyTasksAreListed: ten thousand, with one who follows them all.
func TestManyTasksAreListed(t *testing.T) {
	t.Parallel()
	d := &Daemon{tasks: map[string]*task{}}
	d.ctx, d.cancel = context.WithCancel(t.Context())
	defer d.cancel()
	const many = 10_000
	for i := range many {
		id := fmt.Sprintf("task-%05d", i)
		d.tasks[id] = &task{d: d, shown: protocol.Status{ID: id, Owner: fmt.Sprint("owner-", i%100), State: ready, Version: 1}}
	}
	if all := d.List(""); len(all) != many || all[0].ID != "task-00000" || all[many-1].ID != "task-09999" {
		t.Errorf("%d", len(all))
	}
	if some := d.List("owner-7"); len(some) != many/100 {
		t.Errorf("%d", len(some))
	}
	told, over := 0, errors.New("that was all")
	err := d.Events(t.Context(), "", func(protocol.Status) error {
		if told++; told == many {
			return over
		}
		return nil
	})
	if err != nil || told != many {
		t.Errorf("%d %v", told, err)
	}
}

// TestExecThatCannotBeWatchedEnds: when there is no file descriptor for a handle on the
// command, and nobody waits for it any more at that moment, it is killed, and others can
// be run after it.
func TestExecThatCannotBeWatchedEnds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	run(t, d, spec(d, "a", "sleep 60"))
	awaitState(t, d, "a", running)
	ctx, cancel := context.WithCancel(t.Context())
	open := d.openPid
	d.openPid = func(int) (*procid.Process, error) {
		cancel()
		time.Sleep(20 * time.Millisecond) // the command's own wait for the context is to begin
		return nil, fmt.Errorf("open process: %w", syscall.EMFILE)
	}
	over := make(chan protocol.ExecResult, 1)
	go func() {
		res, _ := d.Exec(ctx, "a", protocol.ExecRequest{Argv: []string{"sleep", "60"}}, func() {})
		over <- res
	}()
	select {
	case res := <-over:
		if res.Code != 126 || !strings.Contains(res.Output, "too many open files") {
			t.Errorf("%+v", res)
		}
	case <-time.After(patience):
		t.Fatal("it hangs, and keeps all others from being started")
	}
	d.openPid = open
	if res, err := d.Exec(t.Context(), "a", protocol.ExecRequest{Argv: []string{"true"}}, func() {}); err != nil || res.Code != 0 {
		t.Errorf("%+v %v", res, err)
	}
}
