package local

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"tandem/cmd/tandem/exit"
	"tandem/network"
)

// address is a TCP address that the stack will listen on, and the flag that changes it.
type address struct {
	what, host string
	port       int
	flag       string
}

func (a address) String() string { return net.JoinHostPort(a.host, strconv.Itoa(a.port)) }

// addresses are all that the stack listens on.
func (o *Options) addresses(machines []machine) []address {
	host, port, _ := net.SplitHostPort(o.Listen)
	n, _ := strconv.Atoi(port)
	out := []address{
		{"the scheduler", host, n, "--listen"},
		{"the Mesos master", masterIP, o.MasterPort, "--master-port"},
	}
	for _, m := range machines {
		out = append(out, address{m.Name, m.IP, m.Port, "--agent-port"})
	}
	return out
}

// checkPorts refuses when an address is taken, before anything is started, and
// names who has it. Binding tells more than looking: addresses that this
// machine lacks, and ports that need privileges, come out too.
func checkPorts(ctx context.Context, addresses []address) error {
	var errs []error
	for _, a := range addresses {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", a.String())
		if err == nil {
			l.Close()
			continue
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			errs = append(errs, exit.Errorf(exit.Usage, "%s cannot listen on %s: %w; choose another with %s", a.what, a, err, a.flag))
			continue
		}
		errs = append(errs, exit.Errorf(exit.Refused, "%s cannot listen on %s: port %d is already used%s; stop that one, or choose another with %s",
			a.what, a, a.port, whoListens(a), a.flag))
	}
	return errors.Join(errs...)
}

// whoListens is " by name (pid n)", or empty when it cannot be known.
func whoListens(a address) string {
	addr, err := netip.ParseAddr(a.host)
	if err != nil {
		return ""
	}
	listeners, err := network.ReadListeners()
	if err != nil {
		return ""
	}
	l, found := listeners.Conflict(addr, a.port, "tcp")
	if !found {
		return ""
	}
	if p := listeners.Process(l); p != "" {
		return " by " + p
	}
	return ""
}
