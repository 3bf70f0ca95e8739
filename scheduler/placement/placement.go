// Package placement decides on which agent a taskgroup is started, and explains
// why not on the others. It is for the scheduler's controller. Everything in it
// is pure: it must never look at a clock, a store or the network, so that the
// same snapshot and request always give the same decision, and an explanation
// computed later is the reason that decided.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"tandem/network"
)

// Milli is an amount in thousandths: Mesos computes scalars in fixed point with three decimals.
type Milli int64

// ToMilli rounds an amount as Mesos does.
func ToMilli(f float64) Milli { return Milli(math.Round(f * 1000)) }

// Float returns the amount as Mesos messages carry it.
func (m Milli) Float() float64 { return float64(m) / 1000 }

// Resources are cores, MiB of memory and MiB of disk.
type Resources struct {
	CPUs, MemMB, DiskMB Milli
}

// Add returns the sum.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.CPUs + o.CPUs, r.MemMB + o.MemMB, r.DiskMB + o.DiskMB}
}

// Sub returns the difference.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.CPUs - o.CPUs, r.MemMB - o.MemMB, r.DiskMB - o.DiskMB}
}

// Agent is an agent of which there are offers.
type Agent struct {
	ID, Hostname string
	Attributes   []Attribute
	// Free and Ports are what the offers hold, together.
	Free  Resources
	Ports network.Ranges
	// Total is what the agent has at all; zero when unknown.
	Total Resources
	// Advertised is the agent's whole ports resource.
	Advertised network.Ranges
}

// Live is a taskgroup that runs, or may run, on an agent.
type Live struct {
	ID string
	// App is namespace/name.
	App      string
	Labels   map[string]string
	AgentID  string
	Hostname string
	// Attributes are those of its agent when it was started.
	Attributes []Attribute
}

// Snapshot is all that a decision may depend on beside the request.
type Snapshot struct {
	Agents []*Agent
	Ledger *network.Ledger

	byApp   map[string][]Live
	byAgent map[string][]Live
	// counts are the taskgroups by application and agent.
	counts map[string]map[string]int
}

// NewSnapshot makes a snapshot. The agents and the ledger belong to it from now on.
func NewSnapshot(agents []*Agent, live []Live, ledger *network.Ledger) *Snapshot {
	s := &Snapshot{Agents: agents, Ledger: ledger, byApp: map[string][]Live{}, byAgent: map[string][]Live{}, counts: map[string]map[string]int{}}
	for i := range live {
		s.add(live[i])
	}
	return s
}

func (s *Snapshot) add(l Live) {
	s.byApp[l.App] = append(s.byApp[l.App], l)
	s.byAgent[l.AgentID] = append(s.byAgent[l.AgentID], l)
	if s.counts[l.App] == nil {
		s.counts[l.App] = map[string]int{}
	}
	s.counts[l.App][l.AgentID]++
}

// Request is a taskgroup that wants a place.
type Request struct {
	// ID is the taskgroup's, App its application as namespace/name.
	ID, App string
	Labels  map[string]string
	// Need is what its tasks and its executor take together.
	Need Resources
	// Group declares its ports; it must have passed network.ValidatePorts.
	Group      network.Group
	Constraint Constraint
	// OnlyHost restricts the choice to one host when it is not empty.
	OnlyHost string
}

// Refusal says why a taskgroup does not fit on an agent: the first reason found, in a fixed order.
type Refusal struct {
	AgentID, Hostname string
	Reason            Reason
}

// Reason is machine-readable in Code and for people in Text.
type Reason struct {
	// Code is host, taint, constraint, cpus, mem, disk or ports.
	Code string
	Text string
}

// Decision is what Place found.
type Decision struct {
	// Agent is nil when no agent fits; then Refusals has an entry for each, in the snapshot's order.
	Agent    *Agent
	Ports    network.Drawn
	Refusals []Refusal
}

// Place chooses among the agents that fit: the one with the fewest taskgroups of
// the same application, of those the one with the largest share of free cpus
// and memory, of those the first by hostname and id. It changes nothing; Take does.
//
// Ports are looked at last, and of the best agents only until one has them: to
// draw them costs more than all the rest.
func Place(s *Snapshot, r *Request, choose network.Chooser) Decision {
	reasons := make([]*Reason, len(s.Agents))
	best := -1
	for i, a := range s.Agents {
		if reasons[i] = fits(s, a, r); reasons[i] == nil && (best < 0 || s.compare(r, a, s.Agents[best]) < 0) {
			best = i
		}
	}
	var rest []int
	for best >= 0 {
		ports, reason := draw(s, s.Agents[best], r, choose)
		if reason == nil {
			return Decision{Agent: s.Agents[best], Ports: ports}
		}
		reasons[best] = reason
		if rest == nil {
			rest = []int{}
			for i := range s.Agents {
				if reasons[i] == nil {
					rest = append(rest, i)
				}
			}
			slices.SortFunc(rest, func(x, y int) int { return s.compare(r, s.Agents[x], s.Agents[y]) })
		}
		best = -1
		if len(rest) > 0 {
			best, rest = rest[0], rest[1:]
		}
	}
	var d Decision
	for i, a := range s.Agents {
		d.Refusals = append(d.Refusals, Refusal{AgentID: a.ID, Hostname: a.Hostname, Reason: *reasons[i]})
	}
	return d
}

// fits checks all but the ports, what says most first.
func fits(s *Snapshot, a *Agent, r *Request) *Reason {
	if r.OnlyHost != "" && a.Hostname != r.OnlyHost {
		return &Reason{"host", fmt.Sprintf("the taskgroup waits for its former host %s (hostRetainTime)", r.OnlyHost)}
	}
	if reason := r.Constraint.check(s, a, r); reason != nil {
		return reason
	}
	for _, x := range []struct {
		code       string
		need, free Milli
		unit       string
	}{
		{"cpus", r.Need.CPUs, a.Free.CPUs, ""},
		{"mem", r.Need.MemMB, a.Free.MemMB, " MB"},
		{"disk", r.Need.DiskMB, a.Free.DiskMB, " MB"},
	} {
		if x.need > x.free {
			return &Reason{x.code, fmt.Sprintf("needs %v%s of %s, %v%s are offered", x.need.Float(), x.unit, x.code, x.free.Float(), x.unit)}
		}
	}
	return nil
}

// draw settles the ports on an agent.
func draw(s *Snapshot, a *Agent, r *Request, choose network.Chooser) (network.Drawn, *Reason) {
	ports, err := network.Draw(r.Group, a.Ports, a.Advertised, choose)
	if err == nil {
		err = s.Ledger.Check(a.ID, r.ID, ports.Ledger)
	}
	if err != nil {
		return network.Drawn{}, &Reason{"ports", err.Error()}
	}
	return ports, nil
}

// compare is negative when a is the better agent.
func (s *Snapshot) compare(r *Request, a, b *Agent) int {
	counts := s.counts[r.App]
	return cmp.Or(
		cmp.Compare(counts[a.ID], counts[b.ID]),
		cmp.Compare(b.freeShare(), a.freeShare()),
		cmp.Compare(a.Hostname, b.Hostname),
		cmp.Compare(a.ID, b.ID),
	)
}

func (a *Agent) freeShare() float64 {
	share := func(free, total Milli) float64 {
		if total < free {
			total = free
		}
		if total <= 0 {
			return 0
		}
		return float64(free) / float64(total)
	}
	return share(a.Free.CPUs, a.Total.CPUs) + share(a.Free.MemMB, a.Total.MemMB)
}

// Take makes a decision part of the snapshot, so that the next one sees it.
func (s *Snapshot) Take(r *Request, d *Decision) error {
	a := d.Agent
	if a == nil {
		return errors.New("nothing was decided for " + r.ID)
	}
	if err := s.Ledger.Reserve(a.ID, r.ID, d.Ports.Ledger); err != nil {
		return err
	}
	a.Free = a.Free.Sub(r.Need)
	for _, x := range d.Ports.Charged {
		for p := x.Begin; p <= x.End; p++ {
			a.Ports = a.Ports.Without(p)
		}
	}
	s.add(Live{ID: r.ID, App: r.App, Labels: r.Labels, AgentID: a.ID, Hostname: a.Hostname, Attributes: a.Attributes})
	return nil
}

// Summary is a reason and the hosts that it holds for.
type Summary struct {
	Reason Reason
	Hosts  []string
}

// Summarize joins equal reasons, the most frequent first.
func Summarize(refusals []Refusal) []Summary {
	index := map[Reason]int{}
	var out []Summary
	for _, r := range refusals {
		i, ok := index[r.Reason]
		if !ok {
			i = len(out)
			index[r.Reason] = i
			out = append(out, Summary{Reason: r.Reason})
		}
		out[i].Hosts = append(out[i].Hosts, r.Hostname)
	}
	slices.SortStableFunc(out, func(a, b Summary) int { return cmp.Compare(len(b.Hosts), len(a.Hosts)) })
	return out
}
