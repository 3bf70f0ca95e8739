package procid

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is the kernel's siginfo_t as waitid(2) fills it on 64-bit Linux.
type siginfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [128 - 28]byte
}

// The codes of a SIGCHLD (sigaction(2)).
const (
	cldExited  = 1
	cldDumped  = 3
	cldTrapped = 4
	cldStopped = 5
)

func (s *siginfo) outcome() Status {
	if s.code == cldExited {
		return Status{Code: int(s.status)}
	}
	return Status{Signal: int(s.status)}
}

// ended tells an end from a stop.
func (s *siginfo) ended() bool { return s.code >= cldExited && s.code <= cldDumped }

func waitid(idType, id int, info *siginfo, options int) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_WAITID, uintptr(idType), uintptr(id),
			uintptr(unsafe.Pointer(info)), uintptr(options), 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// PeekZombie returns the pid of some child of the caller that has ended and
// was not collected yet, without collecting it, and 0 when there is none.
func PeekZombie() (int, error) {
	var info siginfo
	err := waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	if errors.Is(err, unix.ECHILD) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("waitid: %w", err)
	}
	if !info.ended() {
		// A traced child that stands still is shown whatever one asks for, and
		// hides those behind it for the moment.
		return 0, nil
	}
	return int(info.pid), nil
}

// PeekEnd tells how an ended child ended without collecting it. done is false
// while it runs and when the caller has no such child.
func PeekEnd(pid int) (st Status, done bool, err error) {
	var info siginfo
	err = waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	switch {
	case errors.Is(err, unix.ECHILD):
		return Status{}, false, nil
	case err != nil:
		return Status{}, false, fmt.Errorf("waitid pid %d: %w", pid, err)
	case info.pid == 0, !info.ended():
		return Status{}, false, nil
	}
	return info.outcome(), true, nil
}

// IsChild tells whether the caller has a child of this number, ended or not.
func IsChild(pid int) bool {
	var info siginfo
	return waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT) == nil
}

// AwaitTrap waits until a child that asked to be traced stands still after its
// exec (ptrace(2), PTRACE_TRACEME), or returns ErrGone when it was killed before.
// It collects nothing. Call it from the thread that forked.
func AwaitTrap(pidfd int) error {
	var info siginfo
	err := waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL)
	switch {
	case errors.Is(err, unix.ECHILD), err == nil && info.code != cldTrapped && info.code != cldStopped:
		return fmt.Errorf("it was killed while it started: %w", ErrGone)
	case err != nil:
		return fmt.Errorf("wait for the exec: %w", err)
	}
	return nil
}

// ReapPid collects an ended child by number. It is for zombies only: those
// keep their pid until they are collected, so the number is safe.
func ReapPid(pid int) (Status, error) {
	var info siginfo
	if err := waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG); err != nil {
		return Status{}, fmt.Errorf("waitid pid %d: %w", pid, err)
	}
	if info.pid == 0 {
		return Status{}, fmt.Errorf("waitid pid %d: still runs", pid)
	}
	return info.outcome(), nil
}

// BecomeSubreaper makes this process the parent of every orphan among its
// descendants (prctl(2), PR_SET_CHILD_SUBREAPER), so that it learns how
// processes end that put themselves into the background.
func BecomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}
