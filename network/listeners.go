package network

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/api"
)

// Listener is a socket that waits for connections (tcp) or datagrams (udp).
type Listener struct {
	Addr     netip.Addr
	Port     int
	Protocol string
	inode    string
}

// Listeners is one look at who listens in this process's network namespace.
type Listeners struct {
	proc string
	by   map[portKey][]Listener
}

// ReadListeners looks once, for any number of questions. It asks the kernel by
// sock_diag(7) for TCP and reads proc(5) for UDP; where the kernel lacks
// sock_diag, proc for both.
func ReadListeners() (*Listeners, error) {
	l := &Listeners{proc: "/proc", by: map[portKey][]Listener{}}
	tables := procTables[2:]
	if err := errors.Join(l.dumpTCP(unix.AF_INET), l.dumpTCP(unix.AF_INET6)); err != nil {
		clear(l.by)
		tables = procTables
	}
	if err := l.readProc(tables); err != nil {
		return nil, err
	}
	return l, nil
}

type procTable struct{ file, protocol, state string }

var procTables = []procTable{
	{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, // TCP_LISTEN
	{"udp", "udp", "07"}, {"udp6", "udp", "07"}, // bound, not connected
}

func (l *Listeners) readProc(tables []procTable) error {
	for _, table := range tables {
		f, err := os.Open(filepath.Join(l.proc, "net", table.file))
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return fmt.Errorf("who listens: %w", err)
		}
		err = l.parse(f, table.protocol, table.state)
		f.Close()
		if err != nil {
			return fmt.Errorf("who listens: read %s: %w", f.Name(), err)
		}
	}
	return nil
}

// parse reads one table; lines that it does not understand are left out.
func (l *Listeners) parse(r io.Reader, protocol, state string) error {
	s := bufio.NewScanner(r)
	for s.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
		f := strings.Fields(s.Text())
		if len(f) < 10 || f[3] != state {
			continue
		}
		addr, port, ok := parseAddress(f[1])
		if !ok {
			continue
		}
		k := portKey{port, protocol}
		l.by[k] = append(l.by[k], Listener{Addr: addr, Port: port, Protocol: protocol, inode: f[9]})
	}
	return s.Err()
}

// parseAddress reads "0100007F:1F90". The kernel prints the address as 32-bit
// words in the machine's byte order, which is little-endian wherever this runs.
func parseAddress(s string) (netip.Addr, int, bool) {
	host, p, ok := strings.Cut(s, ":")
	if !ok {
		return netip.Addr{}, 0, false
	}
	port, err := strconv.ParseUint(p, 16, 16)
	if err != nil {
		return netip.Addr{}, 0, false
	}
	b, err := hex.DecodeString(host)
	if err != nil || (len(b) != 4 && len(b) != 16) {
		return netip.Addr{}, 0, false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr.Unmap(), int(port), true
}

// Conflict returns a listener in whose way a task on addr:port would be.
//
// What a task binds is not known before it runs: most bind the wildcard, which
// collides with a listener on any address. So any listener is a conflict, except
// when addr is a loopback address: there (agents simulated on one machine, each
// with its own 127.0.0.x) only the same address and the wildcard are.
func (l *Listeners) Conflict(addr netip.Addr, port int, protocol string) (Listener, bool) {
	addr = addr.Unmap()
	for _, x := range l.by[portKey{port, protocol}] {
		if !addr.IsLoopback() || x.Addr.IsUnspecified() || x.Addr == addr {
			return x, true
		}
	}
	return Listener{}, false
}

// CheckPorts returns an error that names every host port that something else
// listens on already, one *InUseError each; ports without a host port are passed over.
func (l *Listeners) CheckPorts(addr netip.Addr, ports []api.TaskPort) error {
	var errs []error
	for _, p := range ports {
		if p.HostPort <= 0 {
			continue
		}
		if x, taken := l.Conflict(addr, p.HostPort, p.Protocol); taken {
			errs = append(errs, &InUseError{Name: p.Name, Listener: x, Process: l.Process(x)})
		}
	}
	return errors.Join(errs...)
}

// CheckFree is CheckPorts for one port; addr is an IP address, or empty for the wildcard.
func CheckFree(addr string, port int, protocol string) error {
	return CheckFreePorts(addr, []api.TaskPort{{HostPort: port, Protocol: protocol}})
}

// CheckFreePorts looks once and checks all the ports that a task publishes on addr.
func CheckFreePorts(addr string, ports []api.TaskPort) error {
	ip := netip.IPv4Unspecified()
	if addr != "" {
		var err error
		if ip, err = netip.ParseAddr(addr); err != nil {
			return fmt.Errorf("check ports on %q: %w; use an IP address", addr, err)
		}
	}
	if len(ports) == 0 {
		return nil // to ask the kernel takes as long as to start a process
	}
	l, err := ReadListeners()
	if err != nil {
		return err
	}
	return l.CheckPorts(ip, ports)
}

// Process says who holds the socket, as "name (pid 12)", or "" when that cannot
// be known: another user's process, or a namespace that hides it. It reads the
// descriptors of every process, so it is for conflicts only.
func (l *Listeners) Process(x Listener) string {
	want := "socket:[" + x.inode + "]"
	fds, err := filepath.Glob(filepath.Join(l.proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != want {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue
		}
		return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), filepath.Base(dir))
	}
	return ""
}

// InUseError says that something listens on a port that a task wants.
type InUseError struct {
	// Name is the port's name; may be empty.
	Name     string
	Listener Listener
	// Process is the listener's name and pid; empty when unknown.
	Process string
}

// Error names the port, the listener where it is known, and the remedy.
func (e *InUseError) Error() string {
	who := e.Process
	if who == "" {
		who = "something"
	}
	c := Claim{Port: e.Listener.Port, Name: e.Name}
	return fmt.Sprintf("%s: hostPort %d is already in use on this agent: %s listens on %s/%s; stop it, choose another port or use 0 for a random one",
		c.label(), e.Listener.Port, who, netip.AddrPortFrom(e.Listener.Addr, uint16(e.Listener.Port)), e.Listener.Protocol)
}
