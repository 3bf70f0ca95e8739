package scheduler

import (
	"fmt"
	"testing"
	"time"

	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
)

// BenchmarkPlace measures the round that places many instances on many agents at once.
func BenchmarkPlace(b *testing.B) {
	for _, size := range []struct{ agents, instances int }{{10, 100}, {100, 1000}, {1000, 5000}} {
		b.Run(fmt.Sprintf("%d_instances_on_%d_agents", size.instances, size.agents), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				h := connected(b, 0)
				h.l.placeBudget = time.Hour
				h.apply(web(size.instances, "", `"ports":[{"name":"p","hostPort":0}],`))
				placed := 0
				h.l.s.out = callFunc(func(c *mesosapi.Call) bool {
					if c.Type == mesosapi.Call_ACCEPT {
						placed += len(c.Accept.Operations)
					}
					return true
				})
				e := mesos.Offered{}
				ports := network.Ranges{{Begin: 31000, End: 31999}}
				for i := range size.agents {
					a := &simAgent{id: fmt.Sprintf("agent-%d", i), host: fmt.Sprintf("host-%d", i)}
					free := placement.Resources{CPUs: 32000, MemMB: 65536000, DiskMB: 99000000}
					e.Offers = append(e.Offers, h.m.message(fmt.Sprintf("offer-%d", i), a, free, ports))
				}
				b.StartTimer()
				h.handle(e)
				if placed != size.instances {
					b.Fatalf("%d placed", placed)
				}
			}
		})
	}
}
