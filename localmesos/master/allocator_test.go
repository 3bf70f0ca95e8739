package master

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
	"pgregory.net/rapid"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// stillMaster is a master whose loop does not run: the test is the only one that touches the state.
func stillMaster(t interface{ Fatal(args ...any) }, flags Flags) *Master {
	flags.Registry = RegistryInMemory
	m, err := New(flags)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *Master) testAgent(t interface{ Fatal(args ...any) }, port int32, resources string) *agent {
	list, err := resource.Parse(resources, "*")
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.registerAgent(link.Subscribe{AgentInfo: mesos.AgentInfo{Hostname: "h", Port: &port, Resources: list}}, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	return m.agents[s.agentID]
}

func (m *Master) testFramework(roles ...string) *framework {
	return m.frameworks[m.subscribe(&scheduler.Call{Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &mesos.FrameworkInfo{User: "u", Name: "n", Roles: roles,
		Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}}}, wire.JSON).frameworkID]
}

// declineAll gives back all offers of a framework, to be offered again at once.
func (m *Master) declineAll(f *framework, seconds float64) {
	for _, o := range f.sortedOffers() {
		m.decline(f, &scheduler.Call_Decline{OfferIDs: []mesos.OfferID{{Value: o.id}}, Filters: &mesos.Filters{RefuseSeconds: &seconds}})
	}
}

// useAll launches one task on all of every offer.
func (m *Master) useAll(f *framework) (ids []string) {
	for _, o := range f.sortedOffers() {
		m.nextNumber++
		id, command := fmt.Sprint("use-", m.nextNumber), "true"
		op := mesos.Offer_Operation{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: []mesos.TaskInfo{{
			TaskID: mesos.TaskID{Value: id}, AgentID: mesos.AgentID{Value: o.agent.id}, Resources: slices.Clone(o.resources), Command: &mesos.CommandInfo{Value: &command},
		}}}}
		m.accept(f, &scheduler.Call_Accept{OfferIDs: []mesos.OfferID{{Value: o.id}}, Operations: []mesos.Offer_Operation{op}})
		ids = append(ids, id)
	}
	return ids
}

func (m *Master) finish(f *framework, id string) {
	x, state := f.tasks[id], mesos.TASK_FINISHED
	m.statusUpdate(x.agent, link.StatusUpdate{FrameworkID: mesos.FrameworkID{Value: f.id}, LatestState: state,
		Status: mesos.TaskStatus{TaskID: x.info.TaskID, State: &state, UUID: wire.UUIDBytes()}})
	m.acknowledge(f, &scheduler.Call_Acknowledge{AgentID: mesos.AgentID{Value: x.agentID}, TaskID: x.info.TaskID, UUID: x.sentUUID})
}

// TestRolesByWeight: of twelve equal agents a role of weight 3 gets nine, however
// many frameworks the other one has.
func TestRolesByWeight(t *testing.T) {
	t.Parallel()
	m := stillMaster(t, Flags{Weights: "big=3"})
	defer m.Close()
	big := m.testFramework("big")
	small := []*framework{m.testFramework("small"), m.testFramework("small"), m.testFramework("small")}
	for i := range 12 {
		m.testAgent(t, int32(i), "cpus:1;mem:100")
	}
	if n := len(big.offers); n != 9 {
		t.Errorf("the role of weight 3 got %d of 12 agents", n)
	}
	for i, f := range small {
		if n := len(f.offers); n != 1 {
			t.Errorf("framework %d of the other role got %d", i, n)
		}
	}
}

// TestRolesAsATree: branches compete first, and the roles below them among themselves.
func TestRolesAsATree(t *testing.T) {
	t.Parallel()
	m := stillMaster(t, Flags{Weights: "a/x=2"})
	defer m.Close()
	ax, ay, a, b := m.testFramework("a/x"), m.testFramework("a/y"), m.testFramework("a"), m.testFramework("b")
	for i := range 16 {
		m.testAgent(t, int32(i), "cpus:1;mem:100")
	}
	got := []int{len(ax.offers), len(ay.offers), len(a.offers), len(b.offers)}
	if !slices.Equal(got, []int{4, 2, 2, 8}) {
		t.Errorf("a/x, a/y, a and b got %v of 16", got)
	}
}

func TestDominantShare(t *testing.T) {
	t.Parallel()
	m := stillMaster(t, Flags{})
	defer m.Close()
	// What counts is the largest share of anything: of the cpus for one, of the memory for the other.
	f, g := m.testFramework("f"), m.testFramework("g")
	m.suppress(g, nil)
	m.testAgent(t, 1, "cpus:8;mem:100")
	m.useAll(f)
	m.revive(g, nil)
	for i, c := range []struct {
		resources string
		to        *framework
	}{
		{"cpus:1;mem:300", g}, // f has 8 of 9 cpus, g nothing
		{"cpus:1;mem:600", g}, // f has 8 of 10 cpus, g 300 of 1000 MB
		{"cpus:1;mem:100", f}, // f has 8 of 11 cpus, g 900 of 1100 MB
	} {
		a := m.testAgent(t, int32(i+2), c.resources)
		for _, o := range a.offers {
			if o.framework != c.to {
				t.Errorf("agent %d was offered to %v", i+2, o.framework.roles())
			}
		}
		if len(a.offers) != 1 {
			t.Errorf("agent %d was offered %d times", i+2, len(a.offers))
		}
	}
}

// TestFiltersAndSuppressionByRole: they count for the role and the agent that they were made for.
func TestFiltersAndSuppressionByRole(t *testing.T) {
	t.Parallel()
	m := stillMaster(t, Flags{})
	defer m.Close()
	f := m.testFramework("a", "b")
	x := m.testAgent(t, 1, "cpus:1;mem:100")
	roles := func() (out []string) {
		for _, o := range f.sortedOffers() {
			out = append(out, o.role)
		}
		return out
	}
	first := roles()
	if len(first) != 1 {
		t.Fatalf("offers for %v", first)
	}
	m.declineAll(f, 1000)
	m.allocate()
	second := roles()
	if len(second) != 1 || second[0] == first[0] {
		t.Fatalf("after one role has refused: offers for %v", second)
	}
	m.declineAll(f, 1000)
	m.allocate()
	if got := roles(); got != nil {
		t.Errorf("after both have refused: %v", got)
	}
	y := m.testAgent(t, 2, "cpus:1;mem:100")
	if len(y.offers) != 1 || len(x.offers) != 0 {
		t.Error("a filter of one agent counts for another")
	}
	m.suppress(f, []string{"a"})
	m.suppress(f, []string{"b"})
	m.declineAll(f, 0)
	m.allocate()
	if got := roles(); got != nil {
		t.Errorf("suppressed, and offered for %v", got)
	}
	m.revive(f, []string{"b"})
	if got := roles(); !slices.Equal(got, []string{"b", "b"}) {
		t.Errorf("after b is revived, which ends its filters: %v", got)
	}
	m.loop.skew += 2000 * time.Second
	f.expireFilters(m.loop.now())
	if len(f.filters) != 0 {
		t.Errorf("filters %v never end", f.filters)
	}
}

func TestLeastOffer(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string][]bool{
		"":                       {true, true, false, false},
		"cpus:1,mem:50":          nil, // not a list of resources
		"cpus:1;mem:50":          {true, false, false, false},
		"cpus:1;mem:50|disk:100": {true, false, true, false},
	} {
		m, err := New(Flags{Registry: RegistryInMemory, MinAllocatableResources: flag})
		if (err != nil) != (want == nil) {
			t.Fatalf("%q: %v", flag, err)
		}
		if err != nil {
			continue
		}
		f := m.testFramework("*")
		for i, resources := range []string{"cpus:2;mem:100", "cpus:2", "disk:200;mem:10", "ports:[1-2];mem:10"} {
			a := m.testAgent(t, int32(i), resources)
			if (len(a.offers) == 1) != want[i] {
				t.Errorf("%q: %s was offered: %v", flag, resources, !want[i])
			}
		}
		m.removeFramework(f)
		m.Close()
	}
}

// TestNobodyStarves: frameworks take offers, refuse some, and end their tasks; each
// that wants something is offered something within a bounded time, and the
// books are exact at every step.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		roles := []string{"a", "a/b", "c", "*"}
		m := stillMaster(t, Flags{Weights: rapid.SampledFrom([]string{"", "a=2", "c=0.5,a/b=3"}).Draw(t, "weights")})
		defer m.Close()
		agents := rapid.IntRange(1, 4).Draw(t, "agents")
		for i := range agents {
			m.testAgent(t, int32(i), "cpus:4;mem:400;disk:50;ports:[1000-1099]")
		}
		type player struct {
			f       *framework
			greedy  bool
			hungry  int
			running map[string]int // ends in so many rounds
		}
		var players []*player
		for range rapid.IntRange(1, 6).Draw(t, "frameworks") {
			f := m.testFramework(rapid.SampledFrom(roles).Draw(t, "role"))
			players = append(players, &player{f: f, greedy: rapid.Bool().Draw(t, "greedy"), running: map[string]int{}})
		}
		// A role's turn comes after all others', and a framework's after all others'
		// of its role; each may use what there is for two rounds.
		patience := 4*len(players)*len(roles) + 10
		for range patience * 2 {
			m.loop.skew += time.Second
			for _, p := range players {
				p.f.expireFilters(m.loop.now())
				for _, id := range slices.Sorted(maps.Keys(p.running)) {
					if p.running[id]--; p.running[id] <= 0 {
						m.finish(p.f, id)
						delete(p.running, id)
					}
				}
			}
			m.allocate()
			for i, p := range players {
				if len(p.f.offers) > 0 {
					p.hungry = 0
				} else if p.hungry++; p.hungry > patience && len(p.f.filters) == 0 {
					t.Fatalf("framework %d in %v was offered nothing for %d rounds", i, p.f.roles(), p.hungry)
				}
				if p.greedy {
					for _, id := range m.useAll(p.f) {
						p.running[id] = 2
					}
				} else {
					m.declineAll(p.f, float64(i%3))
				}
			}
			for _, wrong := range audit(m) {
				t.Fatal(wrong)
			}
		}
	})
}
