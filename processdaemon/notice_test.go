package processdaemon

import (
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestExitIsNoticedAtOnce: the end of a process is told by its pidfd and not found by
// looking; the usual time is a millisecond or two, with the record of it. On a busy machine it is more, as it is
// for a parent that does nothing but wait.
func TestExitIsNoticedAtOnce(t *testing.T) { //nolint:paralleltest // what others do would be measured, too
	d := newDaemon(t)
	const n = 15
	var took, floor []time.Duration
	for i := range n {
		own := exec.Command("sleep", "60")
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		_ = own.Process.Kill()
		_ = own.Wait() // killed, so it fails
		floor = append(floor, time.Since(killed))
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
	slices.Sort(floor)
	t.Logf("noticed after %v (median of %d), at most %v; a parent needs %v", took[n/2], n, took[n-1], floor[n/2])
	// Looking each second would show. On its way the news wakes the keeper and the daemon several times.
	limit := 100*time.Millisecond + 20*floor[n/2]
	if took[n/4] > limit {
		t.Errorf("a quarter took more than %v: %v", limit, took)
	}
}
