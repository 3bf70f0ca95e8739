package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"tandem/internal/procid"
)

// sessionPids returns the living processes in the sessions of the leaders and
// not older than the first of them. A leader that has ended still names its
// session, because the kernel does not give a pid away while a session has that number.
func sessionPids(leaders []procid.Identity) ([]int, error) {
	boot, err := procid.BootID()
	if err != nil {
		return nil, err
	}
	sessions := map[string]bool{}
	var oldest uint64
	for _, l := range leaders {
		if l.BootID != boot {
			continue
		}
		// When a leader's pid is somebody else's now, its session ended before that.
		if now, err := procid.Of(l.Pid); err == nil {
			if now != l {
				continue
			}
			if s, ok := readSession(strconv.Itoa(l.Pid)); ok {
				sessions[s.session] = true
			}
		}
		sessions[strconv.Itoa(l.Pid)] = true
		if oldest == 0 || l.StartTime < oldest {
			oldest = l.StartTime
		}
	}
	if len(sessions) == 0 {
		return nil, nil
	}
	if own, ok := readSession("self"); ok {
		// Whatever a leader did to get here, the caller is no part of a task.
		delete(sessions, own.session)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := readSession(e.Name()); ok && !s.dead && sessions[s.session] && s.start >= oldest {
			out = append(out, pid)
		}
	}
	return out, nil
}

type sessionStat struct {
	session string
	dead    bool
	start   uint64
}

// readSession reads what matters here from /proc/<pid>/stat (proc_pid_stat(5)).
func readSession(pid string) (sessionStat, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return sessionStat{}, false
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	const state, session, start = 0, 3, 19
	if len(f) <= start {
		return sessionStat{}, false
	}
	ticks, err := strconv.ParseUint(f[start], 10, 64)
	return sessionStat{f[session], f[state] == "Z" || f[state] == "X", ticks}, err == nil
}
