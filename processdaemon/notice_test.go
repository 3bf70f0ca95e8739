package processdaemon

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestExitIsNoticedAtOnce: the end of a process is told by its pidfd and not found by
// looking; the usual time is a millisecond or two, with the record of it; the limit here is for busy machines.
func TestExitIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	const n = 15
	var took []time.Duration
	for i := range n {
		id := strconv.Itoa(i)
		st := run(t, d, spec(d, id, "sleep 60"))
		begin := time.Now()
		if err := syscall.Kill(st.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		st = awaitState(t, d, id, ended)
		took = append(took, st.FinishedAt.Sub(begin))
	}
	slices.Sort(took)
	t.Logf("noticed after %v (median of %d), at most %v", took[n/2], n, took[n-1])
	// Looking each second, or ten times a second, would show.
	const limit = 100 * time.Millisecond
	if took[n/4] > limit {
		t.Errorf("a quarter took more than %v: %v", limit, took)
	}
}
