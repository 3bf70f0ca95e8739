package api

import "net/netip"

// Endpoint lists the addresses behind a service of the same name. The
// scheduler makes them; a user may declare one by hand.
type Endpoint struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       Kind              `json:"kind"`
	Metadata   ObjectMeta        `json:"metadata"`
	Eps        []EndpointAddress `json:"eps,omitempty"`
}

// EndpointAddress is one taskgroup's address.
type EndpointAddress struct {
	NetworkMode string     `json:"networkMode,omitempty"`
	NodeIP      string     `json:"nodeIP,omitempty"`
	ContainerIP string     `json:"containerIP,omitempty"`
	TargetRef   *TargetRef `json:"targetRef,omitempty"`
	Ports       []Port     `json:"ports,omitempty"`
}

// TargetRef names what an address belongs to.
type TargetRef struct {
	Kind      string `json:"kind,omitempty"`
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Image     string `json:"image,omitempty"`
}

// GetKind returns KindEndpoint.
func (*Endpoint) GetKind() Kind { return KindEndpoint }

// GetMeta returns the metadata.
func (e *Endpoint) GetMeta() *ObjectMeta { return &e.Metadata }

func (c *checker) endpoint(e *Endpoint) {
	for i, a := range e.Eps {
		at := indexPath("eps", i)
		if a.NodeIP == "" && a.ContainerIP == "" {
			c.fail(at, nil, "needs an address: nodeIP or containerIP")
		}
		for _, f := range []struct{ key, value string }{{"nodeIP", a.NodeIP}, {"containerIP", a.ContainerIP}} {
			if _, err := netip.ParseAddr(f.value); f.value != "" && err != nil {
				c.fail(joinPath(at, f.key), f.value, "must be an IP address")
			}
		}
		c.ports(joinPath(at, "ports"), a.Ports)
	}
}
