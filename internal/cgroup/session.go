package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"tandem/internal/procid"
)

// sessions are what holds the processes of a task together in ModeSession.
type sessions struct {
	numbers map[string]bool
	oldest  uint64
}

// sessionsOf returns the sessions of the leaders. A leader that has ended still names its
// session, because the kernel does not give a pid away while a session has that number.
func sessionsOf(leaders []procid.Identity) (sessions, error) {
	boot, err := procid.BootID()
	if err != nil {
		return sessions{}, err
	}
	out := sessions{numbers: map[string]bool{}}
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
				out.numbers[s.session] = true
			}
		}
		out.numbers[strconv.Itoa(l.Pid)] = true
		if out.oldest == 0 || l.StartTime < out.oldest {
			out.oldest = l.StartTime
		}
	}
	if own, ok := readSession("self"); ok {
		// Whatever a leader did to get here, the caller is no part of a task.
		delete(out.numbers, own.session)
	}
	return out, nil
}

// has tells whether a living process is in the sessions and not older than the first leader.
func (s sessions) has(pid string) bool {
	p, ok := readSession(pid)
	return ok && !p.dead && s.numbers[p.session] && p.start >= s.oldest
}

func (s sessions) pids() ([]int, error) {
	if len(s.numbers) == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && s.has(e.Name()) {
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
