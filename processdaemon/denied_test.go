package processdaemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestDeniedNamesTheClosedDirectory: whoever keeps the data in a home of their own
// learns which directory keeps the task's user out.
func TestDeniedNamesTheClosedDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: processes run as other users")
	}
	home := testkit.PublicDir(t)
	if err := os.Chmod(home, 0o750); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, func(o *Options) { o.DataDir = filepath.Join(home, "deep", "data") })
	s := spec(d, "a", "sleep 60")
	s.User = "nobody"
	open := spec(d, "b", filepath.Join(home, "run"))
	open.User, open.WorkPath = "nobody", testkit.PublicDir(t)
	write(t, filepath.Join(home, "run"), "#!/bin/sh\n", 0o755)
	for _, s := range []protocol.Spec{s, open} {
		run(t, d, s)
		st := await(t, d, s.ID, func(st protocol.Status) bool { return st.State == ended })
		if want := fmt.Sprintf(`user "nobody" may not enter %s (mode 0750)`, home); !strings.Contains(st.Failure, want) {
			t.Errorf("%q does not say %q", st.Failure, want)
		}
	}
}
