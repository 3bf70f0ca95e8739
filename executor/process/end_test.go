package process

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// hangs has the daemon take requests that begin like one of these and not answer them.
func (h *host) hangs(methods ...string) (back func()) {
	free := make(chan struct{})
	h.plays(func(_ http.ResponseWriter, r *http.Request) bool {
		hangs := len(methods) == 0
		for _, m := range methods {
			hangs = hangs || m == r.Method
		}
		if hangs {
			select {
			case <-r.Context().Done():
			case <-free:
			}
		}
		return hangs
	})
	return func() { h.plays(nil); close(free) }
}

func (h *host) certain(r *Runtime, id, when string, want bool) {
	h.t.Helper()
	if patience, got := r.Ended(id); got != want || got && patience <= 0 {
		h.t.Errorf("%s: certain %t for %s", when, got, patience)
	}
}

// TestAnEndIsCertainOnceNothingRuns: the executor may tell the end of what never ran and of what it has seen
// end, whatever the daemon says; and never that of what runs or may be started.
func TestAnEndIsCertainOnceNothingRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	task := h.task(r, "a", family)
	h.certain(r, "a", "not made", true)
	if err := r.Create(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	h.certain(r, "a", "not started", true)

	// A start whose answer is lost: it may be done at any moment.
	back := h.hangs(http.MethodPost)
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	go func() {
		defer close(started)
		if _, err := r.Start(ctx, "a"); err == nil {
			t.Error("a start that nobody answered")
		}
	}()
	eventually(t, "the start", func() bool { return h.count("POST /v1/tasks/a/start") > 0 })
	h.certain(r, "a", "asked to start", false)
	cancel()
	<-started
	h.certain(r, "a", "a start without an answer", false)
	back()

	st, err := r.Start(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	child := childOf(t, task)
	h.certain(r, "a", "running", false)
	back = h.hangs()
	w := waitFor(t, r, "a")
	if err := r.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	h.certain(r, "a", "ended without the daemon", true)
	if alive(st.Pid) || alive(child) {
		t.Error("it runs")
	}
	if <-w.done; w.err != nil || w.exit.Known {
		t.Errorf("the end that the daemon has not seen: %+v %v", w.exit, w.err)
	}
	// A removal that the daemon does not answer is no removal.
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Remove(limited, "a"); err == nil {
		t.Error("removed, by a daemon that hangs")
	}
	back()
	eventually(t, "the removal", func() bool { return r.Remove(t.Context(), "a") == nil })
	if ids, err := r.List(t.Context()); err != nil || len(ids) > 0 {
		t.Errorf("%v %v", ids, err)
	}
}

// TestARestartInDoubtIsNoCertainEnd: a daemon that was asked for a restart may start the task
// when it goes on, although nothing of it runs now.
func TestARestartInDoubtIsNoCertainEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.runtime("group")
	launch(t, r, h.task(r, "a", "sleep 600"))
	back := h.hangs(http.MethodPost)
	ctx, cancel := context.WithCancel(t.Context())
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		if _, err := r.Restart(ctx, "a", 0); err == nil {
			t.Error("a restart that nobody answered")
		}
	}()
	eventually(t, "the restart", func() bool { return h.count("POST /v1/tasks/a/restart") > 0 })
	if err := r.Stop(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	h.certain(r, "a", "a restart in doubt", false)
	cancel()
	<-restarted
	back()
	// The daemon's word settles it; a stop does without that when it comes late.
	eventually(t, "the daemon's word", func() bool {
		if err := r.Stop(t.Context(), "a", 0); err != nil {
			t.Fatal(err)
		}
		_, certain := r.Ended("a")
		return certain
	})
}
