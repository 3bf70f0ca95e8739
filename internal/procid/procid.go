// Package procid identifies processes so that a number used again is never
// taken for the process that had it before. A pid is only unique while its
// process lives; (boot id, pid, start time) is unique for ever. Signals go
// through a pidfd that was checked after it was opened, so there is no moment in
// which a stranger can be hit. It must never signal by number.
package procid

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

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

// bootID is known once it was read: a want of files or memory passes.
var bootID atomic.Pointer[string]

// BootID returns the id of this boot.
func BootID() (string, error) {
	if known := bootID.Load(); known != nil {
		return *known, nil
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	bootID.Store(&id)
	return id, nil
}

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

// Alive tells whether the process is known to exist and not to be a zombie. One whose main
// thread has ended while others run is alive, though the kernel shows it as a zombie.
func (id Identity) Alive() bool {
	gone, err := id.ended()
	return err == nil && !gone
}

// Gone tells whether the process is known to have ended, a zombie included. When it cannot be
// looked at, for want of files or memory, it is neither Alive nor Gone.
func (id Identity) Gone() bool {
	gone, err := id.ended()
	return err == nil && gone
}

func (id Identity) ended() (bool, error) {
	now, err := BootID()
	if err != nil {
		return false, err
	}
	if id.Pid <= 0 || now != id.BootID {
		return true, nil
	}
	st, err := readStat(id.Pid)
	if errors.Is(err, ErrGone) {
		return true, nil
	}
	return st.start != id.StartTime || st.dead(), err
}

// Process is a checked handle on one process. It stays valid, and stays
// harmless, after the process has ended and its pid has been given away.
type Process struct {
	id     Identity
	f      *os.File
	closed atomic.Bool
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
	if errors.Is(err, unix.ESRCH) || (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)) && isThread(id.Pid) {
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
func (p *Process) Close() error {
	p.closed.Store(true)
	return p.f.Close()
}

// unusable is why the handle does not work. What package os says of a closed file by way of
// its number is an error that nobody can tell from others.
func (p *Process) unusable(err error) error {
	if err != nil && p.closed.Load() {
		err = os.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("pid %d: %w", p.id.Pid, err)
	}
	return nil
}

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
		return p.unusable(err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return p.unusable(err)
	}
	return inner
}
