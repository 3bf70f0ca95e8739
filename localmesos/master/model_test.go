package master

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
	"pgregory.net/rapid"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// TestBooks does random things to a master and audits its books after each.
// The loop does not run: the test is the only one that touches the state.
func TestBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(Flags{Registry: RegistryInMemory})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		w := &world{m: m}
		t.Repeat(map[string]func(*rapid.T){
			"":            w.audit,
			"agent":       w.addAgent,
			"framework":   w.addFramework,
			"allocate":    func(*rapid.T) { m.allocate() },
			"launch":      w.launch,
			"decline":     w.decline,
			"update":      w.update,
			"acknowledge": w.acknowledge,
			"exit":        w.exit,
			"disconnect":  w.disconnect,
			"come back":   w.comeBack,
			"lose":        w.lose,
			"leave":       w.leave,
			"gone":        w.gone,
			"suppress":    w.suppress,
			"weights":     w.weights,
			"kill":        func(t *rapid.T) { w.anyTask(t).killed = true },
		})
	})
}

type world struct {
	m     *Master
	count int
	// away are agents that disconnected, with what they hold.
	away map[string]link.Subscribe
}

func (w *world) audit(t *rapid.T) {
	for _, wrong := range audit(w.m) {
		t.Error(wrong)
	}
}

func pick[V any](t *rapid.T, from map[string]V) (v V) {
	keys := slices.Sorted(maps.Keys(from))
	if len(keys) == 0 {
		t.Skip("there is none")
	}
	return from[rapid.SampledFrom(keys).Draw(t, "which")]
}

func (w *world) addAgent(t *rapid.T) {
	if len(w.m.agents)+len(w.away) >= 3 {
		t.Skip("enough agents")
	}
	w.count++
	list, err := resource.Parse("cpus:2;mem:256;disk:100;ports:[100-109]", "*")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(w.count)
	if _, err := w.m.registerAgent(link.Subscribe{AgentInfo: mesos.AgentInfo{Hostname: "h", Port: &port, Resources: list}}, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
}

func (w *world) addFramework(t *rapid.T) {
	if len(w.m.frameworks) >= 3 {
		t.Skip("enough frameworks")
	}
	checkpoint := rapid.Bool().Draw(t, "checkpoint")
	roles := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*", "a", "a/b", "c"}), 1, 2, rapid.ID[string]).Draw(t, "roles")
	w.m.subscribe(&scheduler.Call{Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &mesos.FrameworkInfo{User: "u", Name: "n", Checkpoint: &checkpoint, Roles: roles,
		Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}}}, wire.JSON)
}

// launch accepts an offer with some tasks, good ones and bad ones.
func (w *world) launch(t *rapid.T) {
	o := pick(t, w.m.offers)
	kind, ranges, zero := mesos.SCALAR, mesos.RANGES, 0.0
	scalar := func(name string, v float64) mesos.Resource {
		return mesos.Resource{Name: name, Type: &kind, Scalar: &mesos.Value_Scalar{Value: v}}
	}
	command := "true"
	op := mesos.Offer_Operation{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{}}
	for range rapid.IntRange(0, 3).Draw(t, "tasks") {
		w.count++
		port := rapid.Uint64Range(100, 110).Draw(t, "port")
		op.Launch.TaskInfos = append(op.Launch.TaskInfos, mesos.TaskInfo{
			TaskID: mesos.TaskID{Value: fmt.Sprintf("t%d", w.count)}, AgentID: mesos.AgentID{Value: o.agent.id},
			Resources: []mesos.Resource{scalar("cpus", rapid.Float64Range(0, 1.5).Draw(t, "cpus")),
				{Name: "ports", Type: &ranges, Ranges: &mesos.Value_Ranges{Range: []mesos.Value_Range{{Begin: port, End: port}}}}},
			Executor: &mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "executor")},
				Command: &mesos.CommandInfo{Value: &command}, Resources: []mesos.Resource{scalar("mem", 32)}},
		})
	}
	w.m.accept(o.framework, &scheduler.Call_Accept{OfferIDs: []mesos.OfferID{{Value: o.id}}, Operations: []mesos.Offer_Operation{op}, Filters: &mesos.Filters{RefuseSeconds: &zero}})
}

func (w *world) decline(t *rapid.T) {
	o := pick(t, w.m.offers)
	seconds := rapid.SampledFrom([]float64{0, 1000}).Draw(t, "seconds")
	w.m.decline(o.framework, &scheduler.Call_Decline{OfferIDs: []mesos.OfferID{{Value: o.id}}, Filters: &mesos.Filters{RefuseSeconds: &seconds}})
}

func (w *world) anyTask(t *rapid.T) *task {
	f := pick(t, w.m.frameworks)
	return pick(t, f.tasks)
}

func (w *world) update(t *rapid.T) {
	x := w.anyTask(t)
	state := rapid.SampledFrom([]mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_FINISHED, mesos.TASK_FAILED}).Draw(t, "state")
	w.m.statusUpdate(x.agent, link.StatusUpdate{FrameworkID: mesos.FrameworkID{Value: x.framework.id}, LatestState: state,
		Status: mesos.TaskStatus{TaskID: x.info.TaskID, State: &state, UUID: wire.UUIDBytes()}})
}

func (w *world) acknowledge(t *rapid.T) {
	x := w.anyTask(t)
	w.m.acknowledge(x.framework, &scheduler.Call_Acknowledge{AgentID: mesos.AgentID{Value: x.agentID}, TaskID: x.info.TaskID, UUID: x.sentUUID})
}

func (w *world) exit(t *rapid.T) {
	a := pick(t, w.m.agents)
	for key := range a.executors {
		w.m.executorExited(a, link.ExitedExecutor{FrameworkID: mesos.FrameworkID{Value: key.framework}, ExecutorID: key.executor})
		return
	}
}

// disconnect breaks an agent's stream and remembers what it has.
func (w *world) disconnect(t *rapid.T) {
	a := pick(t, w.m.agents)
	if a.state != agentConnected {
		t.Skip("not connected")
	}
	sub := link.Subscribe{AgentInfo: a.info}
	for key, x := range a.executors {
		sub.Executors = append(sub.Executors, link.Executor{FrameworkID: mesos.FrameworkID{Value: key.framework}, Info: x.info})
	}
	for _, f := range w.m.frameworks {
		sub.Frameworks = append(sub.Frameworks, f.info)
		for _, x := range f.tasks {
			if x.agent == a && rapid.IntRange(0, 4).Draw(t, "keep") > 0 {
				sub.Tasks = append(sub.Tasks, link.Task{FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: x.executorID, Info: x.info, State: x.state})
			}
		}
	}
	w.m.agentStreamEnded(a.id, a.streamID)
	if w.away == nil {
		w.away = map[string]link.Subscribe{}
	}
	w.away[a.id] = sub
}

func (w *world) comeBack(t *rapid.T) {
	sub := pick(t, w.away)
	delete(w.away, sub.AgentInfo.ID.Value)
	if rapid.IntRange(0, 3).Draw(t, "other resources") == 0 {
		list, err := resource.Parse(rapid.SampledFrom([]string{"cpus:0.5;mem:50", "cpus:8;mem:1024;ports:[100-119]"}).Draw(t, "resources"), "*")
		if err != nil {
			t.Fatal(err)
		}
		sub.AgentInfo.Resources = list
	}
	if _, err := w.m.registerAgent(sub, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
}

func (w *world) lose(t *rapid.T) { w.m.loseAgent(pick(t, w.m.agents), lostPings) }

func (w *world) gone(t *rapid.T) {
	if e := w.m.markAgentGone(pick(t, w.m.agents).id); e != nil {
		t.Fatal(e.Text)
	}
}

func (w *world) suppress(t *rapid.T) {
	f := pick(t, w.m.frameworks)
	if role := rapid.SampledFrom(f.roles()).Draw(t, "role"); rapid.Bool().Draw(t, "revive") {
		w.m.revive(f, []string{role})
	} else {
		w.m.suppress(f, []string{role})
	}
}

func (w *world) weights(t *rapid.T) {
	role := rapid.SampledFrom([]string{"*", "a", "c", "unused"}).Draw(t, "role")
	if e := w.m.updateWeights([]mesos.WeightInfo{{Role: &role, Weight: rapid.Float64Range(0.1, 10).Draw(t, "weight")}}); e != nil {
		t.Fatal(e.Text)
	}
}

func (w *world) leave(t *rapid.T) {
	f := pick(t, w.m.frameworks)
	if rapid.Bool().Draw(t, "teardown") {
		w.m.removeFramework(f)
		return
	}
	w.m.streamEnded(f.id, f.streamID)
}
