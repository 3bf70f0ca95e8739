package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/procid"
)

// A group that had no limits gets some with all its processes inside, then others,
// then none.
func TestUpdate(t *testing.T) {
	for mode, tr := range trees(t) {
		if mode == ModeSession {
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			g := tr.Group("task")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			start(t, g, "sleep 600 & sleep 600; true")
			eventually(t, "all are there", func() bool { pids, err := g.Pids(); return err == nil && len(pids) == 3 })
			all, err := g.Pids()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				l             Limits
				memory, quota string
			}{
				{l: Limits{CPUs: 0.5, MemoryBytes: 64 << 20}, memory: strconv.Itoa(64 << 20), quota: "50000"},
				{l: Limits{CPUs: 2, CPURequest: 0.25, MemoryBytes: 32 << 20}, memory: strconv.Itoa(32 << 20), quota: "200000"},
				{l: Limits{}, memory: "none", quota: "-1"},
			} {
				if err := g.Update(c.l); err != nil {
					t.Fatal(err)
				}
				memory, cpu := tr.limit["memory"], tr.limit["cpu"]
				if memory == nil || cpu == nil || memory.v2 || cpu.v2 {
					t.Skip("no v1 controllers of memory and cpu are here")
				}
				got := readTrim(t, filepath.Join(g.dir(memory), "memory.limit_in_bytes"))
				if c.memory != "none" && got != c.memory || c.memory == "none" && len(got) < 16 {
					t.Errorf("%+v: memory %s", c.l, got)
				}
				if got := readTrim(t, filepath.Join(g.dir(cpu), "cpu.cfs_quota_us")); got != c.quota {
					t.Errorf("%+v: quota %s", c.l, got)
				}
				for _, h := range []*hierarchy{memory, cpu} {
					in, err := readPids(filepath.Join(g.dir(h), "cgroup.procs"))
					slices.Sort(in)
					slices.Sort(all)
					if err != nil || !slices.Equal(in, all) {
						t.Errorf("%v are inside, want %v: %v", in, all, err)
					}
				}
			}
			if err := g.Kill(); err != nil {
				t.Error(err)
			}
			eventually(t, "all are gone", func() bool { empty, err := g.Empty(); return empty && err == nil })
		})
	}
}

// The same in a hierarchy of version 2, whose controllers few machines with version 1
// leave free: files stand for the kernel's.
func TestUpdateWritesVersion2(t *testing.T) {
	t.Parallel()
	h := &hierarchy{mount: t.TempDir(), v2: true}
	tr := &Tree{mode: ModeV2, track: h, limit: map[string]*hierarchy{"cpu": h, "memory": h}, base: "b"}
	g := tr.Group("task")
	if err := os.MkdirAll(g.dir(h), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cpu.max": "", "cpu.weight": "", "memory.max": "", "memory.current": strconv.Itoa(48 << 20)} {
		if err := os.WriteFile(filepath.Join(g.dir(h), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	values := func() string {
		var out []string
		for _, f := range []string{"cpu.max", "cpu.weight", "memory.max"} {
			out = append(out, readTrim(t, filepath.Join(g.dir(h), f)))
			if err := os.WriteFile(filepath.Join(g.dir(h), f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Join(out, " ")
	}
	if err := g.Update(Limits{CPUs: 1.5, CPURequest: 1, MemoryBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	if got := values(); got != "150000 100000 39 67108864" {
		t.Error(got)
	}
	if err := g.Update(Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := values(); got != "max 100000 39 max" {
		t.Error(got)
	}
	if err := g.Update(Limits{MemoryBytes: 32 << 20}); err == nil || !strings.Contains(err.Error(), "less than the 48 MiB in use") {
		t.Error(err)
	}
}

// A signal to a session reaches the groups of its own that a shell makes for its
// jobs, and no other session.
func TestSignalSession(t *testing.T) {
	tr := openTree(nil, "")
	g, other := tr.Group("a"), tr.Group("b")
	cmd := start(t, g, "set -m; sleep 600 & sleep 600 & wait")
	start(t, other, "sleep 600")
	eventually(t, "the jobs", func() bool { pids, err := g.Pids(); return err == nil && len(pids) == 3 })
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := SignalSession(id, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	eventually(t, "its end", func() bool { pids, err := g.Pids(); return err == nil && len(pids) == 0 })
	if pids, err := other.Pids(); len(pids) == 0 || err != nil {
		t.Error(pids, err)
	}
}

func readTrim(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestUpdatePids: a group without a limit of processes gets one with all its processes
// inside, 0 leaves it, and a negative number takes it away.
func TestUpdatePids(t *testing.T) {
	for mode, tr := range trees(t) {
		h := tr.limit["pids"]
		if h == nil {
			t.Logf("%s: no pids controller", mode)
			if err := tr.Group("task").Update(Limits{Pids: 7}); err == nil {
				t.Errorf("%s: a limit was taken", mode)
			}
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			g := tr.Group("task")
			if _, err := g.Create(Limits{}); err != nil {
				t.Fatal(err)
			}
			start(t, g, "sleep 600 & sleep 600; true")
			eventually(t, "all are there", func() bool { pids, err := g.Pids(); return err == nil && len(pids) == 3 })
			if err := g.Update(Limits{Pids: -1}); err != nil {
				t.Error(err)
			}
			for _, c := range []struct {
				pids int64
				want string
			}{{7, "7"}, {0, "7"}, {9, "9"}, {-1, "max"}} {
				if err := g.Update(Limits{Pids: c.pids}); err != nil {
					t.Error(err)
				}
				if got := readTrim(t, filepath.Join(g.dir(h), "pids.max")); got != c.want {
					t.Errorf("%d: pids.max is %s", c.pids, got)
				}
				if got := readTrim(t, filepath.Join(g.dir(h), "pids.current")); got != "3" {
					t.Errorf("%d: %s are inside", c.pids, got)
				}
			}
			if u, err := g.Usage(); err != nil || u.ForksRefused != 0 {
				t.Errorf("%+v %v", u, err)
			}
			if err := g.Kill(); err != nil {
				t.Error(err)
			}
			eventually(t, "all are gone", func() bool { empty, err := g.Empty(); return empty && err == nil })
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}
