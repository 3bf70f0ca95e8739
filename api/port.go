package api

import (
	"encoding/json"
	"fmt"
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
