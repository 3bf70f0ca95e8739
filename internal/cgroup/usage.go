package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what the processes of a group use.
type Usage struct {
	CPU         time.Duration
	MemoryBytes int64
	Processes   int
	// ForksRefused is how often the limit of processes kept one from forking.
	ForksRefused int64
}

// Usage reads what the group uses now; a group that does not exist uses nothing.
// What the kernel does not count for the group is added up from its processes.
func (g *Group) Usage() (Usage, error) {
	pids, err := g.Pids()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{Processes: len(pids), ForksRefused: g.forksRefused()}
	cpu, cpuKnown := g.cpu()
	memory, memoryKnown := g.memory()
	u.CPU, u.MemoryBytes = cpu, memory
	for _, pid := range pids {
		if !cpuKnown {
			u.CPU += processCPU(pid)
		}
		if !memoryKnown {
			u.MemoryBytes += processMemory(pid)
		}
	}
	return u, nil
}

// cpu reads cpu.stat of the tracking v2 hierarchy, which counts without the controller.
func (g *Group) cpu() (time.Duration, bool) {
	if g.tree.mode == ModeSession || !g.tree.track.v2 {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(g.dir(g.tree.track), "cpu.stat"))
	if err != nil {
		return 0, Gone(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

func (g *Group) memory() (int64, bool) {
	h := g.tree.limit["memory"]
	if h == nil {
		return 0, false
	}
	file := "memory.usage_in_bytes"
	if h.v2 {
		file = "memory.current"
	}
	b, err := os.ReadFile(filepath.Join(g.dir(h), file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// forksRefused reads pids.events, which v1 has, too.
func (g *Group) forksRefused() int64 {
	h := g.tree.limit["pids"]
	if h == nil {
		return 0
	}
	b, err := os.ReadFile(filepath.Join(g.dir(h), "pids.events"))
	v, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "max ")
	if err != nil || !ok {
		return 0
	}
	n, _ := strconv.ParseInt(v, 10, 64) // a number, by the kernel's documentation
	return n
}

// userHertz is the unit of times in /proc, the same on every Linux (time(7)).
const userHertz = 100

// processCPU returns utime and stime of a process (proc_pid_stat(5)).
func processCPU(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const utime, stime = 11, 12
	if len(f) <= stime {
		return 0
	}
	u, _ := strconv.ParseInt(f[utime], 10, 64) // numbers, by the manual page
	s, _ := strconv.ParseInt(f[stime], 10, 64)
	return time.Duration(u+s) * time.Second / userHertz
}

// processMemory returns the resident memory of a process (proc_pid_statm(5)).
func processMemory(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64) // a number, by the manual page
	return pages * int64(os.Getpagesize())
}
