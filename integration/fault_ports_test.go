package integration

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"tandem/network"
)

// portTaken is nil when nobody listens on a port of any address, and tells otherwise what the kernel
// knows of the port's sockets (proc_pid_net(5)).
func portTaken(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err == nil {
		l.Close()
		return nil
	}
	if list, lookErr := network.ReadListeners(); lookErr == nil {
		if x, found := list.Conflict(netip.IPv6Unspecified(), port, "tcp"); found {
			return fmt.Errorf("%w: %s listens at %s", err, cmp.Or(list.Process(x), "nobody who has a process"), x.Addr)
		}
	}
	var sockets []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile("/proc/net/" + table) // the error that there is tells enough
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, fmt.Sprintf(":%04X ", port)) {
				sockets = append(sockets, strings.TrimSpace(line))
			}
		}
	}
	return fmt.Errorf("%w: nobody listens, its sockets are %q", err, sockets)
}
