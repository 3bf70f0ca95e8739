package master

import (
	"cmp"
	"slices"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
)

// startTimers plans the periodic work.
func (m *Master) startTimers() {
	var tick func()
	tick = func() {
		m.loop.after(m.flags.AllocationInterval, tick)
		now := m.loop.now()
		for _, f := range m.frameworks {
			f.expireFilters(now)
		}
		m.allocate()
	}
	m.loop.after(m.flags.AllocationInterval, tick)
	if len(m.recovered) > 0 || m.blind {
		m.loop.after(m.flags.AgentReregisterTimeout, m.giveUpRecovered)
	}
}

// allocate offers all that is free.
func (m *Master) allocate() { m.allocateOf(m.sortedAgents()...) }

// allocateOf offers what is free on some agents. For each agent the role with the smallest
// share comes first, and in it the framework with the smallest; it is offered
// all that it has not refused, as by Mesos's hierarchical allocator without quotas.
func (m *Master) allocateOf(agents ...*agent) {
	if m.faults.OffersPaused() {
		return
	}
	m.allocations++
	byRole := m.frameworksByRole()
	if len(byRole) == 0 {
		return
	}
	roles := make([]string, 0, len(byRole))
	for role := range byRole {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	total := m.clusterQuantities()
	made := map[*framework][]*offer{}
	for _, a := range agents {
		if a.state != agentConnected || !m.worthOffering(a.free) {
			continue
		}
		for _, o := range m.allocateAgent(a, roles, byRole, total) {
			made[o.framework] = append(made[o.framework], o)
		}
	}
	for f, offers := range made {
		event := &scheduler.Event{Type: scheduler.Event_OFFERS, Offers: &scheduler.Event_Offers{}}
		for _, o := range offers {
			event.Offers.Offers = append(event.Offers.Offers, o.message())
		}
		f.send(event)
	}
}

// allocateAgent offers what is free on one agent.
func (m *Master) allocateAgent(a *agent, roles []string, byRole map[string][]*framework, total resource.Quantities) (made []*offer) {
	for _, role := range m.shares.sorted(roles, total, m.weight) {
		resources := a.free.AvailableTo(role)
		if !m.worthOffering(resources) {
			continue
		}
		for _, f := range poorestFirst(byRole[role], role, total) {
			if f.isFiltered(role, a.id, resources) || needsGPUs(a, f) {
				continue
			}
			made = append(made, m.newOffer(f, a, role, resources))
			m.turn++
			f.lastOffered = m.turn
			m.shares.offered(role, m.turn)
			break
		}
		if !m.worthOffering(a.free) {
			break
		}
	}
	return made
}

// frameworksByRole are the connected frameworks that want offers for a role.
func (m *Master) frameworksByRole() map[string][]*framework {
	out := map[string][]*framework{}
	for _, f := range m.frameworks {
		if f.state != frameworkConnected {
			continue
		}
		for _, role := range f.roles() {
			if !f.suppressed[role] {
				out[role] = append(out[role], f)
			}
		}
	}
	return out
}

// poorestFirst sorts frameworks by what they hold in a role; those of equal
// share take turns. It changes the order of its argument.
func poorestFirst(frameworks []*framework, role string, total resource.Quantities) []*framework {
	if len(frameworks) < 2 {
		return frameworks
	}
	share := make(map[*framework]float64, len(frameworks))
	for _, f := range frameworks {
		share[f] = f.shares[role].DominantShare(total)
	}
	slices.SortFunc(frameworks, func(a, b *framework) int {
		return cmp.Or(cmp.Compare(share[a], share[b]), cmp.Compare(a.lastOffered, b.lastOffered), cmp.Compare(a.id, b.id))
	})
	return frameworks
}

// weight is a role's weight; 1 unless somebody has set it.
func (m *Master) weight(role string) float64 {
	if w, ok := m.weights[role]; ok {
		return w
	}
	return 1
}

func (m *Master) clusterQuantities() resource.Quantities {
	total := resource.Quantities{}
	for _, a := range m.agents {
		total.Add(a.total)
	}
	return total
}

func (m *Master) clusterTotal() resource.List {
	var total resource.List
	for _, a := range m.agents {
		total = total.Add(a.total...)
	}
	return total
}

func (m *Master) sortedAgents() []*agent {
	out := make([]*agent, 0, len(m.agents))
	for _, a := range m.agents {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *agent) int { return cmp.Compare(a.number, b.number) })
	return out
}

// worthOffering tells whether there is as much as min_allocatable_resources.
func (m *Master) worthOffering(l resource.List) bool {
	if l.Empty() {
		return false
	}
	if len(m.least) == 0 {
		return true
	}
	return slices.ContainsFunc(m.least, l.HasAmounts)
}

// needsGPUs tells that the agent has GPUs and the framework cannot use them: Mesos keeps such agents free for those that can.
func needsGPUs(a *agent, f *framework) bool {
	gpus, _ := a.total.Scalar("gpus")
	return gpus > 0 && !f.has(mesos.FrameworkInfo_Capability_GPU_RESOURCES)
}
