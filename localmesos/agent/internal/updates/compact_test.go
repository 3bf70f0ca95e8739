package updates

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// TestCompact forgets tasks, one of whose ids comes again, and looks what a reader
// of the smaller log finds.
func TestCompact(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.log")
	f := newFixture()
	f.m.Resume()
	end := func(id string, n byte) {
		t.Helper()
		if err := f.m.Add(update(id, n, mesos.TASK_FINISHED), path); err != nil {
			t.Fatal(err)
		}
		if _, last, ok, err := f.m.Ack(Key{"f", id}, bytes.Repeat([]byte{n}, 16)); !last || !ok || err != nil {
			t.Fatal(last, ok, err)
		}
	}
	for i := range 100 {
		id := fmt.Sprintf("old-%d", i)
		takeTask(t, f.m, id, path)
		end(id, byte(i))
		if err := f.m.Forget(id, path); err != nil {
			t.Fatal(err)
		}
	}
	takeTask(t, f.m, "old-7", path) // its id again
	takeTask(t, f.m, "ended", path)
	end("ended", 1)
	takeTask(t, f.m, "live", path)
	if err := f.m.Add(update("live", 2, mesos.TASK_RUNNING), path); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	if err := f.m.Compact(path); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(path)
	if after.Size() > before.Size()/10 {
		t.Errorf("%d of %d bytes are left", after.Size(), before.Size())
	}
	// It goes on in the new file.
	if err := f.m.Add(update("live", 3, mesos.TASK_FINISHED), path); err != nil {
		t.Fatal(err)
	}
	g := newFixture()
	tasks, err := g.m.Recover("f", path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tasks {
		got = append(got, fmt.Sprintf("%s %d %v", r.Info.TaskID.Value, len(r.Statuses), r.Ended))
	}
	want(t, "recovered", got, "old-7 0 false", "ended 1 true", "live 2 false")
	g.m.Resume()
	want(t, "what waits", g.take(), "live2@0s")
}

// TestAnIDComesAgain uses the id of a task that has ended, and is not forgotten, again.
func TestAnIDComesAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.log")
	f := newFixture()
	f.m.Resume()
	takeTask(t, f.m, "t", path)
	_ = f.m.Add(update("t", 1, mesos.TASK_FINISHED), path)
	_, _, _, _ = f.m.Ack(key, bytes.Repeat([]byte{1}, 16))
	takeTask(t, f.m, "t", path)
	_ = f.m.Add(update("t", 2, mesos.TASK_RUNNING), path)
	g, r := recovered(t, path)
	if len(r.Statuses) != 1 || r.Ended {
		t.Errorf("%+v", r)
	}
	want(t, "of the second", g.take(), "t2@0s")
}

// TestALostAcknowledgement has one in the log whose predecessor is lost: updates are
// acknowledged in order, so both were.
func TestALostAcknowledgement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.log")
	f := newFixture()
	f.m.Resume()
	takeTask(t, f.m, "t", path)
	for i := range byte(3) {
		_ = f.m.Add(update("t", i+1, mesos.TASK_RUNNING), path)
	}
	if err := f.m.appendRecord(path, record{Task: "t", Ack: bytes.Repeat([]byte{2}, 16)}); err != nil {
		t.Fatal(err)
	}
	g, _ := recovered(t, path)
	want(t, "the last", g.take(), "t3@0s")
}
