package agent

import (
	"net/http"
	"runtime"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"golang.org/x/sys/unix"

	"tandem/localmesos/internal/resource"
)

// idleMetrics are names that Apache Mesos's agent reports and that have nothing
// to count here; monitoring that looks for them finds zero.
var idleMetrics = []string{
	"containerizer/mesos/container_destroy_errors", "containerizer/mesos/provisioner/bind/remove_rootfs_errors",
	"containerizer/mesos/provisioner/remove_container_errors",
	"resource_provider_manager/events/disconnect", "resource_provider_manager/events/subscribe",
	"resource_provider_manager/subscribed", "slave/container_launch_errors", "slave/executors_preempted",
	"slave/invalid_framework_messages", "slave/invalid_status_updates", "slave/recovery_errors",
	"slave/valid_framework_messages", "slave/valid_status_updates", "slave/executors_terminated",
}

// getMetrics is /metrics/snapshot.
func (a *Agent) getMetrics(w http.ResponseWriter, r *http.Request) {
	a.inLoop(w, r, func() any { return a.metrics() })
}

func (a *Agent) metrics() map[string]float64 {
	out := map[string]float64{}
	for _, name := range idleMetrics {
		out[name] = 0
	}
	cacheUsed, cacheSize := a.cache.Usage()
	out["containerizer/fetcher/cache_size_total_bytes"], out["containerizer/fetcher/cache_size_used_bytes"] = float64(cacheSize), float64(cacheUsed)
	out["containerizer/fetcher/task_fetches_failed"] = float64(a.fetches.failed.Load())
	out["containerizer/fetcher/task_fetches_succeeded"] = float64(a.fetches.succeeded.Load())
	out["gc/path_removals_failed"], out["gc/path_removals_succeeded"] = float64(a.garbage.failed), float64(a.garbage.removed)
	out["gc/path_removals_pending"] = float64(len(a.garbage.paths))
	total, used := resource.Of(a.info.Resources), a.allocated()
	for _, name := range []string{"cpus", "gpus", "mem", "disk"} {
		t, _ := total.Scalar(name)
		u, _ := used.Scalar(name)
		p := "slave/" + name
		out[p+"_total"], out[p+"_used"], out[p+"_percent"] = t, u, 0
		if t > 0 {
			out[p+"_percent"] = u / t
		}
		for _, suffix := range []string{"_total", "_used", "_percent"} {
			out[p+"_revocable"+suffix] = 0
		}
	}
	out["slave/frameworks_active"] = float64(len(a.frameworks))
	out["slave/registered"] = 0
	if a.master.out != nil {
		out["slave/registered"] = 1
	}
	for _, s := range []executorState{registering, running, terminating} {
		out["slave/executors_"+strings.ToLower(string(s))] = 0
	}
	for _, s := range []mesos.TaskState{mesos.TASK_STAGING, mesos.TASK_STARTING, mesos.TASK_RUNNING, mesos.TASK_KILLING,
		mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_LOST, mesos.TASK_GONE} {
		out[taskMetric(s)] = float64(a.endings[s])
	}
	for _, fw := range a.frameworks {
		for _, e := range fw.executors {
			if e.state != terminated {
				out["slave/executors_"+strings.ToLower(string(e.state))]++
			}
			for _, t := range e.order {
				if t.live() {
					out[taskMetric(t.state)]++
				}
			}
		}
	}
	a.systemMetrics(out)
	return out
}

func taskMetric(s mesos.TaskState) string {
	return "slave/tasks_" + strings.ToLower(strings.TrimPrefix(s.String(), "TASK_"))
}

func (a *Agent) systemMetrics(out map[string]float64) {
	const fixed = 1 << 16 // the load's unit, sysinfo(2)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return
	}
	unit := float64(info.Unit)
	out["slave/uptime_secs"] = a.clock.Now().Sub(a.started).Seconds()
	out["system/cpus_total"] = float64(runtime.NumCPU())
	out["system/load_1min"], out["system/load_5min"], out["system/load_15min"] =
		float64(info.Loads[0])/fixed, float64(info.Loads[1])/fixed, float64(info.Loads[2])/fixed
	out["system/mem_total_bytes"], out["system/mem_free_bytes"] = float64(info.Totalram)*unit, float64(info.Freeram)*unit
}
