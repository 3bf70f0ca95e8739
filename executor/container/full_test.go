package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/journal"
)

// smallDisk mounts a file system of so many MiB.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tandem-test", dir, "tmpfs", 0, "size="+size+"m"); err != nil {
		t.Skip("no file system can be mounted: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no room, and returns what makes room again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() { os.Remove(name) }
}

// TestNoRoomForTheRecord: without its record a container is not made.
func TestNoRoomForTheRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	disk := smallDisk(t, "1")
	j, err := journal.Open(filepath.Join(disk, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := j.Own(f.owner.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	f.opt.Journal = own
	fill(t, disk)
	task := f.task("true")
	if err := f.Create(f.ctx(), task); err == nil || !strings.Contains(err.Error(), "data directory of this agent is full") {
		t.Errorf("create: %v", err)
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestNoRoomForTheContainer: the engine's disk is full; that is said, and nothing is left.
func TestNoRoomForTheContainer(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "24")
	e := startEngine(t, "--data-root", filepath.Join(disk, "data"))
	f := fixtureAt(t, e, 0)
	free := fill(t, disk)
	task := f.task("true")
	err := f.Prepare(f.ctx(), task, func(string) {})
	if err == nil {
		err = f.Create(f.ctx(), task)
	}
	if err == nil {
		_, err = f.Start(f.ctx(), task.ID)
	}
	for _, want := range []string{"no room on the disk of the Docker Engine", testImage, "docker system prune", "no space left on device"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
	if ids, _ := f.List(f.ctx()); len(ids) > 0 || len(f.containers()) > 0 {
		t.Errorf("left: records %v, containers %v", ids, f.containers())
	}
	// With room it goes on as if nothing had been.
	free()
	task = f.task("exit 3")
	f.launch(task)
	if exit, _ := f.finish(task); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
}
