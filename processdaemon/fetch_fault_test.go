package processdaemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/archive/archivetest"
	"tandem/processdaemon/protocol"
)

// TestFaultKilledInAMerge: at any step of it the next daemon completes it, also when the
// archive cannot be had again.
func TestFaultKilledInAMerge(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"fetch/merge=kill", "fetch/merge=1*off->kill", "fetch/merge=2*off->kill", "fetch/merged=kill"} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			p := newProc(t)
			archive := filepath.Join(p.dir, "a.tar")
			write(t, archive, string(archivetest.Tar(t, archivetest.Entry{Name: "a", Body: "2"}, archivetest.Entry{Name: "b/b", Body: "2"}, archivetest.Entry{Name: "c", Body: "2"})), 0o644)
			work := filepath.Join(p.dir, "data/workspace/work_dir/a")
			for _, name := range []string{"a", "c", "data"} {
				write(t, filepath.Join(work, name), "1", 0o644)
			}
			p.start(point)
			uris := []protocol.URI{{Value: archive}}
			digests, err := p.c.Fetch(context.Background(), "", uris, nil)
			if err != nil {
				t.Fatal(err)
			}
			uris[0].Digest = digests[0]
			spec := protocol.Spec{ID: "a", Owner: "o", StartCmd: "true", Sandbox: filepath.Join(p.dir, "s"), WorkPath: work, URIs: uris}
			_, _ = p.c.Create(context.Background(), &spec) // it may die before the answer
			eventually(t, "the daemon has died", p.died)
			p.stop(syscall.SIGKILL)
			blobs, err := filepath.Glob(filepath.Join(p.dir, "data/processd/cache/blobs/*"))
			if err != nil || len(blobs) != 1 {
				t.Fatalf("%v %v", blobs, err)
			}
			if err := errors.Join(os.Remove(blobs[0]), os.Remove(archive)); err != nil {
				t.Fatal(err)
			}
			p.start("")
			eventually(t, "it is prepared", func() bool {
				st, err := p.c.Status(context.Background(), "a")
				if err == nil && st.State == ended {
					t.Fatalf("%+v", st)
				}
				return err == nil && st.State == ready
			})
			var got []string
			for _, name := range []string{"a", "b/b", "c", "data"} {
				got = append(got, name+"="+read(t, filepath.Join(work, name)))
			}
			if strings.Join(got, " ") != "a=2 b/b=2 c=2 data=1" {
				t.Error(got)
			}
			if left := leftOfFetch(t, filepath.Join(p.dir, "data")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
