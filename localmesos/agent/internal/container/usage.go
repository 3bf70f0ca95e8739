package container

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Usage is what the processes of a container use.
type Usage struct {
	// UserSecs and SystemSecs are CPU times, with those of children that have ended
	// and were waited for.
	UserSecs, SystemSecs float64
	// RSS is memory in bytes; what processes share counts for each.
	RSS uint64
	// Processes and Threads are those that are there now.
	Processes, Threads int
}

// Usage asks the kernel for all processes of the container, those that are found by its
// cgroup (or session), through proc_pid_stat(5).
func (c *Container) Usage() (Usage, error) {
	var u Usage
	pids, err := c.group.Pids()
	if err != nil {
		return u, err
	}
	for _, pid := range pids {
		u.add(pid)
	}
	return u, nil
}

// add counts a process; one that is gone has nothing.
func (u *Usage) add(pid int) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return
	}
	// The name may hold anything, so the rest is found from its end; fields are
	// counted from the state, which follows it.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	const state, utime, stime, cutime, cstime, threads, rss, hertz = 0, 11, 12, 13, 14, 17, 21, 100
	if len(f) <= rss || f[state] == "Z" {
		return
	}
	n := func(i int) float64 { v, _ := strconv.ParseFloat(f[i], 64); return v }
	u.UserSecs += (n(utime) + n(cutime)) / hertz
	u.SystemSecs += (n(stime) + n(cstime)) / hertz
	u.RSS += uint64(n(rss)) * uint64(os.Getpagesize())
	u.Processes++
	u.Threads += int(n(threads))
}
