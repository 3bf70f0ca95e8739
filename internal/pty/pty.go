// Package pty opens pseudo-terminals (pty(7)). The process daemon gives one to a
// session that asked for a terminal, and tests sit before one as a user does. It
// must never know what runs on a terminal.
package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open returns both ends of a new terminal: what is written to the terminal is
// read from the master. The caller closes them.
func Open() (master, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal at /dev/ptmx: %w; is devpts mounted?", err)
	}
	// Non-blocking before it becomes a file, so that a read of it can be given up.
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	peer, err := open(fd)
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, os.NewFile(uintptr(peer), "terminal"), nil
}

// open unlocks the other end and opens it by its master: the name below /dev/pts
// may be that of another mount's terminal (ioctl_tty(2), TIOCGPTPEER).
func open(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// SetSize tells a terminal, by either end, how many characters it is wide and
// high. Those who have it as their terminal get SIGWINCH.
func SetSize(f *os.File, width, height uint16) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("size of a terminal: %w", err)
	}
	var sizeErr error
	if err := c.Control(func(fd uintptr) {
		sizeErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	}); err != nil {
		return fmt.Errorf("size of a terminal: %w", err)
	}
	if sizeErr != nil {
		return fmt.Errorf("size of a terminal: %w", sizeErr)
	}
	return nil
}
