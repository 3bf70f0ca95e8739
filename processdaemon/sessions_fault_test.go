package processdaemon

import (
	"syscall"
	"testing"

	"tandem/internal/procid/pidwrap"
	"tandem/processdaemon/protocol"
)

// TestFaultWithoutGroups: where there are no control groups, which Info says, a task has
// its numbers, its commands find it, and it ends with all that stayed in its session.
func TestFaultWithoutGroups(t *testing.T) {
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	unmountGroups(t, true)
	d := newDaemon(t)
	s := spec(d, "a", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 60 & wait")
	s.Limits.MemMB = 64
	run(t, d, s)
	if st := awaitState(t, d, "a", running); len(st.Notes) == 0 {
		t.Error("that the memory limit is not enforced is not told")
	}
	eventually(t, "two processes that use something", func() bool {
		st, err := d.Stats("a")
		return err == nil && st.Processes == 2 && st.CPUSeconds > 0 && st.MemoryBytes > 0
	})
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	if st := awaitState(t, d, "a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: int(syscall.SIGKILL)}) {
		t.Errorf("%+v", st.Exit)
	}
	if left := processesIn(s.WorkPath); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
