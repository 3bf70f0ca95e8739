package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/testkit"
)

var voluntary = regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s*(\d+)`)

// wakeups is how often the threads of a process have gone to sleep so far, and so how
// often something woke them.
func wakeups(t *testing.T, pid int) (sum int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // a thread may end
		if m := voluntary.FindSubmatch(b); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			sum += n
		}
	}
	return sum
}

// TestIdleProcessesAreNotLookedAt: neither the daemon nor the keeper wakes up more often
// for processes that do nothing than for none.
func TestIdleProcessesAreNotLookedAt(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	cmd, c := startProgram(t, dir, binary, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"), "--kill-on-exit", "--kill-grace", "1ms")
	info, err := c.Info(t.Context())
	if err != nil || info.Keeper == nil {
		t.Fatalf("%+v %v", info, err)
	}
	const window = 500 * time.Millisecond
	measure := func() (daemon, keeper int) {
		d, k := wakeups(t, cmd.Process.Pid), wakeups(t, info.Keeper.Pid)
		time.Sleep(window) // the measurement itself
		return wakeups(t, cmd.Process.Pid) - d, wakeups(t, info.Keeper.Pid) - k
	}
	var base int
	for range 3 {
		n, _ := measure()
		base = max(base, n)
	}
	const processes = 60
	for i := range processes {
		startTask(t, c, dir, strconv.Itoa(i), "sleep 600")
	}
	var daemon, keeper int
	// After their start the files of output are looked at for two seconds. One look a
	// second at each process would be half as many wake-ups as there are processes.
	for end := time.Now().Add(30 * time.Second); ; {
		daemon, keeper = measure()
		if daemon < base+processes/4 && keeper < processes/4 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("in %v the daemon wakes up %d times (%d without processes), the keeper %d times", window, daemon, base, keeper)
			break
		}
	}
	t.Logf("in %v: daemon %d (without processes up to %d), keeper %d", window, daemon, base, keeper)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if strings.Contains(logOf(dir), "level=ERROR") {
		t.Error(logOf(dir))
	}
}
