package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 256 KiB at a directory of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no file system can be mounted: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the room of a disk, and returns what gives it back.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "full")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk: an intent that cannot be recorded is refused, and with it what it was
// for; what was recorded before is not harmed, and can be undone.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	j, err := Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	o := own(t, j, "a")
	for _, id := range []string{"1", "2"} {
		if err := o.Put("k", id, map[string]string{"old": "value"}); err != nil {
			t.Fatal(err)
		}
	}
	empty := fill(t, dir)
	for _, put := range []func(kind, id string, data any) error{o.Put, o.PutVolatile} {
		for _, id := range []string{"1", "3"} {
			if err := put("k", id, map[string]string{"new": "value"}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), id) {
				t.Errorf("put %s on a full disk: %v", id, err)
			}
		}
	}
	recs, err := j.Records()
	if got := ids(t, recs, err); got != "a/k/1 a/k/2" {
		t.Error(got)
	}
	var data map[string]string
	if ok, err := o.Get("k", "1", &data); !ok || err != nil || data["old"] == "" {
		t.Errorf("the old record is harmed: %v, %v, %v", ok, err, data)
	}
	// Undoing needs no room: that is what makes some.
	if err := o.Delete("k", "2"); err != nil {
		t.Error(err)
	}
	if err := j.Sweep(); err != nil {
		t.Error(err)
	}
	empty()
	if err := o.Put("k", "3", nil); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("unfinished files stay: %v", left)
	}
}

// TestReadOnlyDisk: nothing can be recorded, claimed or undone, each says so, and all of
// it can still be read; a record that cannot be read is told of once and does not hide the others.
func TestReadOnlyDisk(t *testing.T) {
	// Not parallel: the log belongs to the process.
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	dir := smallDisk(t)
	j, err := Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	dead := own(t, j, "dead")
	if err := dead.Put("k", "1", nil); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dead.dir, fileName("k", "torn"))
	if err := os.WriteFile(torn, []byte(`{"kind":"k",`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	live := own(t, j, "live")
	if err := live.Put("k", "1", nil); err != nil {
		t.Fatal(err)
	}
	// As the kernel does after an error of the disk: at once, whatever is open.
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "size=256k"); err != nil {
			t.Skip("the file system cannot be made read-only: ", err)
		}
	}
	if err := live.lock.Close(); err != nil { // a file open for writing keeps a mount writable
		t.Fatal(err)
	}
	remount(unix.MS_RDONLY)
	for range 3 {
		recs, err := j.Abandoned()
		if got := ids(t, recs, err); got != "dead/k/1 live/k/1" {
			t.Error(got)
		}
	}
	if n := strings.Count(log.String(), "cannot be set aside"); n != 1 || !strings.Contains(log.String(), fileName("k", "torn")) {
		t.Errorf("told %d times of the torn record:\n%s", n, log.String())
	}
	if _, err := j.Claim("dead"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("claim: %v", err)
	}
	if err := live.Put("k", "2", nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("put: %v", err)
	}
	if err := live.Delete("k", "1"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("delete: %v", err)
	}
	remount(0)
	log.Reset()
	claim, err := j.Claim("dead")
	if err != nil {
		t.Fatal(err)
	}
	recs, err := claim.Records()
	if got := ids(t, recs, err); got != "dead/k/1" {
		t.Error(got)
	}
	if !strings.Contains(log.String(), "record set aside") {
		t.Errorf("not told that the torn record was set aside:\n%s", log.String())
	}
	if _, err := os.Stat(torn); err == nil {
		t.Error("the torn record is in the way")
	}
	if err := claim.Delete("k", "1"); err != nil {
		t.Error(err)
	}
	if err := claim.Close(); err != nil {
		t.Error(err)
	}
}

// TestReleasedWhileAChildIsBeingStarted: a child between fork and exec has a copy of the
// descriptor, and the lock belongs to what both lead to. So an executor that ends and one
// that begins under the same name never meet ErrOwned, and neither do owner and reaper.
func TestReleasedWhileAChildIsBeingStarted(t *testing.T) {
	t.Parallel()
	j := open(t)
	for _, keeps := range []bool{false, true} { // whether a record stays, and the lock's file with it
		for i, take := range []func(string) (*Owner, error){j.Own, j.Claim, j.Own} {
			o, err := take("again")
			if err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			inherited, err := unix.FcntlInt(o.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(inherited)
			if keeps {
				err = o.PutVolatile("k", "1", nil)
			}
			if err := errors.Join(err, o.Close()); err != nil {
				t.Fatal(err)
			}
			if held, err := j.Owned("again"); held || err != nil {
				t.Errorf("turn %d: owned after the close: %v, %v", i, held, err)
			}
		}
	}
	// The same for a name that is locked for a moment only.
	for range 2 {
		if err := j.Exclusive(t.Context(), "cpus", func(time.Time) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}
