package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/procid/pidwrap"
	"tandem/internal/testkit"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// tearing makes a store with the record "good", and gives one for the name "a".
func tearing(t *testing.T) (s *store, troubles *[]string, a []byte) {
	t.Helper()
	troubles = new([]string)
	s = &store{dir: t.TempDir(), trouble: func(what string, err error) { *troubles = append(*troubles, fmt.Sprint(what, err)) }}
	if recs, complete := s.load(); len(recs) > 0 || !complete {
		t.Fatal(recs, complete)
	}
	for _, id := range []string{"good", "a"} {
		main := procid.Identity{BootID: "boot", Pid: 4242, StartTime: 77}
		r := &record{Format: recordFormat, State: running, Main: main, Spec: protocol.Spec{ID: id, Env: []string{"A=b c"}, StartCmd: "sleep 60"}}
		if err := s.save(r, false); err != nil {
			t.Fatal(err)
		}
	}
	return s, troubles, []byte(read(t, s.path("a")))
}

// TestFaultTornRecord: cut off at any byte, it is set aside, and the others are read.
func TestFaultTornRecord(t *testing.T) {
	t.Parallel()
	s, troubles, whole := tearing(t)
	for n := range whole {
		write(t, s.path("a"), string(whole[:n]), 0o600)
		recs, complete := s.load()
		if len(recs) != 1 || recs[0].Spec.ID != "good" || !complete || len(*troubles) != n+1 || exists(s.path("a")) {
			t.Fatalf("cut off at byte %d: %d records, %v", n, len(recs), *troubles)
		}
	}
	if e, err := os.ReadDir(filepath.Join(s.dir, "corrupt")); err != nil || len(e) != len(whole) {
		t.Errorf("%d set aside, %v", len(e), err)
	}
}

// TestFaultDamagedRecord in any other way.
func TestFaultDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(path, whole string) error
		want   string
	}{
		"garbage":    {func(p, w string) error { return os.WriteFile(p, []byte("\x00\xff"+w[2:]), 0o600) }, "invalid character"},
		"zeros":      {func(p, w string) error { return os.WriteFile(p, make([]byte, len(w)), 0o600) }, "invalid character"},
		"two":        {func(p, w string) error { return os.WriteFile(p, []byte(w+w), 0o600) }, "after top-level value"},
		"other-kind": {func(p, _ string) error { return os.WriteFile(p, []byte("[1]"), 0o600) }, "cannot unmarshal"},
		"newer": {func(p, w string) error {
			return os.WriteFile(p, []byte(strings.Replace(w, `"format":1`, `"format":2`, 1)), 0o600)
		}, "format 2, this daemon knows 1"},
		"no-process": {func(p, w string) error {
			return os.WriteFile(p, []byte(strings.Replace(w, `"pid":4242`, `"pid":0`, 1)), 0o600)
		}, "names no process"},
		"duplicate": {func(p, w string) error {
			return os.WriteFile(p, []byte(strings.Replace(w, `"id":"a"`, `"id":"good"`, 1)), 0o600)
		}, "does not belong to this file name"},
		"directory": {func(p, _ string) error { return os.MkdirAll(filepath.Join(p, "x"), 0o700) }, "not a regular file"},
		"pipe":      {func(p, _ string) error { return unix.Mkfifo(p, 0o600) }, "not a regular file"},
		"loop":      {func(p, _ string) error { return os.Symlink(p, p) }, "too many levels"},
		"huge":      {func(p, _ string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) }, "the most is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, troubles, whole := tearing(t)
			if err := os.Remove(s.path("a")); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(s.path("a"), string(whole)); err != nil {
				t.Fatal(err)
			}
			recs, complete := s.load()
			if len(recs) != 1 || recs[0].Spec.ID != "good" || !complete {
				t.Errorf("%d records, %v", len(recs), complete)
			}
			if len(*troubles) != 1 || !strings.Contains((*troubles)[0], c.want) || !strings.Contains((*troubles)[0], "was set aside as") {
				t.Errorf("%q, want %q", *troubles, c.want)
			}
			if _, err := os.Lstat(s.path("a")); err == nil {
				t.Error("it stays in the way")
			}
		})
	}
}

// restartWith kills the daemon, lets damage be done, and starts it again. It returns what the new one tells.
func (p *proc) restartWith(damage func()) []string {
	p.t.Helper()
	p.stop(syscall.SIGKILL)
	damage()
	p.start("")
	var told []string
	p.must("info", func(ctx context.Context) error {
		i, err := p.c.Info(ctx)
		told = i.Troubles
		return err
	})
	return told
}

// adopted checks that a task runs on as it was, and how it ends.
func (p *proc) adopted(id string, pid int) {
	p.t.Helper()
	if st := p.await(id, running); st.Pid != pid {
		p.t.Errorf("%s: pid %d, was %d", id, st.Pid, pid)
	}
	p.must("signal", func(ctx context.Context) error { return p.c.Signal(ctx, id, syscall.SIGKILL) })
	if st := p.await(id, ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) {
		p.t.Errorf("%s: %+v", id, st.Exit)
	}
}

// TestFaultDamagedStore: whatever is in the place of whatever else, the daemon starts and
// tells, and the records that are whole are taken up; what a lost record named is stopped.
func TestFaultDamagedStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(data string) error
		want   string
		lost   bool // the records are lost, too
	}{
		"record": {func(d string) error {
			return os.Truncate(filepath.Join(d, "processd/tasks", shortHash("b")+".json"), 99)
		}, "set aside", false},
		"corrupt-is-file":  {func(d string) error { return replace(d, "processd/corrupt", "processd/tasks/x.json") }, "cannot be set aside", false},
		"tasks-is-file":    {func(d string) error { return replace(d, "processd/tasks") }, "set aside", true},
		"cache-is-file":    {func(d string) error { return replace(d, "processd/cache") }, "nothing can be fetched", false},
		"journal-is-file":  {func(d string) error { return replace(d, "journal") }, "dead executors", false},
		"work_dir-is-file": {func(d string) error { return replace(d, "workspace/run_dir") }, "the workspace cannot be used", false},
		"lock-is-directory": {func(d string) error {
			return errors.Join(os.Remove(filepath.Join(d, "processd/lock")), os.MkdirAll(filepath.Join(d, "processd/lock"), 0o700))
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProc(t)
			p.start("")
			pids := map[string]int{}
			for _, id := range []string{"a", "b"} {
				p.createAndStart(p.spec(id, "exec sleep 60"))
				pids[id] = p.await(id, running).Pid
			}
			told := p.restartWith(func() {
				if err := c.damage(filepath.Join(p.dir, "data")); err != nil {
					t.Fatal(err)
				}
			})
			if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, c.want) }) && c.want != "" {
				t.Errorf("told: %q, want %q", told, c.want)
			}
			if c.lost {
				for id := range pids {
					eventually(t, "what nobody will ask for is ended", func() bool { return len(processesIn(p.spec(id, "").WorkPath)) == 0 })
				}
			} else {
				p.adopted("a", pids["a"])
			}
			p.createAndStart(p.spec("c", "exec sleep 60"))
			p.await("c", running)
		})
	}
}

// TestFaultLostRecordWithoutGroups: also where there are no control groups, what a lost record
// named is found, by its keeper, and stopped; what others name is not touched.
func TestFaultLostRecordWithoutGroups(t *testing.T) {
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	unmountGroups(t, true)
	p := newProc(t)
	p.start("")
	for _, id := range []string{"a", "b"} {
		p.createAndStart(p.spec(id, "sleep 61 & exec sleep 60"))
		p.await(id, running)
		eventually(t, "both processes", func() bool { return len(processesIn(p.spec(id, "").WorkPath)) == 2 })
	}
	p.restartWith(func() {
		if err := os.Truncate(filepath.Join(p.dir, "data/processd/tasks", shortHash("b")+".json"), 99); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "what nobody will ask for is ended", func() bool { return len(processesIn(p.spec("b", "").WorkPath)) == 0 })
	if n := len(processesIn(p.spec("a", "").WorkPath)); n != 2 {
		t.Errorf("%d processes of the other task", n)
	}
}

// replace puts files in the places of directories.
func replace(data string, names ...string) error {
	for _, n := range names {
		path := filepath.Join(data, n)
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("{"), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// newProcOn is newProc with the data directory on a small file system of its own.
func newProcOn(t *testing.T, options string) *proc {
	t.Helper()
	dir := testkit.PublicDir(t)
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, options); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return newProcIn(t, dir)
}

// TestFaultFullDisk: on a full disk the daemon starts, adopts and stops what runs, refuses new tasks with
// the reason, and goes on by itself when there is space again. After a reboot, too.
func TestFaultFullDisk(t *testing.T) {
	t.Parallel()
	p := newProcOn(t, "size=1m")
	p.start("")
	pids := map[string]int{}
	for _, id := range []string{"adopted", "stopped", "ends-alone", "rebooted"} {
		p.createAndStart(p.spec(id, "exec sleep 60"))
		pids[id] = p.await(id, running).Pid
	}
	filler := filepath.Join(p.dir, "data/filler")
	told := p.restartWith(func() {
		fill(t, filler)
		if err := syscall.Kill(pids["ends-alone"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("told: %q", told)
	if st := p.await("ends-alone", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) {
		t.Errorf("%+v", st.Exit)
	}
	p.adopted("adopted", pids["adopted"])
	err := p.try("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, p.spec("new", "true")); return err })
	if !client.IsCode(err, protocol.CodeInternal) || !strings.Contains(err.Error(), "free disk space") {
		t.Errorf("a new task on a full disk: %v", err)
	}
	p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, "stopped", 0); return err })
	p.await("stopped", ended)
	p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, "stopped") })
	// The next boot finds the disk full, too.
	p.killKeeper()
	p.restartWith(func() {
		if err := syscall.Kill(pids["rebooted"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		record := filepath.Join(p.dir, "data/processd/tasks", shortHash("rebooted")+".json")
		write(t, record, strings.ReplaceAll(read(t, record), must(t)(procid.BootID()), "an earlier boot"), 0o600)
		fill(t, filler)
	})
	if st := p.await("rebooted", ended); st.Exit == nil || st.Exit.Known {
		t.Errorf("%+v", st.Exit)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.createAndStart(p.spec("new", "exec sleep 60"))
	p.await("new", running)
}

// fill leaves not a byte.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for buf := make([]byte, 4096); err == nil; {
		_, err = f.Write(buf)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// TestFaultReadOnlyDisk: as on a full one. The kernel makes a file system read-only
// when it finds it damaged.
func TestFaultReadOnlyDisk(t *testing.T) {
	t.Parallel()
	p := newProcOn(t, "size=1m")
	data := filepath.Join(p.dir, "data")
	p.start("")
	pids := map[string]int{}
	for _, id := range []string{"adopted", "stopped", "ends-alone"} {
		p.createAndStart(p.spec(id, "exec sleep 60"))
		pids[id] = p.await(id, running).Pid
	}
	readOnly := true
	t.Cleanup(func() {
		if readOnly {
			_ = unix.Unmount(data, unix.MNT_DETACH) // the test has ended before
		}
	})
	// On top of itself, for the keeper has its log open for writing.
	told := p.restartWith(func() {
		write(t, filepath.Join(data, "processd/tasks/.tmp-1"), "half", 0o600)
		write(t, filepath.Join(data, "processd/tasks/torn.json"), "{", 0o600)
		if err := unix.Mount(data, data, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", data, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pids["ends-alone"], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	if text := strings.Join(told, "\n"); !strings.Contains(text, "read-only file system") || !strings.Contains(text, "torn.json") {
		t.Errorf("told: %q", told)
	}
	if st := p.await("ends-alone", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Signal: 9}) {
		t.Errorf("%+v", st.Exit)
	}
	p.adopted("adopted", pids["adopted"])
	p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, "stopped", 0); return err })
	p.await("stopped", ended)
	if err := p.try("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, p.spec("new", "true")); return err }); !client.IsCode(err, protocol.CodeInternal) {
		t.Errorf("a new task on a read-only disk: %v", err)
	}
	if err := p.try("delete", func(ctx context.Context) error { return p.c.Delete(ctx, "stopped") }); !client.IsCode(err, protocol.CodeInternal) {
		t.Errorf("a deletion on a read-only disk: %v", err)
	}
	if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	readOnly = false
	// Writable again: what was refused can be asked for again.
	p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, "stopped") })
	p.createAndStart(p.spec("new", "exec sleep 60"))
	p.await("new", running)
}
