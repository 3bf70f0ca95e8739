package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/procid"
)

var treeCount int

// trees returns every mode that this machine can show.
func trees(t *testing.T) map[Mode]*Tree {
	t.Helper()
	mounts, err := mountedHierarchies("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var v1 []*hierarchy
	for _, h := range mounts {
		if !h.v2 {
			v1 = append(v1, h)
		}
	}
	treeCount++
	base := fmt.Sprintf("tandem-test-%d/%d", os.Getpid(), treeCount)
	cgrouptest.Expect(base)
	out := map[Mode]*Tree{ModeSession: openTree(nil, base)}
	for _, m := range [][]*hierarchy{mounts, v1} {
		tr := openTree(m, base)
		out[tr.Mode()] = tr
		t.Cleanup(tr.Close)
	}
	if len(out) == 1 {
		t.Logf("only sessions are tested: %v", out[ModeSession])
	}
	return out
}

// start runs a script whose first process is in the group before it runs.
func start(t *testing.T, g *Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; "+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	dir, err := g.OpenForClone()
	if err != nil {
		t.Fatal(err)
	}
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = g.Kill() // whether all has ended, its removal tells
		eventually(t, "the group is removed", func() bool { return g.Remove() == nil })
	})
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	g.Lead(id)
	fmt.Fprintln(in, "go")
	return cmd
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

func TestKillReachesTheWholeTree(t *testing.T) {
	for mode, tr := range trees(t) {
		t.Run(string(mode), func(t *testing.T) {
			t.Log(tr)
			g := tr.Group("task")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			script, want := "sleep 60 & setsid sleep 60 & sleep 60", 4
			if mode == ModeSession {
				script, want = "sleep 60 & sleep 60 & sleep 60", 4
			}
			// The trailing command keeps the shell from replacing itself.
			cmd := start(t, g, script+"; true")
			eventually(t, "all are there", func() bool {
				pids, err := g.Pids()
				return err == nil && len(pids) == want
			})
			if empty, err := g.Empty(); empty || err != nil {
				t.Fatal(empty, err)
			}
			if in, err := g.Contains(cmd.Process.Pid); !in || err != nil {
				t.Fatal(in, err)
			}
			if in, _ := g.Contains(os.Getpid()); in {
				t.Fatal("the test itself is in the group")
			}
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "empty", func() bool {
				empty, err := g.Empty()
				return empty && err == nil
			})
			for range 2 {
				if err := g.Remove(); err != nil {
					t.Fatal(err)
				}
			}
			if empty, err := g.Empty(); !empty || err != nil {
				t.Fatal(empty, err)
			}
			if err := g.Kill(); err != nil {
				t.Errorf("kill of an absent group: %v", err)
			}
		})
	}
}

func TestSignalReachesAll(t *testing.T) {
	for mode, tr := range trees(t) {
		t.Run(string(mode), func(t *testing.T) {
			g := tr.Group("sig")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			start(t, g, "sleep 60 & sleep 60; true")
			eventually(t, "all are there", func() bool { pids, _ := g.Pids(); return len(pids) == 3 })
			if err := g.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			eventually(t, "empty", func() bool { empty, _ := g.Empty(); return empty })
			if err := g.Remove(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for mode, tr := range trees(t) {
		t.Run(string(mode), func(t *testing.T) {
			g := tr.Group("lim")
			notes, err := g.Create(Limits{CPUs: 0.5, MemoryBytes: 32 << 20, Pids: 20})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := g.Remove(); err != nil {
					t.Error(err)
				}
			}()
			for _, n := range notes {
				if !strings.Contains(n, "is not enforced: ") {
					t.Errorf("note %q", n)
				}
			}
			if tr.limit["memory"] == nil {
				if len(notes) != 3 {
					t.Errorf("notes %q", notes)
				}
				return
			}
			if len(notes) != 0 {
				t.Fatal(notes)
			}
			// tail keeps one endless line in memory.
			start(t, g, "head -c 200m /dev/zero | tail >/dev/null; sleep 60")
			eventually(t, "killed for lack of memory", func() bool { return g.OOMKills() > 0 })
			_ = g.Kill()
			eventually(t, "empty", func() bool { empty, _ := g.Empty(); return empty })
		})
	}
}

func TestParseMountinfo(t *testing.T) {
	t.Parallel()
	//nolint:dupword // mountinfo repeats itself
	const text = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/x,name=systemd
34 31 0:31 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices
35 31 0:32 / /mnt/a\040b rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
broken line
`
	got := parseMountinfo(text, func(m string) []string { return []string{"pids", m} })
	if len(got) != 3 || got[0].mount != "/sys/fs/cgroup/cpu,cpuacct" || !got[0].has("cpu") || got[0].has("rw") ||
		!got[1].has("name=systemd") || !got[2].v2 || got[2].mount != "/mnt/a b" || !got[2].has("/mnt/a b") {
		for _, h := range got {
			t.Errorf("%+v", *h)
		}
	}
}

func TestNotPermitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A plain directory has no cgroup.procs, which looks like a read-only hierarchy does.
	tr := openTree([]*hierarchy{{mount: dir, v2: true}}, "tandem/x")
	if tr.Mode() != ModeSession || !strings.Contains(tr.String(), "session") {
		t.Fatal(tr.Mode(), tr)
	}
}

// TestCPURequest is the weight beside a limit, in every mode that has one.
func TestCPURequest(t *testing.T) {
	for mode, tr := range trees(t) {
		h := tr.limit["cpu"]
		if h == nil {
			t.Logf("%s: no cpu controller", mode)
			continue
		}
		g := tr.Group("weight")
		notes, err := g.Create(Limits{CPUs: 1, CPURequest: 0.5})
		if err != nil || len(notes) > 0 {
			t.Fatal(mode, notes, err)
		}
		file, want := "cpu.shares", "512\n"
		if h.v2 {
			file, want = "cpu.weight", "20\n"
		}
		if b, err := os.ReadFile(g.dir(h) + "/" + file); err != nil || string(b) != want {
			t.Errorf("%s: %s is %q, %v", mode, file, b, err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestUsage(t *testing.T) {
	for mode, tr := range trees(t) {
		g := tr.Group("usage")
		if _, err := g.Create(Limits{MemoryBytes: 64 << 20}); err != nil {
			t.Fatal(err)
		}
		// Memory is counted that it takes from here on.
		cmd := start(t, g, "x=$(seq 1 50000); while :; do :; done")
		eventually(t, string(mode)+": it is counted", func() bool {
			u, err := g.Usage()
			return err == nil && u.Processes == 1 && u.CPU > 0 && u.MemoryBytes > 0
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		eventually(t, "it is empty", func() bool { empty, err := g.Empty(); return err == nil && empty })
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}
