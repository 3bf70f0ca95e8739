package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tandem/internal/testkit"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// openFiles is how many files a process has open.
func openFiles(t *testing.T, pid int) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// once runs a task that counts its runs and ends with 7, and looks whether it ran
// once and its exit code is known.
func once(ctx context.Context, c *client.Client, dir, id string) error {
	ran := filepath.Join(dir, "ran-"+id)
	st, err := c.Create(ctx, &protocol.Spec{ID: id, Owner: "o", StartCmd: "echo ran >> " + ran + "; exit 7", Sandbox: filepath.Join(dir, "sandbox", id)})
	if err == nil {
		_, err = c.Start(ctx, id, time.Second)
	}
	for err == nil && st.State != protocol.StateEnded {
		st, err = c.Poll(ctx, id, st.Version, time.Second)
	}
	if err == nil {
		err = c.Delete(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	b, err := os.ReadFile(ran)
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if string(b) != "ran\n" || st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: 7}) {
		return fmt.Errorf("%s: it ran %q; %+v %+v", id, b, st, st.Exit)
	}
	return nil
}

// TestFaultFiftyUpgrades: a daemon is replaced fifty times while tasks are started and end. Each runs
// once, no exit code is lost, and neither the daemon nor the keeper has more files open at the end.
func TestFaultFiftyUpgrades(t *testing.T) {
	t.Parallel()
	const upgrades = 50
	dir := testkit.ShortDir(t)
	program := filepath.Join(dir, "tandem-processd")
	placed(t, program)
	cmd, c := startProgram(t, dir, program, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
	stays := startTask(t, c, dir, "stays", "exec sleep 1000")
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var load sync.WaitGroup
	var over atomic.Bool
	var tasks atomic.Int64
	for w := range 2 {
		load.Go(func() {
			for n := 0; !over.Load(); n++ {
				if err := once(ctx, c, dir, fmt.Sprintf("w%d-%d", w, n)); err != nil {
					t.Error(err)
					return
				}
				tasks.Add(1)
			}
		})
	}
	eventually(t, "the first tasks have ended", func() bool { return tasks.Load() > 4 || t.Failed() })
	daemonFiles, keeperFiles := openFiles(t, cmd.Process.Pid), openFiles(t, info.Keeper.Pid)
	for i := range upgrades {
		if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next one serves", func() bool { return strings.Count(logOf(dir), "msg=serving") == i+2 || t.Failed() })
	}
	over.Store(true)
	load.Wait()
	t.Logf("%d tasks in %d upgrades", tasks.Load(), upgrades)
	st, err := c.Status(t.Context(), "stays")
	if err != nil || st.State != protocol.StateRunning || st.Pid != stays.Pid {
		t.Errorf("%+v %v", st, err)
	}
	after, err := c.Info(t.Context())
	if err != nil || after.Keeper == nil || after.Keeper.Pid != info.Keeper.Pid || len(after.Troubles) > 0 {
		t.Errorf("%+v %v", after, err)
	}
	// With the load, there were its connections and files, too.
	eventually(t, fmt.Sprintf("files are closed: %d and %d at the start", daemonFiles, keeperFiles), func() bool {
		return openFiles(t, cmd.Process.Pid) <= daemonFiles && openFiles(t, info.Keeper.Pid) <= keeperFiles
	})
	for _, left := range []string{"processd/tasks", "processd/keeper/processes"} {
		names, err := os.ReadDir(filepath.Join(dir, "data", left))
		if err != nil || len(names) > 2 {
			t.Errorf("%s has %d files (%v)", left, len(names), err)
		}
	}
	finish(t, cmd, c, "stays")
}
