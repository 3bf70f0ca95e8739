package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/cgroup/cgrouptest"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// waiting is a Wait that goes on.
type waiting struct {
	t    *testing.T
	done chan struct{}
	exit executor.Exit
	err  error
}

func waitFor(t *testing.T, r *Runtime, id string) *waiting {
	w := &waiting{t: t, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	t.Cleanup(func() { cancel(); <-w.done })
	go func() {
		defer close(w.done)
		w.exit, w.err = r.Wait(ctx, id)
	}()
	return w
}

// holds tells that nothing was reported in the meantime.
func (w *waiting) holds(during string) {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("%s: an end was told that was none: %+v %v", during, w.exit, w.err)
	default:
	}
}

// killed tells that the end by SIGKILL was told, or that nobody could see it.
func (w *waiting) killed() {
	w.t.Helper()
	<-w.done
	if w.err != nil || w.exit.Known && w.exit.Signal != int(syscall.SIGKILL) {
		w.t.Errorf("%+v %v", w.exit, w.err)
	}
}

// family is a process with a child that has left its session.
const family = `setsid sleep 987 & echo $! > child; exec sleep 986`

// childOf is the pid of that child.
func childOf(t *testing.T, task *executor.Task) (pid int) {
	t.Helper()
	eventually(t, "the child", func() bool {
		b, err := os.ReadFile(filepath.Join(task.Spec.Process.WorkPath, "child"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	return pid
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

// TestFaultDaemonOfAnotherDataDir: in the daemon's place comes one with an empty data
// directory. That is no end of the task; but a stop ends all of it, though the daemon
// knows nothing of it.
func TestFaultDaemonOfAnotherDataDir(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", family)
	st := launch(t, r, task)
	child := childOf(t, task)
	w := waitFor(t, r, "a")
	h.down()
	first := h.data
	h.data = filepath.Join(h.dir, "other")
	cgrouptest.Expect(processdaemon.Trees(h.data))
	h.up()
	<-w.done
	if !client.IsCode(w.err, protocol.CodeNotFound) || !alive(st.Pid) || !alive(child) {
		t.Fatalf("%+v %v, alive %t %t", w.exit, w.err, alive(st.Pid), alive(child))
	}
	// The one with the records may come back: nothing has happened.
	h.down()
	h.data = first
	h.up()
	w = waitFor(t, r, "a")
	h.down()
	h.data = filepath.Join(h.dir, "other")
	h.up()
	<-w.done
	if err := r.Stop(t.Context(), "a", 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if alive(st.Pid) || alive(child) {
		t.Errorf("stopped, and alive: %t %t", alive(st.Pid), alive(child))
	}
	if err := r.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	// What the first daemon's directories and groups hold is its business.
	h.down()
	h.data = first
	h.up()
	// It learns of the end from the keeper, a moment after it answers.
	eventually(t, "the first daemon deletes it", func() bool { return r.c.Delete(t.Context(), "a") == nil })
}

// TestFaultDaemonIsAwayWhenTheTimeIsUp: neither a daemon that is not there nor one that
// hangs keeps a process alive for longer than its grace.
func TestFaultDaemonIsAwayWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(h *host) (back func()){
		"away": func(h *host) func() { h.down(); return h.up },
		"hangs": func(h *host) func() {
			free := make(chan struct{})
			h.plays(func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case <-r.Context().Done():
				case <-free:
				}
				return true
			})
			return func() { h.plays(nil); close(free) }
		},
		"in trouble": func(h *host) func() {
			h.plays(func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "no", http.StatusServiceUnavailable)
				return true
			})
			return func() { h.plays(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			r := h.runtime("group")
			task := h.task(r, "a", family)
			st := launch(t, r, task)
			child := childOf(t, task)
			back := gone(h)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := r.Stop(ctx, "a", 100*time.Millisecond); err != nil || alive(st.Pid) || alive(child) {
				t.Errorf("%v, alive %t %t", err, alive(st.Pid), alive(child))
			}
			back()
			if e := wait(t, r, "a"); e.Known && e.Code == 0 && e.Signal == 0 {
				t.Errorf("a success: %+v", e)
			}
		})
	}
}

// TestFaultSocketOfAnotherProgram: what answers nonsense at the socket ends no task, and
// is no daemon to whoever wants something done.
func TestFaultSocketOfAnotherProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", "sleep 600")
	st := launch(t, r, task)
	w := waitFor(t, r, "a")
	for name, text := range map[string]string{
		"html": "<html>It works!</html>", "object": "{}", "null": "null", "list": "[]", "empty": "", "number": "7", "half": `{"id":"a","state":"en`,
		"another task": `{"id":"b","state":"ended","exit":{"known":true}}`, "ended without a name": `{"state":"ended"}`,
		"a stream without an end": `{"id":"` + strings.Repeat("x", 5<<20),
	} {
		for _, status := range []int{200, 404, 418, 500, 503} {
			h.plays(func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
				return true
			})
			before := h.count("GET /v1/tasks/a")
			if _, err := r.c.Status(t.Context(), "a"); err == nil || client.IsCode(err, protocol.CodeNotFound) {
				t.Errorf("%s, %d: %v", name, status, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := r.Dirs(ctx); err == nil {
				t.Errorf("%s, %d: it has directories", name, status)
			}
			if err := r.Create(ctx, h.plain("b")); err == nil {
				t.Errorf("%s, %d: a task was made", name, status)
			}
			if _, err := r.Start(ctx, "b"); err == nil {
				t.Errorf("%s, %d: a task was started", name, status)
			}
			cancel()
			if h.count("GET /v1/tasks/a") == before {
				t.Error("nobody asked")
			}
			w.holds(name)
		}
	}
	h.plays(nil)
	// And what does not even speak HTTP.
	h.down()
	l, err := net.Listen("unix", h.socket())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n")
			conn.Close()
			heard <- struct{}{}
		}
	}()
	for range 3 {
		<-heard
	}
	w.holds("no HTTP")
	l.Close()
	h.up()
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.killed()
}

// plain is a task that needs no daemon to be described.
func (h *host) plain(id string) *executor.Task {
	return &executor.Task{ID: id, Owner: "group", Sandbox: filepath.Join(h.dir, "sandbox", id), Spec: &api.TaskSpec{
		Name: "redis", Kind: api.TaskProcess, Process: &api.ProcessTask{ProcName: "redis", StartCmd: "sleep 600", WorkPath: filepath.Join(h.dir, "work", id)},
	}}
}

// TestFaultStreamThatEndsAgainAndAgain: each connection tells what is missing, and the
// daemon is not asked more often than that is good for.
func TestFaultStreamThatEndsAgainAndAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	st := launch(t, r, h.task(r, "a", "sleep 600"))
	h.plays(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/events" {
			return false
		}
		w.WriteHeader(http.StatusOK) // and that is all
		return true
	})
	w := waitFor(t, r, "a")
	eventually(t, "some streams", func() bool { return h.count("GET /v1/events") > 5 })
	w.holds("streams that end at once")
	began, streams := time.Now(), h.count("GET /v1/events")
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.killed()
	if n := h.count("GET /v1/events") - streams; n > 3+int(time.Since(began)/longestPause)*2 {
		t.Errorf("%d streams within %s", n, time.Since(began))
	}
}

// TestFaultDaemonInTroubleForAWhile: a daemon that refuses everything changes nothing of
// what is known, and what happened meanwhile is told afterwards.
func TestFaultDaemonInTroubleForAWhile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	pids := map[string]int{}
	waits := map[string]*waiting{}
	for _, id := range []string{"a", "b", "c"} {
		pids[id] = launch(t, r, h.task(r, id, "sleep 600")).Pid
		waits[id] = waitFor(t, r, id)
	}
	eventually(t, "the stream", func() bool { return h.count("GET /v1/events") == 1 })
	var n atomic.Int64
	h.plays(func(w http.ResponseWriter, _ *http.Request) bool {
		switch n.Add(1) % 4 {
		case 0:
			http.Error(w, "gateway", http.StatusBadGateway)
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			_ = json.NewEncoder(w).Encode(protocol.Error{Code: protocol.CodeInternal, Message: "no space left on device"})
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(protocol.Error{Code: protocol.CodeUnavailable, Message: "going away"})
		default:
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(protocol.Error{Code: protocol.CodeConflict, Message: "not now"})
		}
		return true
	})
	h.hangUp()
	if err := syscall.Kill(pids["a"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	before := h.count("GET /v1/events")
	eventually(t, "some tries", func() bool { return h.count("GET /v1/events") > before+4 })
	for _, w := range waits {
		w.holds("trouble")
	}
	h.plays(nil)
	waits["a"].killed()
	waits["b"].holds("the end of another")
	if err := r.Stop(t.Context(), "b", 0); err != nil {
		t.Error(err)
	}
	waits["b"].killed()
	waits["c"].holds("the end of others")
}

// TestNewerDaemon: fields that this client does not know are passed over, and a state that
// it does not know is neither a start nor an end.
func TestNewerDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	var mu sync.Mutex
	invented := map[string]bool{}
	h.plays(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasPrefix(q.URL.Path, "/v1/tasks/a") {
			return false
		}
		// The first answer to whatever is asked to be done is of a state in between.
		what := q.Method + q.URL.Path
		rec := httptest.NewRecorder()
		h.pass(rec, q)
		var body map[string]any
		if json.Unmarshal(rec.Body.Bytes(), &body) == nil && body["state"] != nil {
			body["colour"], body["exits"] = "green", []any{1, map[string]any{"a": nil}}
			mu.Lock()
			defer mu.Unlock()
			if q.Method != http.MethodGet && !invented[what] {
				invented[what] = true
				body["state"] = "simmering"
				delete(body, "pid")
			}
		}
		w.WriteHeader(rec.Code)
		_ = json.NewEncoder(w).Encode(body)
		return true
	})
	st := launch(t, r, h.task(r, "a", "sleep 600"))
	if st.Pid == 0 || len(invented) < 2 {
		t.Errorf("%+v after %v", st, invented)
	}
	w := waitFor(t, r, "a")
	eventually(t, "the stream", func() bool { return h.count("GET /v1/events") == 1 })
	w.holds("an unknown state")
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.killed()
}

// TestTwoExecutorsOneDaemon: each hears of its own tasks alone, and the end of one
// executor's stream is none of the other's.
func TestTwoExecutorsOneDaemon(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	one, two := h.runtime("one"), h.runtime("two")
	mine, yours := h.task(one, "a", "exit 3"), h.task(two, "b", "sleep 600")
	mine.Owner, yours.Owner = "one", "two"
	st := launch(t, two, yours)
	w := waitFor(t, two, "b")
	launch(t, one, mine)
	if e := wait(t, one, "a"); !e.Known || e.Code != 3 {
		t.Errorf("%+v", e)
	}
	for _, r := range []*Runtime{one, two} {
		if ids, err := r.List(t.Context()); err != nil || len(ids) != 1 {
			t.Error(ids, err)
		}
	}
	var told []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := one.c.Events(ctx, "one", nil, func(s protocol.Status) error {
		told = append(told, s.ID)
		time.AfterFunc(300*time.Millisecond, cancel) // time for what must not come
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(told) != 1 || told[0] != "a" {
		t.Error(told, err)
	}
	one.news.close()
	w.holds("the other's end")
	if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.killed()
}
