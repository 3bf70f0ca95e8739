package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/procid/pidwrap"
)

// TestFaultReusedPidIsNotAnotherOnesEnd: the number of a process that its own parent
// collected is given to a child of the keeper, first to one that nobody asked about, then to
// one with a key. Nobody's end is taken for another's, and none is lost.
func TestFaultReusedPidIsNotAnotherOnesEnd(t *testing.T) {
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	// A thread of the test or of the keeper may be given the number and keep it for good:
	// then all begins anew with another one.
	for range 10 {
		if reusesNumber(t) {
			return
		}
	}
	t.Fatal("a thread was given each number")
}

// heldByThread tells whether a thread that leads no process has a number.
func heldByThread(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(b), fmt.Sprintf("\nTgid:\t%d\n", pid))
}

// reusesNumber is the test with one number, false if a thread got it.
func reusesNumber(t *testing.T) bool {
	t.Helper()
	r := newRoom(t, "")
	// "parent" collects "child" itself, and makes orphans, which become the keeper's.
	const script = `
cd %s
sh -c 'until [ -e end-child ]; do sleep 0.01; done' & echo $! > child.tmp; mv child.tmp child
wait $!; : > collected
while read command; do eval "$command"; done < commands`
	if err := mkfifo(filepath.Join(r.dir, "commands")); err != nil {
		t.Fatal(err)
	}
	parent := r.spawn("0.1", fmt.Sprintf(script, r.dir))
	file := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(r.dir, name))
		return strings.TrimSpace(string(b))
	}
	eventually(t, "the child", func() bool { return file("child") != "" })
	child, err := procid.Of(atoi(t, file("child")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.c.Claim(t.Context(), "0.child", child); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(r.dir, "end-child"))
	eventually(t, "the child is collected by its parent", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "collected"))
		return err == nil
	})
	if heldByThread(child.Pid) {
		return false
	}
	pidwrap.Gone(t, child)
	// Start times have ticks of 10 ms, which a true reuse never stays within.
	eventually(t, "another tick", func() bool {
		var now unix.Timespec
		return unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) == nil && uint64(now.Nano()/1e7) > child.StartTime
	})
	commands, err := os.OpenFile(filepath.Join(r.dir, "commands"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	// An orphan with its number ends with 42, by a parent that is gone before.
	for i := 0; ; i++ {
		if heldByThread(child.Pid) {
			return false
		}
		if i == 200 {
			t.Fatal("no orphan was given the number")
		}
		said := fmt.Sprintf("said-%d", i)
		const orphan = `(echo %d > /proc/sys/kernel/ns_last_pid; sh -c 'echo $$ > %s.tmp; mv %s.tmp %s; exit 42' &)`
		if _, err := fmt.Fprintf(commands, orphan+"\n", child.Pid-1, said, said, said); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the orphan", func() bool { return file(said) != "" })
		if atoi(t, file(said)) == child.Pid {
			break
		}
	}
	if heldByThread(child.Pid) {
		return false
	}
	pidwrap.Gone(t, child)
	if e, err := r.c.Look(t.Context(), "0.child"); err != nil || !e.Ended || e.Known {
		t.Errorf("nobody told the keeper how it ended: %+v %v", e, err)
	}
	orphan, err := r.c.Stray(t.Context(), child.Pid, child.StartTime+1)
	if err != nil || orphan.Code != 42 {
		t.Errorf("the orphan: %+v %v", orphan, err)
	}
	// Now one of the keeper's own with a key, and the older key is forgotten while it runs.
	var own Entry
	for i := 0; own.ID.Pid != child.Pid || own.ID.StartTime == orphan.ID.StartTime; i++ {
		if heldByThread(child.Pid) {
			return false
		}
		if i == 2000 {
			t.Fatal("no process was given the number")
		}
		if err := pidwrap.Choose(child.Pid); err != nil {
			t.Fatal(err)
		}
		if endProcess(own.ID); own.Key != "" {
			r.ended(own)
			// Until there is another tick, as above.
			time.Sleep(time.Millisecond)
		}
		own = r.spawn(fmt.Sprintf("1.%d", i), fmt.Sprintf("until [ -e %s/end-own ]; do sleep 0.01; done; exit 5", r.dir))
	}
	if err := r.c.Forget(t.Context(), "0.child"); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(r.dir, "end-own"))
	if e := r.ended(own); !e.Ended || !e.Known || e.Code != 5 {
		t.Errorf("the one that has the number now: %+v", e)
	}
	endProcess(parent.ID)
	return true
}
