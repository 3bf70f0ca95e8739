package processdaemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/internal/atomicfile"
	"tandem/internal/cgroup"
	"tandem/processdaemon/protocol"
)

// TestReadyTaskHasWhatItsStartNeeds: it is made beside the answer to the creation, and goes with
// the task when nobody starts it.
func TestReadyTaskHasWhatItsStartNeeds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "true")
	if err := os.MkdirAll(s.Sandbox, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(s); err != nil {
		t.Fatal(err)
	}
	group := d.tree.Group(shortHash("a"))
	spare := atomicfile.Spare(d.store.path("a"))
	eventually(t, "all of it", func() bool {
		names, err := d.tree.Groups()
		return exists(filepath.Join(s.Sandbox, "stdout")) && exists(filepath.Join(s.Sandbox, "stderr")) && exists(spare) &&
			err == nil && (len(names) > 0 || d.tree.Mode() == cgroup.ModeSession)
	})
	if empty, err := group.Empty(); err != nil || !empty {
		t.Errorf("empty: %t, %v", empty, err)
	}
	if st, err := d.Status("a"); err != nil || st.State != ready {
		t.Errorf("%+v %v", st, err)
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{d.store.path("a"), spare} {
		if exists(path) {
			t.Errorf("%s is left", path)
		}
	}
	if names, err := d.tree.Groups(); err != nil || len(names) > 0 {
		t.Errorf("groups left: %v %v", names, err)
	}
}

// TestWhatCannotBeMadeReadyIsToldByTheStart: a creation does not fail for it.
func TestWhatCannotBeMadeReadyIsToldByTheStart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	s := spec(d, "a", "true")
	if err := os.MkdirAll(filepath.Join(s.Sandbox, "stdout"), 0o755); err != nil {
		t.Fatal(err)
	}
	if st, err := d.Create(s); err != nil || st.State != ready {
		t.Fatalf("%+v %v", st, err)
	}
	if _, err := d.Start("a"); err != nil {
		t.Fatal(err)
	}
	if st := awaitState(t, d, "a", ended); st.Phase != protocol.PhaseFailed || !strings.Contains(st.Failure, "output file") {
		t.Errorf("%+v", st)
	}
}
