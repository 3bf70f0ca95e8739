package container

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tandem/api"
	"tandem/executor"
	"tandem/internal/failpoint"
	"tandem/internal/journal"
)

// launchVar makes the test program launch one container and wait, so that it can
// be killed like an executor. Its value is "directory|owner|image", and
// "|volume" after that to have a file of it replaced.
const launchVar = "TANDEM_TEST_LAUNCH"

func launchForKilling(spec string) {
	p := strings.Split(spec, "|")
	j, err := journal.Open(filepath.Join(p[0], "journal"))
	check(err)
	own, err := j.Own(p[1])
	check(err)
	r, err := New(Options{Journal: own})
	check(err)
	ctx := context.Background()
	task := &executor.Task{ID: "1.0." + p[1], Owner: p[1], Sandbox: filepath.Join(p[0], "sandbox"),
		Spec: &api.TaskSpec{Container: &api.ContainerTask{Image: p[2], Args: []string{"sleep 60"}}}}
	if len(p) > 3 {
		task.Spec.Container.Volumes = []api.ContainerVolume{{HostPath: p[3], MountPath: "/data"}}
	}
	check(r.Create(ctx, task))
	_, err = r.Start(ctx, task.ID)
	check(err)
	if len(p) > 3 {
		check(r.Upload(ctx, task.ID, api.UploadFile{Path: "/data/conf", Content: []byte("new")}))
	}
	fmt.Println("started")
	_, err = r.Wait(ctx, task.ID)
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestE4KilledAnywhereLeavesNothing kills a real process at each point of a
// launch, and while the container runs; the record and the cleaner do the rest.
func TestE4KilledAnywhereLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"journal/put", "container/recorded", "container/created", "container/started", "running"} {
		f := newFixture(t)
		owner := f.owner.Name() + "-x"
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), launchVar+"="+f.dir+"|"+owner+"|"+testImage)
		if point != "running" {
			cmd.Env = append(cmd.Env, failpoint.EnvVar+"="+point+"=kill")
		}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if n, _ := out.Read(make([]byte, 16)); (n > 0) != (point == "running") {
			t.Errorf("%s: came too far or not far enough", point)
		}
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: was not killed", point)
		}
		recs, err := f.journal.Abandoned()
		if err != nil {
			t.Fatal(err)
		}
		if want := point != "journal/put"; (len(recs) == 1) != want {
			t.Errorf("%s: records %v", point, recs)
		}
		for _, rec := range recs {
			if err := NewCleaner("")(t.Context(), rec); err != nil {
				t.Errorf("%s: %v", point, err)
			}
			claim, err := f.journal.Claim(owner)
			if err != nil {
				t.Fatal(err)
			}
			if err := claim.Delete(rec.Kind, rec.ID); err != nil {
				t.Error(err)
			}
			claim.Close()
		}
		if left := containersOf(t, owner); len(left) > 0 {
			t.Errorf("%s: left %v", point, left)
		}
	}
}

// TestFaultKilledInAnUpload: what a dead executor has left unfinished on a volume is
// removed, and the file is the old one or the new one.
func TestFaultKilledInAnUpload(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"atomicfile/whole", "atomicfile/rename"} {
		f := newFixture(t)
		owner, volume := f.owner.Name()+"-x", t.TempDir()
		if err := os.WriteFile(filepath.Join(volume, "conf"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), launchVar+"="+f.dir+"|"+owner+"|"+testImage+"|"+volume, failpoint.EnvVar+"="+point+"=kill")
		if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
			t.Fatalf("%s: %v %s", point, err, out)
		}
		if n := files(t, volume); (n == 2) != (point == "atomicfile/rename") {
			t.Errorf("%s: %d files", point, n)
		}
		recs, err := f.journal.Abandoned()
		if err != nil {
			t.Fatal(err)
		}
		claim, err := f.journal.Claim(owner)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			kind string
			undo func(context.Context, journal.Record) error
		}{{UploadKind, NewUploadCleaner("")}, {Kind, NewCleaner("")}} {
			for _, rec := range recs {
				if rec.Kind != x.kind {
					continue
				}
				if err := x.undo(t.Context(), rec); err != nil {
					t.Errorf("%s: %v", point, err)
				}
				if err := claim.Delete(rec.Kind, rec.ID); err != nil {
					t.Error(err)
				}
			}
			if n := files(t, volume); n != 1 {
				t.Errorf("%s: %d files after the records of kind %s", point, n, x.kind)
			}
		}
		claim.Close()
		if b, err := os.ReadFile(filepath.Join(volume, "conf")); err != nil || string(b) != "old" {
			t.Errorf("%s: %q %v", point, b, err)
		}
		if left := containersOf(t, owner); len(left) > 0 {
			t.Errorf("%s: left %v", point, left)
		}
	}
}

func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
