package agent

import (
	"encoding/json"
	"math"
	"net/http"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xagent "github.com/mesos/mesos-go/api/v1/lib/agent"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

// running is what the event loop knows of a container; what it uses is asked
// of the kernel outside of the loop.
type runningContainer struct {
	framework, executor, name, source, id string
	pid                                   int
	cpus, mem                             float64
	container                             *container.Container
}

// runningContainers visits the loop.
func (a *Agent) runningContainers(r *http.Request) (list []runningContainer, ok bool) {
	ok = a.loop.do(r.Context(), func() {
		a.eachExecutor(func(e *executor, past bool) {
			if past || e.container == nil || e.pid == 0 {
				return
			}
			used := resource.Of(e.info.Resources).Unallocate()
			for _, t := range e.order {
				if t.live() {
					used = used.Add(resource.Of(t.info.Resources).Unallocate()...)
				}
			}
			c := runningContainer{framework: e.fw.id, executor: e.id, name: e.info.GetName(), source: e.info.GetSource(),
				id: e.run.Container, pid: e.pid, container: e.container}
			c.cpus, _ = used.Scalar("cpus")
			c.mem, _ = used.Scalar("mem")
			list = append(list, c)
		})
	})
	return list, ok
}

// statistics are those of Apache Mesos's isolators posix/cpu and posix/mem.
func (c *runningContainer) statistics(now float64) mesos.ResourceStatistics {
	const mega = 1 << 20
	limit := uint64(math.Round(c.mem * mega))
	s := mesos.ResourceStatistics{Timestamp: now, CPUsSoftLimit: &c.cpus, MemLimitBytes: &limit, MemSoftLimitBytes: &limit}
	// A container may be gone by now, and its last figures with it.
	if u, err := c.container.Usage(); err == nil && u.Processes > 0 {
		s.CPUsUserTimeSecs, s.CPUsSystemTimeSecs, s.MemRSSBytes = &u.UserSecs, &u.SystemSecs, &u.RSS
	}
	return s
}

// getContainers is /containers: the running executors and what they use.
func (a *Agent) getContainers(w http.ResponseWriter, r *http.Request) { a.writeContainers(w, r, true) }

// getStatistics is /monitor/statistics: the same without status.
func (a *Agent) getStatistics(w http.ResponseWriter, r *http.Request) { a.writeContainers(w, r, false) }

func (a *Agent) writeContainers(w http.ResponseWriter, r *http.Request, withStatus bool) {
	list, ok := a.runningContainers(r)
	if !ok {
		wire.Text(w, http.StatusServiceUnavailable, "The agent is ending.")
		return
	}
	out := []any{}
	for _, c := range list {
		s := c.statistics(seconds(a.clock.Now()))
		statistics, err := wire.MarshalJSON(&s)
		if err != nil {
			continue
		}
		o := object{"executor_id": c.executor, "executor_name": c.name, "framework_id": c.framework,
			"source": c.source, "statistics": json.RawMessage(statistics)}
		if withStatus {
			o["container_id"] = c.id
			o["status"] = object{"container_id": object{"value": c.id}, "executor_pid": c.pid}
		}
		out = append(out, o)
	}
	writeJSON(w, r, out)
}

// listContainers is GET_CONTAINERS.
func (a *Agent) listContainers(r *http.Request) (*xagent.Response_GetContainers, bool) {
	list, ok := a.runningContainers(r)
	out := &xagent.Response_GetContainers{}
	for _, c := range list {
		pid, id, name := uint32(c.pid), mesos.ContainerID{Value: c.id}, c.name
		s := c.statistics(seconds(a.clock.Now()))
		x := xagent.Response_GetContainers_Container{
			FrameworkID: &mesos.FrameworkID{Value: c.framework}, ExecutorID: &mesos.ExecutorID{Value: c.executor},
			ContainerID: id, ResourceStatistics: &s, ContainerStatus: &mesos.ContainerStatus{ContainerID: &id, ExecutorPID: &pid}}
		if name != "" {
			x.ExecutorName = &name
		}
		out.Containers = append(out.Containers, x)
	}
	return out, ok
}
