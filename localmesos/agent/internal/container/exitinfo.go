package container

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// exitInfo asks the kernel how a process ended that is somebody else's child:
// an executor that an earlier agent started. Linux can tell since 6.15, through
// a pidfd that was opened while the process lived.
type exitInfo struct{ fd int }

func openExitInfo(pid int) *exitInfo {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return &exitInfo{fd: fd}
}

// status is in the form of Container.Wait. The kernel has it a moment after
// the end, once the process's parent has collected it.
func (e *exitInfo) status() int32 {
	const tries, pause = 20, 5 * time.Millisecond
	for range tries {
		if e == nil {
			break
		}
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		err := unix.IoctlPidfdInfo(e.fd, &info)
		if err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			if ws := unix.WaitStatus(info.Exit_code); ws.Signaled() {
				return int32(128+int(ws.Signal())) << 8
			}
			return info.Exit_code
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			break
		}
		time.Sleep(pause)
	}
	return StatusUnknown
}

func (e *exitInfo) close() {
	if e != nil {
		_ = unix.Close(e.fd)
		e.fd = -1
	}
}
