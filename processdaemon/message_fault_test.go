package processdaemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tandem/processdaemon/protocol"
)

// TestFaultKilledInAMessage: the daemon is killed in the middle of other limits and of
// an upload, at each step. The process does not notice, and whoever asks again has it
// done, with nothing left of the first try.
func TestFaultKilledInAMessage(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"processdaemon/PUT tasks/limits=kill", "cgroup/update=kill", "processdaemon/save/running=1*off->kill", "processdaemon/saved/running=1*off->kill",
		"processdaemon/PUT tasks/limits/done=kill", "processdaemon/POST tasks/upload=kill", "atomicfile/whole=kill", "atomicfile/rename=kill", "processdaemon/POST tasks/upload/done=kill",
	} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			p := newProc(t)
			p.start(point)
			first := p.cmd.Process.Pid
			s := p.spec("a", "sleep 600")
			p.createAndStart(s)
			before := p.await("a", running)
			p.must("limits", func(ctx context.Context) error { return p.c.SetLimits(ctx, "a", protocol.Limits{CPUs: 0.5}) })
			// Replaced, so that the unfinished file needs a name.
			write(t, filepath.Join(s.WorkPath, "conf"), "old", 0o644)
			p.must("upload", func(ctx context.Context) error {
				return p.c.Upload(ctx, "a", protocol.File{Path: "conf", Content: []byte("whole")})
			})
			if p.cmd.Process.Pid == first {
				t.Error("the daemon was not killed")
			}
			if st := p.await("a", running); st.Pid != before.Pid || st.Restarts != 0 {
				t.Errorf("%+v, before %+v", st, before)
			}
			if got := read(t, filepath.Join(s.WorkPath, "conf")); got != "whole" {
				t.Errorf("it is %q", got)
			}
			entries, err := os.ReadDir(s.WorkPath)
			if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".tmp-") }) {
				t.Errorf("left: %v %v", entries, err)
			}
			if got := limitOf(t, before.Pid, "cpu", "cpu.cfs_quota_us", "cpu.max"); !strings.HasPrefix(got, "50000") {
				t.Errorf("quota %s", got)
			}
		})
	}
}
