package processdaemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProgramThatIsOpenForWriting: one that was put into its place a moment ago may be, by a child
// between fork and exec. Its start waits for that, and says what is wrong when it goes on.
func TestProgramThatIsOpenForWriting(t *testing.T) {
	t.Parallel()
	for id, limit := range map[string]time.Duration{"for a moment": patience, "for good": 50 * time.Millisecond} {
		d := newDaemon(t)
		d.busyTime = limit
		s := spec(d, "a", "./start.sh")
		path := filepath.Join(s.WorkPath, "start.sh")
		write(t, path, "#!/bin/sh\nexit 7\n", 0o755)
		create(t, d, s)
		writer, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		started := make(chan error, 1)
		go func() { _, err := d.Start("a"); started <- err }()
		if id == "for a moment" {
			awaitState(t, d, "a", starting)
			time.Sleep(50 * time.Millisecond) // what would be given up at once has the time to
			if st, err := d.Status("a"); err != nil || st.State != starting {
				t.Errorf("%+v %v", st, err)
			}
			writer.Close()
		}
		if err := <-started; err != nil {
			t.Error(err)
		}
		st := awaitState(t, d, "a", ended)
		if id == "for a moment" && (st.Exit == nil || st.Exit.Code != 7) || id == "for good" && !strings.Contains(st.Failure, "open for writing") {
			t.Errorf("%s: %+v %+v", id, st, st.Exit)
		}
	}
}
