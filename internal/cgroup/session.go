package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"tandem/internal/procid"
)

// sessionPids returns the living processes in the session that leader leads
// or led. A session's number is its leader's pid, and the kernel does not give
// that pid away while the session has members, so those older than the leader
// belong to another session only if the number was reused: they are left out.
func sessionPids(leader procid.Identity) ([]int, error) {
	if leader.IsZero() {
		return nil, nil
	}
	if boot, err := procid.BootID(); err != nil || boot != leader.BootID {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	// When the leader's pid now belongs to somebody else, its session ended before.
	if now, err := procid.Of(leader.Pid); err == nil && now != leader {
		return nil, nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		s := string(b)
		f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
		const state, session, start = 0, 3, 19
		if len(f) <= start || f[state] == "Z" || f[state] == "X" || f[session] != strconv.Itoa(leader.Pid) {
			continue
		}
		if ticks, err := strconv.ParseUint(f[start], 10, 64); err == nil && ticks >= leader.StartTime {
			out = append(out, pid)
		}
	}
	return out, nil
}
