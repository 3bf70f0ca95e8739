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
			if s, ok, err := readSession(strconv.Itoa(l.Pid)); err != nil {
				return sessions{}, err
			} else if ok {
				out.numbers[s.session] = true
			}
		}
		out.numbers[strconv.Itoa(l.Pid)] = true
		if out.oldest == 0 || l.StartTime < out.oldest {
			out.oldest = l.StartTime
		}
	}
	if own, ok, err := readSession("self"); err != nil {
		return sessions{}, err
	} else if ok {
		// Whatever a leader did to get here, the caller is no part of a task.
		delete(out.numbers, own.session)
	}
	return out, nil
}

// has tells whether a living process is in the sessions and not older than the first leader.
func (s sessions) has(pid string) (bool, error) {
	p, ok, err := readSession(pid)
	return ok && !p.dead && s.numbers[p.session] && p.start >= s.oldest, err
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
		if err != nil {
			continue
		}
		in, err := s.has(e.Name())
		if err != nil {
			return nil, err
		}
		if in {
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

// readSession reads what matters here from /proc/<pid>/stat (proc_pid_stat(5)); ok is
// false when there is no such process, or none that may be looked at. For want of
// files or memory nothing is known, and nothing must be taken for gone.
func readSession(pid string) (st sessionStat, ok bool, err error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if procid.Scarce(err) {
		return sessionStat{}, false, fmt.Errorf("look at process %s: %w", pid, err)
	}
	if err != nil {
		return sessionStat{}, false, nil //nolint:nilerr // see above
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	const state, session, threads, start = 0, 3, 17, 19
	if len(f) <= start {
		return sessionStat{}, false, nil
	}
	ticks, numErr := strconv.ParseUint(f[start], 10, 64)
	// One whose main thread has ended while others run is shown as a zombie, too.
	dead := (f[state] == "Z" || f[state] == "X") && f[threads] == "1"
	return sessionStat{f[session], dead, ticks}, numErr == nil, nil
}
