package scheduler

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
)

// Times for which what is not needed is not to be offered again. While nothing
// waits for a place, offers are suppressed altogether.
const (
	refuseIdle   = time.Hour
	refuseNoRoom = 5 * time.Second
)

// agent is a machine of which offers were seen.
type agent struct {
	id, hostname string
	// ip and url are the agent's own, from its offers.
	ip, url    string
	attributes []placement.Attribute
	offers     map[string]*mesoslib.Offer
	// ports is everything that was ever seen of the ports resource: told by the
	// master, offered, or held by taskgroups of ours.
	ports network.Ranges
	total placement.Resources
	// known tells that the master has told of its whole resources.
	known bool
}

func (l *loop) offered(o *mesoslib.Offer) {
	l.s.metrics.offers.Inc()
	a := l.agents[o.AgentID.Value]
	if a == nil {
		a = &agent{id: o.AgentID.Value, offers: map[string]*mesoslib.Offer{}}
		l.agents[a.id] = a
		if s, ok := l.slaves[a.id]; ok {
			a.know(&s)
			delete(l.slaves, a.id)
		} else {
			l.agentsUnknown = true
		}
	}
	a.hostname = o.Hostname
	a.ip, a.url = address(o)
	a.attributes = attributesOf(o.Attributes)
	a.offers[o.ID.Value] = o
	free, ports := amounts(o.Resources)
	a.ports = union(a.ports, ports)
	used := placement.Resources{}
	for _, slots := range l.slots {
		for _, sl := range slots {
			if sl.live() && sl.Group.AgentID == a.id {
				used = used.Add(sl.Group.Need)
				a.ports = union(a.ports, sl.Group.charged())
			}
		}
	}
	if a.known {
		return
	}
	sum := used.Add(free)
	a.total = placement.Resources{CPUs: max(a.total.CPUs, sum.CPUs), MemMB: max(a.total.MemMB, sum.MemMB), DiskMB: max(a.total.DiskMB, sum.DiskMB)}
}

// address returns the agent's IP address and the base URL of its HTTP API.
func address(o *mesoslib.Offer) (ip, url string) {
	ip, port, scheme := o.Hostname, 5051, "http"
	if u := o.URL; u != nil {
		if u.Scheme != "" {
			scheme = u.Scheme
		}
		if u.Address.Port > 0 {
			port = int(u.Address.Port)
		}
		if u.Address.IP != nil && *u.Address.IP != "" {
			ip = *u.Address.IP
		}
	}
	return ip, fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(ip, strconv.Itoa(port)))
}

func (l *loop) rescinded(id string) {
	for _, a := range l.agents {
		delete(a.offers, id)
	}
}

// voidOffers forgets all offers: they do not outlive a connection.
func (l *loop) voidOffers() {
	for _, a := range l.agents {
		clear(a.offers)
	}
}

// decline gives back what is not needed.
func (l *loop) decline(a *agent, refuse time.Duration) {
	if len(a.offers) == 0 {
		return
	}
	l.calls = append(l.calls, mesos.Decline(slices.Sorted(maps.Keys(a.offers)), refuse))
	clear(a.offers)
}

// candidate is the agent as placement sees it, by its offers.
func (a *agent) candidate() *placement.Agent {
	c := &placement.Agent{ID: a.id, Hostname: a.hostname, Attributes: a.attributes, Total: a.total, Advertised: a.ports}
	for _, o := range a.offers {
		free, ports := amounts(o.Resources)
		c.Free = c.Free.Add(free)
		c.Ports = union(c.Ports, ports)
	}
	return c
}

func union(a, b network.Ranges) network.Ranges {
	return append(append(network.Ranges{}, a...), b...).Normalize()
}

// amounts adds up unreserved resources; what is reserved or revocable is not for this framework.
func amounts(resources []mesoslib.Resource) (placement.Resources, network.Ranges) {
	var r placement.Resources
	var ports network.Ranges
	for i := range resources {
		x := &resources[i]
		if len(x.Reservations) > 0 || x.Reservation != nil || x.Revocable != nil || (x.Disk != nil && x.Disk.Persistence != nil) {
			continue
		}
		switch x.Name {
		case "cpus":
			r.CPUs += placement.ToMilli(x.GetScalar().GetValue())
		case "mem":
			r.MemMB += placement.ToMilli(x.GetScalar().GetValue())
		case "disk":
			r.DiskMB += placement.ToMilli(x.GetScalar().GetValue())
		case "ports":
			for _, p := range x.GetRanges().GetRange() {
				ports = append(ports, network.Range{Begin: int(p.Begin), End: int(p.End)})
			}
		}
	}
	return r, ports.Normalize()
}

func attributesOf(list []mesoslib.Attribute) []placement.Attribute {
	out := make([]placement.Attribute, 0, len(list))
	for i := range list {
		a := placement.Attribute{Name: list[i].Name}
		switch list[i].Type {
		case mesoslib.SCALAR:
			a.Kind, a.Scalar = placement.Scalar, list[i].GetScalar().GetValue()
		case mesoslib.RANGES:
			a.Kind = placement.Range
			for _, r := range list[i].GetRanges().GetRange() {
				a.Ranges = append(a.Ranges, placement.Span{Begin: r.Begin, End: r.End})
			}
		case mesoslib.SET:
			a.Kind, a.Set = placement.Set, list[i].GetSet().GetItem()
		case mesoslib.TEXT:
			a.Kind, a.Text = placement.Text, list[i].GetText().GetValue()
		}
		out = append(out, a)
	}
	return out
}
