package master

import (
	"fmt"
	"strconv"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// BenchmarkOfferCycle offers a thousand agents with ten tasks each to a framework
// that has refused all of them before.
func BenchmarkOfferCycle(b *testing.B) {
	benchmarkFull(b, func(m *Master, f *framework) {
		// Nobody reads the stream.
		f.stream = wire.NewStream(wire.Protobuf)
		m.revive(f, nil)
		if len(f.offers) != benchAgents {
			b.Fatalf("%d offers", len(f.offers))
		}
		refuseAll(m, f)
	})
}

// BenchmarkIdleCycle looks for something to offer where all is refused.
func BenchmarkIdleCycle(b *testing.B) {
	benchmarkFull(b, func(m *Master, f *framework) {
		m.allocate()
		if len(f.offers) != 0 {
			b.Fatalf("%d offers", len(f.offers))
		}
	})
}

const benchAgents, benchTasksPerAgent = 1000, 10

func refuseAll(m *Master, f *framework) {
	never := 3600.0
	for _, o := range f.offers {
		m.decline(f, &scheduler.Call_Decline{OfferIDs: []mesos.OfferID{{Value: o.id}}, Filters: &mesos.Filters{RefuseSeconds: &never}})
	}
}

func benchmarkFull(b *testing.B, act func(*Master, *framework)) {
	m, err := New(Flags{Registry: RegistryInMemory})
	if err != nil {
		b.Fatal(err)
	}
	if err := m.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	m.loop.do(func() {
		f := m.frameworks[m.subscribe(&scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{
			FrameworkInfo: &mesos.FrameworkInfo{User: "root", Name: "bench"}}}, wire.Protobuf).frameworkID]
		f.suppressed[f.roles()[0]] = true
		for i := range benchAgents {
			s, err := m.registerAgent(link.Subscribe{AgentInfo: mesos.AgentInfo{Hostname: strconv.Itoa(i), Resources: benchResources(16, 65536)}}, "127.0.0.1:1")
			if err != nil {
				b.Fatal(err)
			}
			for j := range benchTasksPerAgent {
				m.newTask(f, m.agents[s.agentID], mesos.TaskInfo{TaskID: mesos.TaskID{Value: fmt.Sprint(i, "-", j)}, Resources: benchResources(0.1, 32)[:2]}, "x")
			}
		}
		delete(f.suppressed, f.roles()[0])
		m.allocate()
		refuseAll(m, f)
		for b.Loop() {
			act(m, f)
		}
	})
}

func benchResources(cpus, mem float64) []mesos.Resource {
	scalar, ranges := mesos.SCALAR, mesos.RANGES
	return []mesos.Resource{
		{Name: "cpus", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: cpus}},
		{Name: "mem", Type: &scalar, Scalar: &mesos.Value_Scalar{Value: mem}},
		{Name: "ports", Type: &ranges, Ranges: &mesos.Value_Ranges{Range: []mesos.Value_Range{{Begin: 31000, End: 32000}}}},
	}
}

// BenchmarkState encodes the state of a thousand agents and ten thousand tasks, as the first event of a tool is.
func BenchmarkState(b *testing.B) {
	m := stillMaster(b, Flags{})
	defer m.Close()
	f := m.testFramework("*")
	m.suppress(f, nil)
	for i := range 1000 {
		a := m.testAgent(b, int32(i), "cpus:16;mem:65536;ports:[31000-32000]")
		for j := range 10 {
			m.newTask(f, a, mesos.TaskInfo{TaskID: mesos.TaskID{Value: fmt.Sprint(i, "-", j)}, Resources: benchResources(0.1, 32)[:2]}, "x")
		}
	}
	for b.Loop() {
		if _, err := operatorJSON(&apimaster.Response{Type: apimaster.Response_GET_STATE, GetState: m.getState()}); err != nil {
			b.Fatal(err)
		}
	}
}
