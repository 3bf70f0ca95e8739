package processdaemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// stalled is a server that takes requests and never answers.
func stalled(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() { close(over); srv.Close() })
	return srv.URL + "/a.tar.gz"
}

// TestPrepareTimeout: what is not fetched in time ends the task, and says so.
func TestPrepareTimeout(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.PrepareTimeout = 100 * time.Millisecond })
	s := spec(d, "a", "true")
	s.URIs = []protocol.URI{{Value: stalled(t)}}
	st := create(t, d, s)
	if st.State != ended || !strings.Contains(st.Failure, "not fetched and unpacked within 100ms") {
		t.Errorf("%+v", st)
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// TestStopInEveryState stops tasks in each state that lasts, by a kill and with a
// grace: each ends, and nothing is left.
func TestStopInEveryState(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	slow := stalled(t)
	deaf := `trap "" TERM; : > up; while :; do sleep 0.05; done`
	specs := map[protocol.State]func(id string) protocol.Spec{
		preparing: func(id string) protocol.Spec {
			s := spec(d, id, "true")
			s.URIs = []protocol.URI{{Value: slow}}
			return s
		},
		ready:    func(id string) protocol.Spec { return spec(d, id, "true") },
		starting: func(id string) protocol.Spec { s := spec(d, id, "exec sleep 60"); s.PidFile = "app.pid"; return s },
		settling: func(id string) protocol.Spec {
			s := spec(d, id, `sh -c 'exec sleep 60' & exit 0`) // and no pid file
			s.PidFile, s.StartGrace = "app.pid", time.Hour
			return s
		},
		running:     func(id string) protocol.Spec { return spec(d, id, "sleep 60") },
		stopping:    func(id string) protocol.Spec { s := spec(d, id, deaf); s.StopCmd = "sleep 60"; return s },
		terminating: func(id string) protocol.Spec { return spec(d, id, deaf) },
		draining:    func(id string) protocol.Spec { return spec(d, id, `sh -c '`+deaf+`' & exec sleep 60`) },
		ended:       func(id string) protocol.Spec { return spec(d, id, "true") },
	}
	for _, state := range states {
		if specs[state] == nil {
			if state != killing && state != deleted {
				t.Errorf("no task for state %s", state)
			}
			continue
		}
		for _, grace := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(state, grace), func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprint(state, "-", grace)
				s := specs[state](id)
				if _, err := d.Create(s); err != nil {
					t.Fatal(err)
				}
				if state != preparing {
					await(t, d, id, func(st protocol.Status) bool { return st.State == ready })
				}
				if state != preparing && state != ready {
					if _, err := d.Start(id); err != nil {
						t.Fatal(err)
					}
				}
				if state == stopping || state == terminating || state == draining {
					awaitState(t, d, id, running)
					eventually(t, "it is deaf", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
					if _, err := d.Stop(id, time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				await(t, d, id, func(st protocol.Status) bool { return st.State == state })
				for range 2 {
					if _, err := d.Stop(id, grace); err != nil {
						t.Fatal(err)
					}
				}
				awaitState(t, d, id, ended)
				if left := processesIn(s.WorkPath); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}
