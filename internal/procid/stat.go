package procid

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Scarce tells whether something failed for want of files or memory. That passes, and says
// nothing of what was asked about: a process that cannot be looked at need not be gone.
func Scarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// stat is what matters here of /proc/<pid>/stat (proc_pid_stat(5)).
type stat struct {
	state   byte
	group   int
	threads int
	start   uint64
}

func (s *stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	if pid <= 0 {
		return stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return stat{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	return parseStat(string(b))
}

// parseStat skips the command name by its last parenthesis, because the name
// may itself hold blanks and parentheses.
func parseStat(s string) (stat, error) {
	i := strings.LastIndexByte(s, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("stat %q: no command name", s)
	}
	f := strings.Fields(s[i+1:])
	const stateField, groupField, threadsField, startField = 0, 5 - 3, 20 - 3, 22 - 3
	if len(f) <= startField || len(f[stateField]) != 1 {
		return stat{}, fmt.Errorf("stat %q: too few fields", s)
	}
	start, err := strconv.ParseUint(f[startField], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat %q: start time: %w", s, err)
	}
	threads, err := strconv.Atoi(f[threadsField])
	if err != nil {
		return stat{}, fmt.Errorf("stat %q: number of threads: %w", s, err)
	}
	group, err := strconv.Atoi(f[groupField])
	if err != nil {
		return stat{}, fmt.Errorf("stat %q: process group: %w", s, err)
	}
	return stat{state: f[stateField][0], group: group, threads: threads, start: start}, nil
}

// Headless tells whether the main thread of a process has ended while others run. The kernel
// shows such a process as a zombie (proc_pid_stat(5)).
func Headless(pid int) bool {
	st, err := readStat(pid)
	return err == nil && st.state == 'Z' && !st.dead()
}

// isThread tells whether a number is that of a thread other than the first of its process:
// threads and processes get theirs from the same range. A pidfd is refused for it with
// EINVAL, since Linux 6.15 with ENOENT, though its stat(5) looks like that of a process.
func isThread(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	leader, err := strconv.Atoi(strings.TrimSpace(line))
	return err == nil && leader != pid
}
