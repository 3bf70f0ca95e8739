package master

import (
	"cmp"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
)

// Resources below both are not worth an offer (MIN_CPUS, MIN_MEM of Mesos).
const (
	minCPUs = 0.01
	minMem  = 32.0
)

// startTimers plans the periodic work.
func (m *Master) startTimers() {
	var tick func()
	tick = func() {
		m.loop.after(m.flags.AllocationInterval, tick)
		now := time.Now()
		for _, f := range m.frameworks {
			f.expireFilters(now)
		}
		m.allocate()
	}
	m.loop.after(m.flags.AllocationInterval, tick)
	if len(m.recovered) > 0 {
		m.loop.after(m.flags.AgentReregisterTimeout, m.giveUpRecovered)
	}
}

// candidate is a framework in one of its roles.
type candidate struct {
	framework *framework
	role      string
}

// allocate offers all that is free. For each agent the candidate with the
// smallest dominant share that has not refused gets everything, as Mesos's
// hierarchical allocator does without weights and quotas.
func (m *Master) allocate() {
	if m.faults.OffersPaused() {
		return
	}
	m.allocations++
	total := m.clusterTotal()
	made := map[*framework][]*offer{}
	for _, a := range m.sortedAgents() {
		if a.state != agentConnected || !worthOffering(a.free) {
			continue
		}
		for _, c := range m.candidates(total) {
			resources := a.free.AvailableTo(c.role)
			if !worthOffering(resources) || c.framework.isFiltered(c.role, a.id, resources) || needsGPUs(a, c.framework) {
				continue
			}
			o := m.newOffer(c.framework, a, c.role, resources)
			made[c.framework] = append(made[c.framework], o)
			m.turn++
			c.framework.lastOffered = m.turn
			if !worthOffering(a.free) {
				break
			}
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

// candidates are the connected frameworks by role, the poorest first; those
// of equal share take turns.
func (m *Master) candidates(total resource.List) []candidate {
	var out []candidate
	share := map[*framework]float64{}
	for _, f := range m.frameworks {
		if f.state != frameworkConnected {
			continue
		}
		share[f] = dominantShare(f.total(), total)
		for _, role := range f.roles() {
			if !f.suppressed[role] {
				out = append(out, candidate{f, role})
			}
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(share[a.framework], share[b.framework]),
			cmp.Compare(a.framework.lastOffered, b.framework.lastOffered),
			cmp.Compare(a.framework.id, b.framework.id), cmp.Compare(a.role, b.role))
	})
	return out
}

// dominantShare is the largest part of any scalar of the cluster that is held (DRF).
func dominantShare(held, total resource.List) float64 {
	share := 0.0
	for _, name := range []string{"cpus", "mem", "disk"} {
		all, _ := total.Scalar(name)
		mine, _ := held.Scalar(name)
		if all > 0 {
			share = max(share, mine/all)
		}
	}
	return share
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

func worthOffering(l resource.List) bool {
	cpus, _ := l.Scalar("cpus")
	mem, _ := l.Scalar("mem")
	return cpus >= minCPUs || mem >= minMem
}

// needsGPUs tells that the agent has GPUs and the framework cannot use them: Mesos keeps such agents free for those that can.
func needsGPUs(a *agent, f *framework) bool {
	gpus, _ := a.total.Scalar("gpus")
	return gpus > 0 && !f.has(mesos.FrameworkInfo_Capability_GPU_RESOURCES)
}
