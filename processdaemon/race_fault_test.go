package processdaemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// TestFaultHundredStops at once, with different graces: each is answered, the stop command runs
// once, the shortest grace holds, and each further stop finds what the first one has done.
func TestFaultHundredStops(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", deaf)
	s.StopCmd = "echo asked >> asked; exit 0"
	run(t, d, s)
	awaitState(t, d, "a", running)
	eventually(t, "it is deaf", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	graces := []time.Duration{time.Hour, time.Minute, 3 * time.Second}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			st, err := c.Stop(t.Context(), "a", graces[i%len(graces)])
			if err != nil || st.ID != "a" || st.State == running {
				t.Errorf("%+v %v", st, err)
			}
		})
	}
	wg.Wait()
	// The last one of all takes nothing back.
	if _, err := c.Stop(t.Context(), "a", time.Hour); err != nil {
		t.Error(err)
	}
	st := awaitState(t, d, "a", ended)
	if st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) {
		t.Errorf("%+v", st.Exit)
	}
	if got := read(t, filepath.Join(s.WorkPath, "asked")); got != "asked\n" {
		t.Errorf("the stop command ran: %q", got)
	}
	for range 2 {
		if again, err := c.Stop(t.Context(), "a", 0); err != nil || again.State != ended || again.Version != st.Version {
			t.Errorf("%+v %v", again, err)
		}
	}
}

// TestFaultCreateDeleteRaces: many create, start, stop and delete the same id at once, each
// as it pleases. Every answer makes sense, whoever creates gets a task that is not on
// its way out, and nothing is left in the end.
func TestFaultCreateDeleteRaces(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	s := spec(d, "a", "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	starts := 0
	for range 16 {
		wg.Go(func() {
			for range 40 {
				var st protocol.Status
				var err error
				what := []string{"create", "create", "start", "stop", "delete", "delete"}[rand.IntN(6)]
				switch what {
				case "create":
					st, err = c.Create(ctx, &s)
				case "start":
					st, err = c.Start(ctx, "a", time.Second)
				case "stop":
					st, err = c.Stop(ctx, "a", 0)
				case "delete":
					err = c.Delete(ctx, "a")
				}
				legal := err == nil || client.IsCode(err, protocol.CodeConflict) || client.IsCode(err, protocol.CodeNotFound) && what != "create" && what != "delete"
				if !legal || what == "create" && st.State == deleted {
					t.Errorf("%s: %+v %v", what, st, err)
				}
				if what == "start" && st.State == running {
					mu.Lock()
					starts++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.Logf("it was seen running %d times", starts)
	if _, err := c.Stop(ctx, "a", 0); err != nil && !client.IsCode(err, protocol.CodeNotFound) {
		t.Error(err)
	}
	eventually(t, "it can be deleted", func() bool { return c.Delete(ctx, "a") == nil })
	if left := processesIn(s.WorkPath); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if e, err := os.ReadDir(d.store.tasks()); err != nil || len(e) > 0 {
		t.Errorf("records left: %v %v", e, err)
	}
	if groups, err := d.tree.Groups(); err != nil || len(groups) > 0 {
		t.Errorf("control groups left: %v %v", groups, err)
	}
	// And it can be had anew.
	run(t, d, s)
	awaitState(t, d, "a", running)
}

// TestFaultCreateDuringDeletion waits for its end. A deletion that does not come to its end is told.
func TestFaultCreateDuringDeletion(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.deletionTime = 50 * time.Millisecond
	s := spec(d, "a", "exec sleep 60")
	create(t, d, s)
	// A directory in the place of the record cannot be removed with it.
	busy := filepath.Join(d.store.tasks(), shortHash("a")+".json")
	if err := errors.Join(os.Remove(busy), os.MkdirAll(filepath.Join(busy, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), "a"); !isCode(err, protocol.CodeInternal) {
		t.Errorf("%v", err)
	}
	if _, err := d.Create(s); !isCode(err, protocol.CodeConflict) || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(busy); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if st, err := d.Create(s); err != nil || st.State != ready {
		t.Errorf("%+v %v", st, err)
	}
}
