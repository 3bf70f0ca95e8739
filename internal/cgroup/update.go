package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// Update gives a group that has processes other limits; here zero takes a limit
// away, but for Pids. A limit that cannot be set is an error, and then
// some of the others may be set already: call it again with the old ones. Memory
// below what is in use is refused, as the kernel would kill for it.
func (g *Group) Update(l Limits) error {
	if err := failpoint.Inject("cgroup/update"); err != nil {
		return err
	}
	if err := errors.Join(g.updatePids(l.Pids), g.updateMemory(l.MemoryBytes)); err != nil {
		return err
	}
	quota, shares := "-1", 1024
	if l.CPUs > 0 {
		quota = strconv.Itoa(cpuQuota(l.CPUs))
	}
	if l.CPURequest > 0 {
		shares = cpuShares(l.CPURequest)
	}
	h := g.tree.limit["cpu"]
	switch {
	case h == nil && (l.CPUs > 0 || l.CPURequest > 0):
		return errors.New("no cpu controller is available on this agent")
	case h == nil, !h.v2 && l.CPUs == 0 && !g.exists(h):
		return nil // as Create: in v1 there is no group for a request alone
	case h.v2:
		if l.CPUs == 0 {
			quota = "max"
		}
		return errors.Join(g.write(h, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod)), g.write(h, "cpu.weight", strconv.Itoa(cpuWeight(shares))))
	}
	if err := g.enter(h); err != nil {
		return err
	}
	return errors.Join(g.write(h, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)), g.write(h, "cpu.cfs_quota_us", quota), g.write(h, "cpu.shares", strconv.Itoa(shares)))
}

func (g *Group) updateMemory(bytes int64) error {
	h := g.tree.limit["memory"]
	switch {
	case h == nil && bytes > 0:
		return errors.New("no memory controller is available on this agent")
	case h == nil, bytes == 0 && !g.exists(h):
		return nil
	}
	file, value := "memory.limit_in_bytes", "-1"
	if h.v2 {
		file, value = "memory.max", "max"
		if used, ok := g.memory(); ok && bytes > 0 && used > bytes {
			return fmt.Errorf("%d MiB of memory are less than the %d MiB in use", bytes>>20, used>>20)
		}
	} else if err := g.enter(h); err != nil {
		return err
	}
	if bytes > 0 {
		value = strconv.FormatInt(bytes, 10)
	}
	err := g.write(h, file, value)
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%d MiB of memory are less than what is in use", bytes>>20)
	}
	return err
}

func (g *Group) updatePids(most int64) error {
	h := g.tree.limit["pids"]
	switch {
	case most == 0:
		return nil
	case h == nil && most > 0:
		return errors.New("no pids controller is available on this agent")
	case h == nil, most < 0 && !g.exists(h):
		return nil
	}
	value := "max"
	if most > 0 {
		value = strconv.FormatInt(most, 10)
	}
	if h.v2 {
		return g.write(h, "pids.max", value)
	}
	// The limit comes first: what forks without end can only be moved once it is held back.
	if err := g.make(h); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := g.write(h, "pids.max", value); err != nil {
		return err
	}
	return g.enter(h)
}

// LimitPids gives a group that has one another limit of processes and threads. Those that
// are there stay, also when they are more.
func (g *Group) LimitPids(most int64) error {
	if h := g.tree.limit["pids"]; h != nil && g.exists(h) {
		return g.write(h, "pids.max", strconv.FormatInt(most, 10))
	}
	return nil
}

// exists tells whether the group has a directory in a hierarchy.
func (g *Group) exists(h *hierarchy) bool {
	_, err := os.Stat(g.dir(h))
	return err == nil
}

// enter makes the group in a v1 hierarchy where it had nothing to limit until now,
// and moves its processes there, until none is outside: they may fork meanwhile.
func (g *Group) enter(h *hierarchy) error {
	// One that is there may be what a crash left in the middle of this.
	if err := g.make(h); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	const rounds = 100
	procs := filepath.Join(g.dir(h), "cgroup.procs")
	for range rounds {
		all, err := g.Pids()
		if err != nil {
			return err
		}
		inside, err := readPids(procs)
		if err != nil {
			return fmt.Errorf("list cgroup: %w", err)
		}
		in := map[int]bool{}
		for _, pid := range inside {
			in[pid] = true
		}
		moved := 0
		for _, pid := range all {
			if in[pid] {
				continue
			}
			moved++
			if err := writeFile(procs, strconv.Itoa(pid)); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("move process %d into its cgroup: %w", pid, err)
			}
		}
		if moved == 0 {
			return nil
		}
	}
	return errors.New("processes are forked faster than they can be moved into their cgroup; try again")
}

func (g *Group) write(h *hierarchy, file, value string) error {
	if err := writeFile(filepath.Join(g.dir(h), file), value); err != nil {
		return fmt.Errorf("set %s to %s: %w", file, value, err)
	}
	return nil
}

// cpuPeriod is the time in microseconds in which a quota may be used up.
const cpuPeriod = 100_000

// cpuQuota is a limit in cores as microseconds of a period.
func cpuQuota(cores float64) int { return max(1000, int(math.Round(cores*cpuPeriod))) }

// cpuShares is a request in cores as cpu.shares of v1.
func cpuShares(cores float64) int { return min(max(2, int(math.Round(cores*1024))), 262144) }

// cpuWeight is the same as cpu.weight of v2: the ranges 2 to 262144 and 1 to 10000
// are laid upon each other.
func cpuWeight(shares int) int { return 1 + (shares-2)*9999/262142 }

// SignalSession sends a signal to all that is in the session (setsid(2)) of a
// process, which may have ended.
func SignalSession(leader procid.Identity, sig syscall.Signal) error {
	return SessionOf(leader).Signal(sig)
}
