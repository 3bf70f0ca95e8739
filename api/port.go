package api

import (
	"encoding/json"
	"fmt"
	"strings"
)

// PortUnpublished as HostPort means that the key is absent: the port is not
// published, or drawn where the network mode says so. Package network has the rules.
const PortUnpublished = -1

// MaxPort is the highest port number.
const MaxPort = 65535

// Port is a port that a container or process declares.
type Port struct {
	// Name is what services, health checks and variables refer to.
	Name string `json:"name,omitempty"`
	// ContainerPort is 0 when absent; processes have none.
	ContainerPort int `json:"containerPort,omitempty"`
	// HostPort is PortUnpublished when absent, 0 for a random port, otherwise fixed.
	HostPort int `json:"hostPort"`
	// HostIP is read and kept; it has no effect.
	HostIP string `json:"hostIP,omitempty"`
	// Protocol is tcp (default), udp, http or https, in lower case.
	Protocol string `json:"protocol,omitempty"`
}

func (p *Port) prefill() { p.HostPort = PortUnpublished }

// UnmarshalJSON keeps an absent hostPort apart from 0, which is a random port.
func (p *Port) UnmarshalJSON(b []byte) error {
	type plain Port
	v := plain{HostPort: PortUnpublished}
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("decode port: %w", err)
	}
	*p = Port(v)
	return nil
}

// Protocols that a port may have, and what each means on the wire.
var protocols = []string{"tcp", "udp", "http", "https"}

// Transport returns tcp or udp, which is what a protocol means on the wire.
func Transport(protocol string) string {
	if strings.EqualFold(protocol, "udp") {
		return "udp"
	}
	return "tcp"
}

func setPortDefaults(ports []Port) {
	for i := range ports {
		p := &ports[i]
		if p.Protocol = strings.ToLower(p.Protocol); p.Protocol == "" {
			p.Protocol = "tcp"
		}
	}
}

func (c *checker) portName(path, name string) {
	if !isName(name) {
		c.fail(path, name, "must be letters, digits, '-', '_' and '.', at most 63, the first and last a letter or digit")
	}
}

// ports checks each port by itself. Which ports go together in which network
// mode is a rule of package network.
func (c *checker) ports(path string, ports []Port) {
	c.most(path, len(ports), maxPorts, "ports")
	for i, p := range ports {
		at := indexPath(path, i)
		if p.Name != "" {
			c.portName(joinPath(at, "name"), p.Name)
		}
		c.oneOf(joinPath(at, "protocol"), p.Protocol, protocols...)
		if p.ContainerPort < 0 || p.ContainerPort > MaxPort {
			c.fail(joinPath(at, "containerPort"), p.ContainerPort, "must be 1 to %d, or 0 where the port is drawn", MaxPort)
		}
		if p.HostPort > MaxPort {
			c.fail(joinPath(at, "hostPort"), p.HostPort, "must be 1 to %d, 0 for a random port, or -1 for none", MaxPort)
		}
	}
}

func portNames(ports []Port) []string {
	var names []string
	for _, p := range ports {
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	return names
}
