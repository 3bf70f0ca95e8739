package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
	"tandem/scheduler/wire"
)

// placeBudget is how long a round may place before others have their turn.
const placeBudget = time.Second

// place finds agents for all instances that wait for one, several to an offer
// if they fit, and asks for offers as long as somebody waits.
func (l *loop) place(now time.Time) {
	pending := l.pending()
	l.s.metrics.pending.Set(float64(len(pending)))
	if !l.connected {
		for _, sl := range pending {
			sl.waiting = []string{"the scheduler is not subscribed at a master"}
		}
		return
	}
	offered := l.offeredAgents()
	if len(pending) == 0 {
		for _, a := range offered {
			l.decline(a, refuseIdle)
		}
		if !l.suppressed {
			l.suppressed = true
			l.calls = append(l.calls, mesos.Suppress())
		}
		return
	}
	if len(offered) == 0 {
		// Whoever waits and was never looked at must not wait for the end of a
		// filter that was set for somebody else.
		fresh := slices.ContainsFunc(pending, func(sl *slot) bool { return !sl.tried })
		if l.suppressed || fresh && !l.revived {
			l.suppressed, l.revived = false, true
			l.calls = append(l.calls, mesos.Revive())
		}
		for _, sl := range pending {
			if len(sl.waiting) == 0 {
				sl.waiting = []string{"no agent has offered resources yet"}
			}
		}
		return
	}
	if !l.placeOn(offered, pending, now) {
		l.wakeAt(now) // the offers that are left are for the others
		return
	}
	for _, a := range offered {
		l.decline(a, refuseNoRoom)
	}
}

func (l *loop) pending() []*slot {
	if l.suspended {
		return nil
	}
	var out []*slot
	for _, slots := range l.slots {
		for _, sl := range slots {
			if sl.pending && sl.Group == nil {
				out = append(out, sl)
			}
		}
	}
	slices.SortFunc(out, func(a, b *slot) int {
		return cmp.Or(a.since.Compare(b.since), refLess(a.Owner, b.Owner), cmp.Compare(a.Index, b.Index))
	})
	return out
}

func (l *loop) offeredAgents() []*agent {
	var out []*agent
	for _, a := range l.agents {
		if len(a.offers) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *agent) int { return cmp.Or(cmp.Compare(a.hostname, b.hostname), cmp.Compare(a.id, b.id)) })
	return out
}

// placeOn returns false when its time is over before everybody was looked at.
func (l *loop) placeOn(offered []*agent, pending []*slot, now time.Time) bool {
	// Whom no agent takes, of that one's siblings none is taken in this round, either.
	refused := map[api.Ref][]string{}
	snapshot := l.snapshot(offered)
	start, done := time.Now(), true
	l.revived = false
	launches := map[string][]mesoslib.Offer_Operation{}
	for _, sl := range pending {
		o := l.objects[sl.Owner]
		if o == nil || o.app == nil {
			continue
		}
		sl.tried = true
		retained := sl.Retain.After(now)
		if texts := refused[sl.Owner]; texts != nil && !retained {
			sl.waiting = texts
			continue
		}
		if time.Since(start) > l.placeBudget {
			sl.tried, done = false, false
			break
		}
		plan, err := l.plan(o, sl, now)
		if err != nil {
			sl.waiting = []string{err.Error()}
			continue
		}
		d := placement.Place(snapshot, &plan.request, network.Random)
		if d.Agent == nil {
			sl.waiting = explain(d.Refusals)
			if !retained {
				refused[sl.Owner] = sl.waiting
			}
			continue
		}
		if err := snapshot.Take(&plan.request, &d); err != nil {
			sl.waiting = []string{err.Error()}
			continue
		}
		group, operation, err := l.launch(plan, l.agents[d.Agent.ID], &d, now)
		if err != nil {
			sl.waiting = []string{err.Error()}
			continue
		}
		sl.Group, sl.pending, sl.waiting = group, false, nil
		l.adopt(sl)
		l.saveSlot(sl)
		launches[d.Agent.ID] = append(launches[d.Agent.ID], operation)
		l.s.metrics.launches.Inc()
		l.event(sl.Owner, "info", wire.Launching, fmt.Sprintf("%s on %s", l.groupName(sl), group.Hostname))
	}
	for _, a := range offered {
		if ops := launches[a.id]; len(ops) > 0 {
			ids := make([]string, 0, len(a.offers))
			for id := range a.offers {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			l.calls = append(l.calls, mesos.Accept(ids, ops, 0))
			clear(a.offers)
		}
	}
	return done
}

// snapshot shows placement what is offered and what is alive.
func (l *loop) snapshot(offered []*agent) *placement.Snapshot {
	agents := make([]*placement.Agent, len(offered))
	for i, a := range offered {
		agents[i] = a.candidate()
	}
	ledger := network.NewLedger()
	var live []placement.Live
	for ref, slots := range l.slots {
		for _, sl := range slots {
			if !sl.live() {
				continue
			}
			g := sl.Group
			live = append(live, placement.Live{
				ID: g.ID, App: ref.Namespace + "/" + ref.Name, Labels: g.Labels,
				AgentID: g.AgentID, Hostname: g.Hostname, Attributes: g.Attributes,
			})
			if err := ledger.Reserve(g.AgentID, g.ID, g.Ledger); err != nil {
				l.log.Error("two taskgroups hold one port", "taskgroup", g.ID, "error", err)
			}
		}
	}
	return placement.NewSnapshot(agents, live, ledger)
}

// explain renders refusals for people, equal ones joined.
func explain(refusals []placement.Refusal) []string {
	if len(refusals) == 0 {
		return []string{"no agent has offered resources yet"}
	}
	var out []string
	for _, s := range placement.Summarize(refusals) {
		hosts := s.Hosts
		more := ""
		if len(hosts) > 5 {
			hosts, more = hosts[:5], fmt.Sprintf(" and %d more", len(s.Hosts)-5)
		}
		out = append(out, fmt.Sprintf("%s%s: %s", strings.Join(hosts, ", "), more, s.Reason.Text))
	}
	return out
}
