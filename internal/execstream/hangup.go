package execstream

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hangupTick is the pause between two looks at a connection.
const hangupTick = 500 * time.Millisecond

// Abrupt has the kernel reset a TCP connection when it is closed, also by the end of
// the program, instead of sending what is on its way first (SO_LINGER in socket(7)).
// Behind input that nobody reads, the other side would not hear of the end.
func Abrupt(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // the end is then heard of later
	}
}

// OnHangup calls gone once the other side of a connection has hung up, also while
// nobody reads what it has sent before (POLLRDHUP in poll(2); over TCP, when the other
// side is Abrupt); that a command does not
// read its input must not hide that its user has gone. The returned function ends the
// watch and waits for it; so does the context. A connection that is no socket is not watched.
func OnHangup(ctx context.Context, conn net.Conn, gone func()) (stop func()) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return func() {}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(hangupTick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			over := false
			err := raw.Control(func(fd uintptr) {
				fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
				n, err := unix.Poll(fds, 0)
				over = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			})
			if err != nil {
				return // it was closed here, by somebody who knows
			}
			if over {
				gone()
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
