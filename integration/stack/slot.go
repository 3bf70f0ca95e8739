package stack

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// MaxAgents is how many agents of a stack have ports of their own.
const MaxAgents = 3

// Ports of stacks lie below those that the kernel draws for outgoing
// connections (ip(7), ip_local_port_range), so that nobody takes one by
// accident while its process is down.
const (
	firstPort   = 20000
	slots       = 40
	portsOfSlot = 250
	serverPorts = 10
	// sparePorts, the last of the serverPorts, are for fixed ports of tests.
	sparePorts = 5
	agentPorts = (portsOfSlot - serverPorts) / MaxAgents
)

// slot is a range of ports that belongs to one stack, on whatever address.
type slot struct {
	number int
	lock   net.Listener
}

// takeSlot takes a range of ports that no other stack on this machine has and
// nobody listens in. The lock is an abstract socket: it leaves no file, and the
// kernel frees it with the process (unix(7)).
func takeSlot() (*slot, error) {
	for i := range slots {
		// Stacks that start at once, in several test binaries, begin at different places.
		n := (os.Getpid() + i) % slots
		lock, err := net.Listen("unix", "@tandem-stack-"+strconv.Itoa(n)) //nolint:noctx // returns at once
		if err != nil {
			continue
		}
		s := &slot{number: n, lock: lock}
		if s.free() {
			return s, nil
		}
		s.release()
	}
	return nil, fmt.Errorf("stack: all %d ranges of ports from %d on are in use", slots, firstPort)
}

func (s *slot) release() { _ = s.lock.Close() }

// port returns one of the ports of the stack's own servers.
func (s *slot) port(i int) int { return firstPort + s.number*portsOfSlot + i }

// spare returns one of the ports that are for tests.
func (s *slot) spare(i int) int { return s.port(serverPorts - sparePorts + i) }

// agentPorts returns the range that an agent offers.
func (s *slot) agentPorts(i int) (begin, end int) {
	begin = s.port(serverPorts + i*agentPorts)
	return begin, begin + agentPorts - 1
}

// free tells whether nobody listens on the ports.
func (s *slot) free() bool {
	for i := range portsOfSlot {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(s.port(i))) //nolint:noctx // returns at once
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
