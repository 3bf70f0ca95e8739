package processdaemon

import (
	"os"
	"path/filepath"
	"testing"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestFaultLateDeletionKeepsTheNextTasksFiles: the task before is deleted after the next one of
// its instance was given its files, also by a later daemon; and each file goes with the last.
func TestFaultLateDeletionKeepsTheNextTasksFiles(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(testkit.PublicDir(t), "data")
	cgrouptest.Expect(Trees(dataDir))
	first, err := New(Options{DataDir: dataDir, Log: logTo(t)})
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(first.workBase(), "instance")
	give := func(d *Daemon, id string, names ...string) {
		t.Helper()
		s := spec(d, id, "true")
		s.WorkPath = work
		create(t, d, s)
		for _, name := range names {
			if err := d.PutFiles(id, []protocol.File{{Path: name, Content: []byte(id), Mode: 0o400, Secret: true}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// want are the contents of what is there.
	want := func(when string, files map[string]string) {
		t.Helper()
		for _, name := range []string{"secret", "old"} {
			b, err := os.ReadFile(filepath.Join(work, name))
			if string(b) != files[name] || (err == nil) != (files[name] != "") {
				t.Errorf("%s: %s is %q, %v, want %q", when, name, b, err, files[name])
			}
		}
	}
	remove := func(d *Daemon, id string) {
		t.Helper()
		if err := d.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	func() {
		defer first.Close()
		give(first, "1", "old", "secret")
		give(first, "2", "./secret")
		want("two tasks", map[string]string{"old": "1", "secret": "2"})
		remove(first, "1")
		want("the first is deleted", map[string]string{"secret": "2"})
		give(first, "3", "../instance/secret")
		want("a third", map[string]string{"secret": "3"})
	}()
	d := newDaemon(t, func(o *Options) { o.DataDir = dataDir })
	remove(d, "2")
	want("the second is deleted by a later daemon", map[string]string{"secret": "3"})
	remove(d, "3")
	want("the last is deleted", nil)
}
