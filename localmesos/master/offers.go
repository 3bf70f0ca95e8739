package master

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
)

// offer is resources of one agent that a framework may use.
type offer struct {
	id        string
	number    int
	framework *framework
	agent     *agent
	role      string
	// resources are without allocation info.
	resources resource.List
}

// filter keeps resources from being offered again for a while.
type filter struct {
	role    string
	agent   string
	refused resource.List
	until   time.Time
}

// defaultRefuseSeconds is that of Filters.refuse_seconds; a negative value counts as it, too.
const defaultRefuseSeconds = 5.0

// newOffer takes the resources from the agent for the framework.
func (m *Master) newOffer(f *framework, a *agent, role string, resources resource.List) *offer {
	o := &offer{id: fmt.Sprintf("%s-O%d", m.id, m.nextOffer), number: m.nextOffer, framework: f, agent: a, role: role, resources: resources}
	m.nextOffer++
	m.offers[o.id], f.offers[o.id], a.offers[o.id] = o, o, o
	m.take(f, a, role, resources)
	return o
}

// take moves resources from an agent's free ones to a framework, for a role.
func (m *Master) take(f *framework, a *agent, role string, resources resource.List) {
	a.free = a.free.Sub(resources...)
	f.take(a.id, role, resources)
	m.shares.add(role, resources)
}

// release gives resources back to their agent.
func (m *Master) release(f *framework, a *agent, role string, resources resource.List) {
	f.drop(a.id, role, resources)
	m.shares.sub(role, resources)
	if a.shrunk {
		// More is used than there is; what comes back is not free before it is.
		a.free = a.total.Sub(m.usedOn(a)...).Sub(a.offered()...)
		return
	}
	a.free = a.free.Add(resources...)
}

// forgetOffer ends an offer without giving its resources back.
func (m *Master) forgetOffer(o *offer) {
	delete(m.offers, o.id)
	delete(o.framework.offers, o.id)
	delete(o.agent.offers, o.id)
}

// discardOffers ends all offers of a framework without telling it.
func (m *Master) discardOffers(f *framework) {
	for _, o := range f.offers {
		m.forgetOffer(o)
		m.release(f, o.agent, o.role, o.resources)
	}
}

// rescind ends an offer and tells the framework.
func (m *Master) rescind(o *offer) {
	m.forgetOffer(o)
	m.release(o.framework, o.agent, o.role, o.resources)
	o.framework.send(&scheduler.Event{Type: scheduler.Event_RESCIND, Rescind: &scheduler.Event_Rescind{OfferID: mesos.OfferID{Value: o.id}}})
}

// refuse gives resources back and sets a filter for them.
func (m *Master) refuse(f *framework, a *agent, role string, resources resource.List, filters *mesos.Filters) {
	m.release(f, a, role, resources)
	if resources.Empty() {
		return
	}
	seconds := defaultRefuseSeconds
	if filters != nil && filters.RefuseSeconds != nil && *filters.RefuseSeconds >= 0 {
		seconds = *filters.RefuseSeconds
	}
	// Mesos caps a filter at a year.
	timeout := time.Duration(min(seconds, 365*24*3600) * float64(time.Second))
	if timeout == 0 {
		return
	}
	x := filter{role: role, agent: a.id, refused: resources, until: m.loop.now().Add(timeout)}
	// What the new filter covers need not be kept.
	f.filter(x)
}

// filter keeps a filter, and forgets those that say less.
func (f *framework) filter(x filter) {
	if f.filters == nil {
		f.filters = map[string][]filter{}
	}
	f.filters[x.agent] = append(slices.DeleteFunc(f.filters[x.agent], func(old filter) bool {
		return old.role == x.role && !x.until.Before(old.until) && x.refused.Covers(old.refused)
	}), x)
}

// isFiltered tells whether the framework has refused these resources. An offer of
// more than was refused is never filtered.
func (f *framework) isFiltered(role, agentID string, resources resource.List) bool {
	return slices.ContainsFunc(f.filters[agentID], func(x filter) bool {
		return x.role == role && x.refused.Covers(resources)
	})
}

func (f *framework) expireFilters(now time.Time) {
	f.dropFilters(func(x filter) bool { return !now.Before(x.until) })
}

func (f *framework) dropFilters(which func(filter) bool) {
	for id, list := range f.filters {
		if list = slices.DeleteFunc(list, which); len(list) == 0 {
			delete(f.filters, id)
		} else {
			f.filters[id] = list
		}
	}
}

// decline handles DECLINE. Unknown offers are passed over.
func (m *Master) decline(f *framework, c *scheduler.Call_Decline) {
	for _, id := range c.OfferIDs {
		if o := f.offers[id.Value]; o != nil {
			m.forgetOffer(o)
			m.refuse(f, o.agent, o.role, o.resources, c.Filters)
		}
	}
}

// revive handles REVIVE: filters and suppression of the roles end, and there is an allocation at once.
func (m *Master) revive(f *framework, roles []string) {
	if len(roles) == 0 {
		roles = f.roles()
	}
	known := f.roles()
	for _, role := range roles {
		if !contains(known, role) {
			continue
		}
		delete(f.suppressed, role)
		f.dropFilters(func(x filter) bool { return x.role == role })
	}
	m.allocate()
}

// suppress handles SUPPRESS. Offers that are held stay.
func (m *Master) suppress(f *framework, roles []string) {
	known := f.roles()
	if len(roles) == 0 {
		roles = known
	}
	for _, role := range roles {
		if contains(known, role) {
			f.suppressed[role] = true
		}
	}
}

// message is the offer as the framework sees it, which depends on its capabilities.
func (o *offer) message() mesos.Offer {
	f, a := o.framework, o.agent
	resources := o.resources.InOrderOf(a.total)
	out := mesos.Offer{
		ID: mesos.OfferID{Value: o.id}, FrameworkID: mesos.FrameworkID{Value: f.id}, AgentID: mesos.AgentID{Value: a.id},
		Hostname: a.info.Hostname, Attributes: a.info.Attributes, Domain: nil,
	}
	path, ip, host := "/slave(1)", a.ip, a.info.Hostname
	out.URL = &mesos.URL{Scheme: "http", Path: &path, Address: mesos.Address{Hostname: &host, IP: &ip, Port: a.info.GetPort()}}
	if f.has(mesos.FrameworkInfo_Capability_MULTI_ROLE) {
		out.AllocationInfo = &mesos.Resource_AllocationInfo{Role: &o.role}
		resources = resources.Allocate(o.role)
	}
	if f.has(mesos.FrameworkInfo_Capability_RESERVATION_REFINEMENT) {
		out.Resources = resources
	} else {
		out.Resources = resources.Downgraded()
	}
	if f.has(mesos.FrameworkInfo_Capability_REGION_AWARE) {
		out.Domain = a.info.Domain
	}
	for _, x := range a.executorsOf(f.id) {
		out.ExecutorIDs = append(out.ExecutorIDs, x.info.ExecutorID)
	}
	slices.SortFunc(out.ExecutorIDs, func(x, y mesos.ExecutorID) int { return strings.Compare(x.Value, y.Value) })
	return out
}

// addressOf is an agent's address: what it says, its host name when that is an
// address, or where its connection comes from.
func addressOf(told, hostname, remote string) string {
	if told != "" {
		return told
	}
	if net.ParseIP(hostname) != nil {
		return hostname
	}
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
