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
	cldExited = 1
)

func (s *siginfo) outcome() Status {
	if s.code == cldExited {
		return Status{Code: int(s.status)}
	}
	return Status{Signal: int(s.status)}
}

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
	return int(info.pid), nil
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
