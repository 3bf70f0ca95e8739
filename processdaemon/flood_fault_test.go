package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// allocated is what the files of a directory take on the disk, in bytes.
func allocated(t *testing.T, dir string) (sum int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if st, err := e.Info(); err == nil { // a piece may just have gone
			sum += st.Size()
		}
	}
	return sum
}

// private reads the private memory of a process in bytes (proc_pid_smaps(5)).
func private(t *testing.T, pid int) (sum int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += kb << 10
		}
	}
	return sum
}

// TestFaultFloodOfOutput: a process writes a gigabyte in great bursts. It comes to its
// end, the disk holds a small part of it at any time, and the daemon's memory stays as it was.
func TestFaultFloodOfOutput(t *testing.T) {
	t.Parallel()
	const limit, keep = 8 << 20, 2
	const rounds, bursts, burst = 4, 8, 32 << 20
	const held, written = (2*keep + 1) * limit, rounds * bursts * burst
	p := newProc(t)
	p.env = []string{fmt.Sprintf("%s=%d", logSizeEnv, limit)}
	p.start("")
	s := p.spec("a", `for round in 0 1 2 3; do
	until [ -e go-$round ]; do sleep 0.02; done
	for burst in 0 1 2 3 4 5 6 7; do dd if=/dev/zero bs=1M count=32 2>/dev/null; sleep 0.03; done
	: > wrote-$round
done; echo end; until [ -e stop ]; do sleep 0.05; done; exit 5`)
	p.createAndStart(s)
	before := private(t, p.cmd.Process.Pid)
	began := time.Now()
	var most, memory int64
	until := func(what string, ok func() bool) {
		eventually(t, what, func() bool {
			most = max(most, allocated(t, s.Sandbox))
			memory = max(memory, private(t, p.cmd.Process.Pid))
			return ok()
		})
	}
	for round := range rounds {
		// A loaded machine may hold the daemon up while the process writes: not for longer than a round.
		write(t, filepath.Join(s.WorkPath, fmt.Sprint("go-", round)), "", 0o644)
		until("a round was written", func() bool { return exists(filepath.Join(s.WorkPath, fmt.Sprint("wrote-", round))) })
		until("it is cut", func() bool { return allocated(t, s.Sandbox) <= held })
	}
	until("all was written", func() bool {
		text, err := p.c.Tail(t.Context(), "a", 10)
		return err == nil && strings.HasSuffix(text, "end")
	})
	t.Logf("%d MB in %v: at most %d MB on the disk; memory of the daemon %d KB, before %d KB", written>>20,
		time.Since(began).Round(time.Millisecond), most>>20, memory>>10, before>>10)
	if most > written/2 {
		t.Errorf("%d MB were on the disk", most>>20)
	}
	if memory > before+(64<<20) {
		t.Errorf("the daemon's memory rose from %d to %d KB", before>>10, memory>>10)
	}
	write(t, filepath.Join(s.WorkPath, "stop"), "", 0o644)
	if st := p.await("a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 5}) {
		t.Errorf("%+v", st.Exit)
	}
}
