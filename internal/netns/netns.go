// Package netns makes sockets in the network namespace of another process
// without running a program there. It must never leave a thread of this program
// in a foreign namespace.
//
// A socket belongs for ever to the namespace in which it was made, so only
// socket(2) has to happen inside: one thread goes in, makes the socket and comes
// back; connecting and everything after that is done from anywhere. See
// setns(2), network_namespaces(7).
package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
)

// Open opens the network namespace of a process, for the caller to close. It
// is nil, without an error, when that is the caller's own. The error wraps
// procid.ErrGone when the process has ended; fs.ErrPermission means that the
// caller may not look into it.
func Open(p *procid.Process) (*os.File, error) {
	pid := p.Identity().Pid
	ns, err := ofProcess(pid)
	// The number may be another's by now, and what was opened with it. A process
	// that is ending leaves its namespaces before it is a zombie.
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), p.Identity().Gone():
		err = procid.ErrGone
	case err == nil && !p.Identity().Alive():
		err = errors.New("whether it is this process's cannot be told now, for want of files or memory")
	}
	if err != nil {
		if ns != nil {
			ns.Close()
		}
		return nil, fmt.Errorf("network namespace of pid %d: %w", pid, err)
	}
	same, err := own(ns)
	if err != nil || same {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// ofProcess opens the namespace of the process that has a number. One whose main thread has
// ended while others run is in none by its own number; theirs have it.
func ofProcess(pid int) (*os.File, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	ns, err := os.Open(dir + "/ns/net")
	if !errors.Is(err, fs.ErrNotExist) {
		return ns, err
	}
	threads, listErr := os.ReadDir(dir + "/task")
	if listErr != nil {
		return nil, listErr
	}
	for _, t := range threads {
		if ns, err = os.Open(dir + "/task/" + t.Name() + "/ns/net"); err == nil {
			return ns, nil
		}
	}
	return nil, err
}

// own tells whether ns is the caller's namespace.
func own(ns *os.File) (bool, error) {
	// Of the thread, not of /proc/self: the main thread could be somewhere else.
	mine, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return false, fmt.Errorf("own network namespace: %w", err)
	}
	its, err := ns.Stat()
	if err != nil {
		return false, fmt.Errorf("network namespace: %w", err)
	}
	return os.SameFile(mine, its), nil
}

// DialTCP connects to a TCP port from within a namespace; nil is the caller's
// own. It honours the context's deadline and cancellation.
func DialTCP(ctx context.Context, ns *os.File, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := connected(ctx, ns, to, func(f *os.File) (err error) {
		conn, err = net.FileConn(f)
		return err
	})
	return conn, err
}

// ReachTCP is DialTCP for those who only want to know whether a connection is
// accepted. It costs half of it: no poller is asked when the peer is near.
func ReachTCP(ctx context.Context, ns *os.File, to netip.AddrPort) error {
	return connected(ctx, ns, to, nil)
}

// connected makes a connection and lends it to use, when that is not nil.
func connected(ctx context.Context, ns *os.File, to netip.AddrPort, use func(*os.File) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fd, err := socket(ns, to.Addr())
	if err != nil {
		return fmt.Errorf("socket in the network namespace: %w", err)
	}
	began := unix.Connect(fd, sockaddr(to))
	if began == nil && use == nil {
		return os.NewSyscallError("close", unix.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close()
	switch {
	case began == nil:
	case errors.Is(began, unix.EINPROGRESS), errors.Is(began, unix.EINTR):
		err = await(ctx, f)
	default:
		err = os.NewSyscallError("connect", began)
	}
	if err != nil {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	if use == nil {
		return nil
	}
	return use(f)
}

// socket makes a non-blocking socket for TCP.
func socket(ns *os.File, addr netip.Addr) (int, error) {
	family := unix.AF_INET
	if addr.Is6() && !addr.Is4In6() {
		family = unix.AF_INET6
	}
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	if ns == nil {
		fd, err := unix.Socket(family, kind, 0)
		return fd, os.NewSyscallError("socket", err)
	}
	type made struct {
		fd  int
		err error
	}
	// A goroutine of its own, for a thread that finds no way back ends with it.
	ch := make(chan made, 1)
	go func() {
		fd, err := socketIn(ns, family, kind)
		ch <- made{fd, err}
	}()
	m := <-ch
	return m.fd, m.err
}

var (
	homeMu sync.Mutex
	homeFD = -1
)

// home is the program's own namespace, opened once and for good. The first try may fail, for
// want of files, say; the next one need not.
func home() (int, error) {
	homeMu.Lock()
	defer homeMu.Unlock()
	if homeFD >= 0 {
		return homeFD, nil
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("own network namespace: %w", err)
	}
	homeFD = fd
	return fd, nil
}

// socketIn makes a socket in another namespace.
func socketIn(ns *os.File, family, kind int) (fd int, err error) {
	fd = -1
	err = within(ns, func() error {
		var err error
		fd, err = unix.Socket(family, kind, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil && fd >= 0 {
		unix.Close(fd)
		fd = -1
	}
	return fd, err
}

// within calls fn on a thread that is in the namespace meanwhile. It must be the
// last thing that its goroutine does: a thread that finds no way back ends with it.
func within(ns *os.File, fn func() error) (err error) {
	runtime.LockOSThread()
	stay := false
	defer func() {
		// A locked thread ends with its goroutine, so nothing else runs on one
		// that could not come back.
		if !stay {
			runtime.UnlockOSThread()
		}
	}()
	back, err := home()
	if err != nil {
		return err
	}
	raw, err := ns.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(target uintptr) {
		if err = unix.Setns(int(target), unix.CLONE_NEWNET); err != nil {
			err = os.NewSyscallError("setns", err)
			return
		}
		err = fn()
		stay = unix.Setns(back, unix.CLONE_NEWNET) != nil
	})
	if stay {
		return errors.New("no way back to the own namespace")
	}
	return errors.Join(controlErr, err)
}

// Addrs returns the addresses of the interfaces in a namespace, those of loopback
// and of single links left out, in order.
func Addrs(ns *os.File) ([]netip.Addr, error) {
	type answer struct {
		addrs []net.Addr
		err   error
	}
	ch := make(chan answer, 1)
	go func() {
		var a answer
		a.err = within(ns, func() (err error) {
			a.addrs, err = net.InterfaceAddrs()
			return err
		})
		ch <- a
	}()
	a := <-ch
	if a.err != nil {
		return nil, fmt.Errorf("addresses in the network namespace: %w", a.err)
	}
	var out []netip.Addr
	for _, addr := range a.addrs {
		p, err := netip.ParsePrefix(addr.String())
		if ip := p.Addr().Unmap(); err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// await waits for the end of a connection attempt, see connect(2), EINPROGRESS.
func await(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := f.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var outcome error
	err = raw.Write(func(fd uintptr) bool {
		done, e := settled(int(fd))
		outcome = e
		return done
	})
	switch {
	case err == nil:
		return os.NewSyscallError("connect", outcome)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.DeadlineExceeded
	}
	return err
}

// settled tells whether a connection attempt has come to its end, and to which.
func settled(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(fds, 0)
	}
	if err != nil || n == 0 {
		return err != nil, err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if code != 0 {
		return true, syscall.Errno(code)
	}
	return true, nil
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if a := to.Addr().Unmap(); a.Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}
