package procid

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Outcome tells how an ended process ended that somebody else has collected:
// Linux 6.15 and later keep it for whoever held a pidfd by then (ioctl_pidfd(2),
// PIDFD_INFO_EXIT). known is false until it was collected. supported is false
// where the kernel cannot tell at all.
func (p *Process) Outcome() (st Status, known, supported bool) {
	err := p.control(func(fd int) error {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if err := unix.IoctlPidfdInfo(fd, &info); err != nil {
			return fmt.Errorf("pid %d: %w", p.id.Pid, err)
		}
		if info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			ws := syscall.WaitStatus(info.Exit_code)
			if known = true; ws.Signaled() {
				st.Signal = int(ws.Signal())
			} else {
				st.Code = ws.ExitStatus()
			}
		}
		return nil
	})
	return st, known, err == nil
}
