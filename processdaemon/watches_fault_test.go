package processdaemon

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFaultSharedWatch: tasks whose logPath is in the same directory share what the kernel has
// of watches for it, and each is looked after when something comes there, also when another
// one has gone meanwhile. So is every one after a queue that ran over.
func TestFaultSharedWatch(t *testing.T) {
	t.Parallel()
	const limit = 4 << 10
	dir := t.TempDir()
	r := newRotator(limit, 2, logTo(t))
	if r.in == nil {
		t.Skip("no inotify")
	}
	defer r.in.Close()
	resting := func() bool {
		for range 2 * quietTicks {
			if n, _ := r.lookAll(); n == 0 {
				return true
			}
		}
		return false
	}
	active := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.active)
	}
	var sandboxes []string
	for i := range 3 {
		sandboxes = append(sandboxes, filepath.Join(dir, "sandbox", strconv.Itoa(i)))
		r.addPlace(sandboxes[i], filepath.Join(dir, "logs", strconv.Itoa(i), "*.log"), &account{})
	}
	if !resting() {
		t.Fatalf("%d places are not left to their watches", active())
	}
	if len(r.byWD) != 1 {
		t.Fatalf("the places have %d watches; they were to share one", len(r.byWD))
	}
	r.drop(sandboxes[0])
	// What is missing of all of them is made.
	take := func() {
		t.Helper()
		buf := make([]byte, 4096)
		n, err := r.in.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		r.takeEvents(buf[:n])
	}
	for i := range 3 {
		if err := os.MkdirAll(filepath.Join(dir, "logs", strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	take()
	if n := active(); n != 2 {
		t.Errorf("%d places are looked after again, of two", n)
	}
	for i := 1; i < 3; i++ {
		write(t, filepath.Join(dir, "logs", strconv.Itoa(i), "a.log"), strings.Repeat("x", 4*limit), 0o644)
	}
	r.lookAll()
	for i := 1; i < 3; i++ {
		if size := sizeOf(filepath.Join(dir, "logs", strconv.Itoa(i), "a.log")); size > limit {
			t.Errorf("the log of task %d has %d bytes", i, size)
		}
	}
	if !resting() {
		t.Fatalf("%d places are not left to their watches", active())
	}
	overflow := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(overflow, ^uint32(0))
	binary.NativeEndian.PutUint32(overflow[4:], unix.IN_Q_OVERFLOW)
	r.takeEvents(overflow)
	if n := active(); n != 2 {
		t.Errorf("after an overflow %d places are looked after, of two", n)
	}
}
