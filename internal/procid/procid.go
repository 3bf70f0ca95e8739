// Package procid identifies processes so that a number used again is never
// taken for the process that had it before. A pid is only unique while its
// process lives; (boot id, pid, start time) is unique for ever. Signals go
// through a pidfd that was checked after it was opened, so there is no moment in
// which a stranger can be hit. It must never signal by number.
package procid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone says that the process with this identity does not exist any more.
var ErrGone = errors.New("process is gone")

// Identity names one process for ever.
type Identity struct {
	// BootID is the kernel's random id of this boot (random(4), boot_id).
	BootID string `json:"bootID"`
	Pid    int    `json:"pid"`
	// StartTime is field 22 of /proc/<pid>/stat: clock ticks since boot (proc_pid_stat(5)).
	StartTime uint64 `json:"startTime"`
}

// IsZero tells whether the identity names no process.
func (id Identity) IsZero() bool { return id.Pid == 0 }

// String renders pid@start for logs.
func (id Identity) String() string { return fmt.Sprintf("%d@%d", id.Pid, id.StartTime) }

var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})

// BootID returns the id of this boot.
func BootID() (string, error) { return bootID() }

// Of returns the identity of the process that has this pid now, or ErrGone.
func Of(pid int) (Identity, error) {
	boot, err := BootID()
	if err != nil {
		return Identity{}, err
	}
	st, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{BootID: boot, Pid: pid, StartTime: st.start}, nil
}

// Alive tells whether the process exists and is not a zombie. One whose main thread has
// ended while others run is alive, though the kernel shows it as a zombie.
func (id Identity) Alive() bool {
	now, err := BootID()
	if err != nil || id.Pid <= 0 || now != id.BootID {
		return false
	}
	st, err := readStat(id.Pid)
	return err == nil && st.start == id.StartTime && !st.dead()
}

type stat struct {
	state   byte
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
	const stateField, threadsField, startField = 0, 20 - 3, 22 - 3
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
	return stat{state: f[stateField][0], threads: threads, start: start}, nil
}

// Process is a checked handle on one process. It stays valid, and stays
// harmless, after the process has ended and its pid has been given away.
type Process struct {
	id Identity
	f  *os.File
}

// Open returns a handle on exactly this process, or ErrGone. A zombie can
// be opened: Wait returns at once for it.
func Open(id Identity) (*Process, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	if id.BootID != boot {
		return nil, fmt.Errorf("pid %d is from another boot: %w", id.Pid, ErrGone)
	}
	if id.Pid <= 0 {
		return nil, fmt.Errorf("pid %d: %w", id.Pid, ErrGone)
	}
	fd, err := unix.PidfdOpen(id.Pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("pid %d: %w", id.Pid, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", id.Pid, err)
	}
	p := &Process{id: id, f: os.NewFile(uintptr(fd), "pidfd")}
	// The check comes after the open: from here on the pidfd pins the process,
	// so what the check sees is what a signal would reach.
	if st, err := readStat(id.Pid); err != nil || st.start != id.StartTime {
		p.Close()
		if err == nil || errors.Is(err, ErrGone) {
			return nil, fmt.Errorf("pid %d now belongs to another process: %w", id.Pid, ErrGone)
		}
		return nil, err
	}
	return p, nil
}

// OpenPid returns a handle on the process that has this pid now.
func OpenPid(pid int) (*Process, error) {
	id, err := Of(pid)
	if err != nil {
		return nil, err
	}
	return Open(id)
}

// Identity returns what the handle was opened for.
func (p *Process) Identity() Identity { return p.id }

// Close releases the handle; a Wait under way returns os.ErrClosed.
func (p *Process) Close() error { return p.f.Close() }

// Signal sends sig, or returns ErrGone.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.control(func(fd int) error {
		err := unix.PidfdSendSignal(fd, sig, nil, 0)
		if errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal %d to pid %d: %w", int(sig), p.id.Pid, ErrGone)
		}
		if err != nil {
			return fmt.Errorf("signal %d to pid %d: %w", int(sig), p.id.Pid, err)
		}
		return nil
	})
}

// Wait returns nil once the process has ended (a zombie has), or the context's
// error. It needs no thread: the runtime's poller watches the pidfd. One Wait
// at a time.
func (p *Process) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("wait for pid %d: %w", p.id.Pid, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := p.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for pid %d: %w", p.id.Pid, err)
	}
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		var ended bool
		ended, pollErr = readable(int(fd))
		return ended || pollErr != nil
	})
	switch {
	case pollErr != nil:
		return fmt.Errorf("wait for pid %d: %w", p.id.Pid, pollErr)
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("wait for pid %d: %w", p.id.Pid, err)
	}
}

// Status is how a child of the caller ended.
type Status struct {
	// Code is the exit code; 0 when a signal ended the process.
	Code int
	// Signal is the number of the signal that ended it, 0 if none did.
	Signal int
}

// ErrNotChild says that the process is no child of the caller (any more), so
// nobody can tell it how the process ended.
var ErrNotChild = errors.New("not a child of this process")

// Reap collects how an ended child ended. It does not block; a child that
// still runs is an error.
func (p *Process) Reap() (Status, error) {
	var out Status
	err := p.control(func(fd int) error {
		// pid 0 in the answer means that the child has not ended.
		var info siginfo
		err := waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOHANG)
		switch {
		case errors.Is(err, unix.ECHILD):
			return fmt.Errorf("pid %d: %w", p.id.Pid, ErrNotChild)
		case err != nil:
			return fmt.Errorf("waitid pid %d: %w", p.id.Pid, err)
		case info.pid == 0:
			return fmt.Errorf("waitid pid %d: still runs", p.id.Pid)
		}
		out = info.outcome()
		return nil
	})
	return out, err
}

func (p *Process) control(f func(fd int) error) error {
	raw, err := p.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("pid %d: %w", p.id.Pid, err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return fmt.Errorf("pid %d: %w", p.id.Pid, err)
	}
	return inner
}

func readable(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0, err
	}
}
