package processdaemon

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/processdaemon/protocol"
)

// TestFaultClockJumps: the time of day goes a year back or forth each time that it is
// asked for. Graces and deadlines are what they would be, and no end comes before its beginning.
func TestFaultClockJumps(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, jumps := range map[string][]time.Duration{"back": {-year}, "forth": {year}, "both": {year, -year, -year, year}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t)
			var mu sync.Mutex
			at, asked := time.Now(), 0
			d.clock = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				at = at.Add(jumps[asked%len(jumps)])
				asked++
				return at
			}
			background := pidFileSpec(t, d, "background", `exec sleep 60`)
			background.StartGrace = 300 * time.Millisecond
			run(t, d, background)
			awaitState(t, d, "background", running)
			none := spec(d, "none", "true") // writes no pid file
			none.PidFile, none.StartGrace = "app.pid", 1300*time.Millisecond
			began := time.Now()
			run(t, d, none)
			if st := awaitState(t, d, "none", ended); !strings.Contains(st.Failure, "there is no such file") || time.Since(began) < none.StartGrace {
				t.Errorf("%q after %v, the grace is %v", st.Failure, time.Since(began), none.StartGrace)
			}
			hangs := spec(d, "hangs", "sleep 60")
			hangs.PidFile, hangs.StartTimeout = "app.pid", 300*time.Millisecond
			began = time.Now()
			run(t, d, hangs)
			if st := awaitState(t, d, "hangs", ended); !strings.Contains(st.Failure, "did not end within 300ms") || time.Since(began) < 300*time.Millisecond {
				t.Errorf("%q after %v", st.Failure, time.Since(began))
			}
			s := spec(d, "deaf", deaf)
			run(t, d, s)
			eventually(t, "it is deaf", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
			began = time.Now()
			const grace = 300 * time.Millisecond
			if _, err := d.Stop("deaf", grace); err != nil {
				t.Fatal(err)
			}
			st := awaitState(t, d, "deaf", ended)
			if st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) || time.Since(began) < grace {
				t.Errorf("%+v after %v, the grace is %v", st.Exit, time.Since(began), grace)
			}
			if st.FinishedAt.Before(st.StartedAt) {
				t.Errorf("it began at %v and ended at %v", st.StartedAt, st.FinishedAt)
			}
			if asked == 0 {
				t.Error("the clock was never asked")
			}
		})
	}
}

// TestFaultRecordOfAnotherClock: deadlines on disk are of the clock that counts from the
// boot, which nobody sets, so that a daemon which comes after a jump goes by them.
func TestFaultRecordOfAnotherClock(t *testing.T) {
	t.Parallel()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t)
	s := spec(d, "a", deaf)
	run(t, d, s)
	eventually(t, "it is deaf", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	if _, err := d.Stop("a", time.Hour); err != nil {
		t.Fatal(err)
	}
	r, err := readRecord(d.store.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Duration(r.KillAt - ts.Nano()); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("SIGKILL is in %v by the time since boot, want about an hour", left)
	}
}
