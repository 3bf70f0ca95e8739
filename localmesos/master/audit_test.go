package master

import (
	"fmt"
	"maps"
	"testing"

	"tandem/localmesos/internal/resource"
)

// checkBooks compares what is kept of resources with what tasks, executors and offers say.
func checkBooks(t *testing.T, m *Master) {
	t.Helper()
	m.loop.do(func() {
		for _, wrong := range audit(m) {
			t.Error(wrong)
		}
	})
}

// audit returns what does not add up.
func audit(m *Master) (wrong []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	held := map[*framework]map[string]resource.List{}
	roles, shares := map[string]resource.Quantities{}, map[*framework]map[string]resource.Quantities{}
	hold := func(f *framework, a *agent, role string, l resource.List) {
		if l.Empty() {
			return
		}
		if roles[role] == nil {
			roles[role] = resource.Quantities{}
		}
		roles[role].Add(l)
		if shares[f] == nil {
			shares[f] = map[string]resource.Quantities{}
		}
		if shares[f][role] == nil {
			shares[f][role] = resource.Quantities{}
		}
		shares[f][role].Add(l)
		if held[f] == nil {
			held[f] = map[string]resource.List{}
		}
		held[f][a.id] = held[f][a.id].Add(l...)
	}
	for _, a := range m.agents {
		busy := m.usedOn(a)
		for _, o := range a.offers {
			busy = busy.Add(o.resources...)
			hold(o.framework, a, o.role, o.resources)
			if m.offers[o.id] != o || o.framework.offers[o.id] != o {
				bad("offer %s is not known everywhere", o.id)
			}
		}
		// Of one that came back smaller more may be used than there is.
		if !a.shrunk && !a.free.Add(busy...).Equal(a.total) || a.shrunk && !a.total.Contains(a.free...) {
			bad("agent %s: free %s and busy %s are not %s", a.id, a.free, busy, a.total)
		}
		for key, x := range a.executors {
			f := m.frameworks[key.framework]
			if f == nil {
				bad("executor %v of no framework", key)
				continue
			}
			hold(f, a, roleOf(x.info.Resources), x.resources)
		}
	}
	for _, f := range m.frameworks {
		for id, x := range f.tasks {
			if !x.released {
				hold(f, x.agent, x.role(), x.resources)
			}
			if m.agents[x.agentID] != x.agent {
				bad("task %s is on an agent that is not there", id)
			}
		}
		if !maps.EqualFunc(f.held, held[f], resource.List.Equal) {
			bad("framework %s: holds %s, the books say %s", f.id, held[f], f.held)
		}
		if !maps.EqualFunc(withoutNothing(f.shares), withoutNothing(shares[f]), maps.Equal) {
			bad("framework %s: has by role %v, the books say %v", f.id, shares[f], f.shares)
		}
		if f.state == frameworkRemoved || (f.state != frameworkConnected && len(f.offers) > 0) {
			bad("framework %s in state %d holds %d offers", f.id, f.state, len(f.offers))
		}
	}
	if !maps.EqualFunc(withoutNothing(m.shares.held), withoutNothing(roles), maps.Equal) {
		bad("roles hold %v, the books say %v", roles, m.shares.held)
	}
	return wrong
}

// withoutNothing leaves out roles that hold ports only.
func withoutNothing(roles map[string]resource.Quantities) map[string]resource.Quantities {
	roles = maps.Clone(roles)
	maps.DeleteFunc(roles, func(_ string, q resource.Quantities) bool { return len(q) == 0 })
	return roles
}
