package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// The dump of listening TCP sockets through sock_diag(7). Reading /proc/net/tcp
// instead makes the kernel walk its table of established connections too, which
// takes milliseconds even when that table is empty; here it walks the listeners only.

const (
	sockDiagByFamily = 20
	tcpListen        = 10
	requestSize      = unix.SizeofNlMsghdr + 56
	diagMsgSize      = 72
)

// dumpTCP adds the listeners of one address family.
func (l *Listeners) dumpTCP(family uint8) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("sock_diag socket: %w", err)
	}
	defer unix.Close(fd)
	// The kernel answers at once or not at all; a bound keeps a lost answer from blocking.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fmt.Errorf("sock_diag deadline: %w", err)
	}
	// struct nlmsghdr, then struct inet_diag_req_v2: family, protocol, ext, pad, states, socket id.
	req := make([]byte, requestSize)
	ne := binary.NativeEndian
	ne.PutUint32(req[0:], requestSize)
	ne.PutUint16(req[4:], sockDiagByFamily)
	ne.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	req[16], req[17] = family, unix.IPPROTO_TCP
	ne.PutUint32(req[20:], 1<<tcpListen)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sock_diag request: %w", err)
	}
	buf := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sock_diag answer: %w", err)
		}
		done, err := l.takeDiag(buf[:n])
		if done || err != nil {
			return err
		}
	}
}

// takeDiag reads one datagram of netlink messages; done says that the dump has ended.
func (l *Listeners) takeDiag(b []byte) (done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(ne.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return false, errors.New("sock_diag answer: cut short")
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch ne.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				err = unix.Errno(-int32(ne.Uint32(body)))
			}
			return true, fmt.Errorf("sock_diag answer: %w", err)
		case sockDiagByFamily:
			l.takeSocket(body)
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return false, nil
}

// takeSocket reads struct inet_diag_msg: family, state, timer, retrans, then the
// socket's id (ports and addresses in network order), and its inode at the end.
func (l *Listeners) takeSocket(b []byte) {
	if len(b) < diagMsgSize {
		return
	}
	addr := netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	if b[0] == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(b[8:12]))
	}
	k := portKey{int(binary.BigEndian.Uint16(b[4:])), "tcp"}
	inode := strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b[68:])), 10)
	l.by[k] = append(l.by[k], Listener{Addr: addr, Port: k.port, Protocol: "tcp", inode: inode})
}
