package processdaemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/cgroup"
	"tandem/internal/journal"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// rebooted rewrites every record below a data directory as if it were of an earlier boot.
func rebooted(t *testing.T, dataDir string) {
	t.Helper()
	boot, err := procid.BootID()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	err = filepath.WalkDir(dataDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		text := read(t, path)
		if !strings.Contains(text, boot) {
			return nil
		}
		n[filepath.Base(filepath.Dir(path))]++
		return os.WriteFile(path, []byte(strings.ReplaceAll(text, boot, "00000000-0000-4000-8000-000000000000")), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	// The daemon's, the keeper's and the executor's.
	for _, dir := range []string{"tasks", "processes", "dead-executor"} {
		if n[dir] == 0 {
			t.Errorf("no record of an earlier boot in %s: %v", dir, n)
		}
	}
}

// stranger takes a task's processes out of its control group, which goes: so one has it
// with what happens to have got the same pids after a reboot.
func stranger(t *testing.T, dataDir, task string, pid int) procid.Identity {
	t.Helper()
	tasks, _ := Trees(dataDir)
	own := cgroup.Open(tasks).Group(shortHash(task))
	tree := cgroup.Open("tandem/stranger-" + shortHash(dataDir + task)[:12])
	g := tree.Group("stranger")
	if _, err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	// They fork meanwhile.
	moved := map[int]bool{}
	eventually(t, "all have left the task's group", func() bool {
		pids, err := own.Pids()
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if err := g.Add(pid); err != nil {
				t.Fatal(err)
			}
			moved[pid] = true
		}
		return len(pids) == 0 && own.Remove() == nil
	})
	if len(moved) < 2 {
		t.Fatal(moved)
	}
	t.Cleanup(func() {
		eventually(t, "the stranger ends", func() bool {
			killErr := g.Kill()
			empty, err := g.Empty()
			return killErr == nil && empty && err == nil && g.Remove() == nil
		})
		tree.Close()
	})
	id, err := procid.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestFaultRebootResolvesEverything: after a reboot all records lead to processes that are
// no more, and the pids in them to strangers. Nobody is signalled; the records of daemon,
// keeper and dead executor are resolved; a task whose executor may come back is shown as ended.
func TestFaultRebootResolvesEverything(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	j, err := journal.Open(filepath.Join(p.dir, "data/journal"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := j.Own("dead-executor")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"running", "stopping", "never-created"} { // and "leased", whose record was lost
		if err := o.PutVolatile(KindProcess, id, nil); err != nil {
			t.Fatal(err)
		}
	}
	// What would be told of a signal: every one that can be caught, by the main process and its child.
	const line = `for s in HUP INT QUIT USR1 USR2 TERM; do trap "echo $s >> signals" $s; done; (while :; do sleep 0.05; done) & echo up > up; while :; do sleep 0.05; done`
	states := map[string]protocol.State{"running": running, "stopping": terminating, "leased": running, "kept": running}
	for id := range states {
		s := p.spec(id, line)
		s.Leased = id != "kept"
		if s.Leased {
			s.Owner = "dead-executor"
		}
		p.createAndStart(s)
		p.await(id, running)
		eventually(t, "traps are set", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
	}
	created := p.spec("created", "true")
	p.must("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, created); return err })
	info, err := p.c.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	keeperID, err := procid.Of(info.Keeper.Pid)
	if err != nil {
		t.Fatal(err)
	}
	strangers := map[string]procid.Identity{}
	files := map[string]string{}
	for id := range states {
		st := p.await(id, running)
		strangers[id] = stranger(t, filepath.Join(p.dir, "data"), id, st.Pid)
		files[id] = filepath.Join(p.spec(id, line).WorkPath, "signals")
	}
	p.stop(syscall.SIGKILL)
	if err := syscall.Kill(keeperID.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper is gone", func() bool { return !keeperID.Alive() })
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	// Being stopped when the machine went down.
	file := filepath.Join(p.dir, "data/processd/tasks", shortHash("stopping")+".json")
	write(t, file, strings.Replace(read(t, file), `"state":"running"`, `"state":"terminating","killAt":1`, 1), 0o600)
	rebooted(t, filepath.Join(p.dir, "data"))

	p.start("")
	for _, id := range []string{"kept", "created"} {
		st := p.await(id, ended)
		if id == "kept" && (st.Exit == nil || st.Exit.Known) {
			t.Errorf("%s: %+v: how it ended cannot be known", id, st.Exit)
		}
		p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, id) })
	}
	var left []string
	eventually(t, "all records are resolved", func() bool {
		left = nil
		for _, pattern := range []string{"journal/records/*/*", "journal/owners/*", "processd/tasks/*", "processd/keeper/processes/*"} {
			found, _ := filepath.Glob(filepath.Join(p.dir, "data", pattern))
			left = append(left, found...)
		}
		return len(left) == 0
	})
	if bad, _ := filepath.Glob(filepath.Join(p.dir, "data/processd/corrupt/*")); len(bad) > 0 {
		t.Errorf("taken for corrupt: %v", bad)
	}
	for id, s := range strangers {
		if !s.Alive() {
			t.Errorf("the process that has the pid of %q now was killed", id)
		}
		if exists(files[id]) {
			t.Errorf("the process that has the pid of %q now was sent %q", id, read(t, files[id]))
		}
	}
	// Each of them does tell of a signal.
	for id, s := range strangers {
		if err := syscall.Kill(s.Pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		eventually(t, "a signal is told of", func() bool { return exists(files[id]) })
	}
}
