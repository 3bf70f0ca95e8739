package master

import (
	"maps"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
	"golang.org/x/sys/unix"

	"tandem/localmesos/internal/wire"
)

// counters count what happened since the master started, by the names that
// Apache Mesos gives its metrics, without "master/".
type counters map[string]uint64

// callCounters names the counter of each call of a scheduler.
var callCounters = map[scheduler.Call_Type]string{
	scheduler.Call_TEARDOWN:                     "messages_unregister_framework",
	scheduler.Call_ACCEPT:                       "messages_launch_tasks",
	scheduler.Call_DECLINE:                      "messages_decline_offers",
	scheduler.Call_REVIVE:                       "messages_revive_offers",
	scheduler.Call_SUPPRESS:                     "messages_suppress_offers",
	scheduler.Call_KILL:                         "messages_kill_task",
	scheduler.Call_ACKNOWLEDGE:                  "messages_status_update_acknowledgement",
	scheduler.Call_RECONCILE:                    "messages_reconcile_tasks",
	scheduler.Call_MESSAGE:                      "messages_framework_to_executor",
	scheduler.Call_REQUEST:                      "messages_resource_request",
	scheduler.Call_RECONCILE_OPERATIONS:         "messages_reconcile_operations",
	scheduler.Call_ACKNOWLEDGE_OPERATION_STATUS: "messages_operation_status_update_acknowledgement",
}

// otherCounters are those that are not in callCounters; all are shown from the start.
var otherCounters = []string{
	"dropped_messages", "http_cache_hits", "recovery_slave_removals", "operator_event_stream_subscribers",
	"event_queue_dispatches", "event_queue_http_requests", "event_queue_messages",
	"messages_authenticate", "messages_deactivate_framework", "messages_register_framework", "messages_reregister_framework",
	"messages_register_slave", "messages_reregister_slave", "messages_unregister_slave", "messages_update_slave",
	"messages_status_update", "messages_exited_executor", "messages_executor_to_framework", "messages_operation_status_update",
	"slave_registrations", "slave_reregistrations", "slave_removals", "slave_removals/reason_registered", "slave_removals/reason_unhealthy",
	"slave_removals/reason_unregistered", "slave_shutdowns_canceled", "slave_shutdowns_completed", "slave_shutdowns_scheduled",
	"slave_unreachable_canceled", "slave_unreachable_completed", "slave_unreachable_scheduled",
	"tasks_dropped", "tasks_error", "tasks_failed", "tasks_finished", "tasks_gone", "tasks_gone_by_operator", "tasks_killed", "tasks_lost",
	"valid_status_updates", "invalid_status_updates", "valid_status_update_acknowledgements", "invalid_status_update_acknowledgements",
	"valid_framework_to_executor_messages", "invalid_framework_to_executor_messages", "valid_executor_to_framework_messages", "invalid_executor_to_framework_messages",
	"valid_operation_status_updates", "invalid_operation_status_updates", "valid_operation_status_update_acknowledgements", "invalid_operation_status_update_acknowledgements",
}

// Operations that the master does not carry out; they are counted as errors.
var (
	operationKinds  = []string{"create", "create_disk", "destroy", "destroy_disk", "grow_volume", "reserve", "shrink_volume", "unreserve"}
	operationStates = []string{"dropped", "error", "failed", "finished", "gone_by_operator", "pending", "recovering", "total", "unreachable"}
)

// count adds one to a counter.
func (m *Master) count(name string) { m.counters[name]++ }

// countValid adds one to the counter of valid or invalid things.
func (m *Master) countValid(ok bool, name string) {
	if !ok {
		name = "in" + name
	}
	m.count(name)
}

// countTask counts a task that has become terminal.
func (m *Master) countTask(s mesos.TaskState) {
	m.count(strings.ToLower(s.String()[:4]) + "s" + strings.ToLower(s.String()[4:]))
}

// metricsModel is /metrics/snapshot.
func (m *Master) metricsModel() any { return m.metrics() }

func (m *Master) metrics() map[string]wire.Double {
	out := map[string]wire.Double{}
	set := func(name string, v float64) { out["master/"+name] = wire.Double(v) }
	for _, name := range otherCounters {
		set(name, 0)
	}
	for name := range maps.Values(callCounters) {
		set(name, 0)
	}
	for _, state := range operationStates {
		set("operations/"+state, 0)
		for _, kind := range operationKinds {
			set("operations/"+kind+"/"+state, 0)
		}
	}
	for name, n := range m.counters {
		set(name, float64(n))
	}
	m.frameworkMetrics(set)
	m.agentMetrics(set)
	elected := 0.0
	if m.flags.leads() {
		elected = 1
	}
	set("elected", elected)
	set("operator_event_stream_subscribers", float64(len(m.subscribers)))
	set("outstanding_offers", float64(len(m.offers)))
	set("uptime_secs", sinceSeconds(m.started))
	out["allocator/mesos/allocation_runs"] = wire.Double(m.allocations)
	out["allocator/mesos/event_queue_dispatches"], out["allocator/event_queue_dispatches"] = 0, 0
	out["registrar/log/ensemble_size"], out["registrar/log/recovered"], out["registrar/queued_operations"] = 1, 1, 0
	out["registrar/registry_size_bytes"] = wire.Double(m.registry.size)
	for name, v := range systemModel() {
		out["system/"+name] = v
	}
	return out
}

func (m *Master) frameworkMetrics(set func(string, float64)) {
	connected := 0
	states := map[mesos.TaskState]int{}
	for _, f := range m.frameworks {
		if f.state == frameworkConnected {
			connected++
		}
		for _, t := range f.tasks {
			states[t.state]++
		}
		states[mesos.TASK_UNREACHABLE] += len(f.unreachable)
	}
	away := float64(len(m.frameworks) - connected)
	set("frameworks_active", float64(connected))
	set("frameworks_connected", float64(connected))
	set("frameworks_inactive", away)
	set("frameworks_disconnected", away)
	for name, s := range map[string]mesos.TaskState{"staging": mesos.TASK_STAGING, "starting": mesos.TASK_STARTING, "running": mesos.TASK_RUNNING,
		"killing": mesos.TASK_KILLING, "unreachable": mesos.TASK_UNREACHABLE} {
		set("tasks_"+name, float64(states[s]))
	}
}

func (m *Master) agentMetrics(set func(string, float64)) {
	connected := 0
	total, free := m.clusterTotal(), m.clusterTotal().Sub(m.clusterTotal()...)
	for _, a := range m.agents {
		if a.state == agentConnected {
			connected++
		}
		free = free.Add(a.free...).Add(a.offered()...)
	}
	set("slaves_active", float64(connected))
	set("slaves_connected", float64(connected))
	set("slaves_disconnected", float64(len(m.agents)-connected))
	set("slaves_inactive", float64(len(m.agents)-connected))
	set("slaves_unreachable", float64(len(m.unreachable)))
	for _, name := range []string{"cpus", "mem", "disk", "gpus"} {
		all, _ := total.Scalar(name)
		left, _ := free.Scalar(name)
		set(name+"_total", all)
		set(name+"_used", all-left)
		percent := 0.0
		if all > 0 {
			percent = (all - left) / all
		}
		set(name+"_percent", percent)
		for _, what := range []string{"total", "used", "percent"} {
			set(name+"_revocable_"+what, 0)
		}
	}
}

// systemModel is /system/stats.json without the prefix of the metrics; what
// the kernel does not tell is 0.
func systemModel() map[string]wire.Double {
	out := map[string]wire.Double{"cpus_total": 0, "load_1min": 0, "load_5min": 0, "load_15min": 0, "mem_total_bytes": 0, "mem_free_bytes": 0}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return out
	}
	unit := float64(max(info.Unit, 1))
	out["mem_total_bytes"], out["mem_free_bytes"] = wire.Double(float64(info.Totalram)*unit), wire.Double(float64(info.Freeram)*unit)
	out["cpus_total"] = wire.Double(cpuCount())
	for i, name := range []string{"load_1min", "load_5min", "load_15min"} {
		// Fixed point with 16 bits: SI_LOAD_SHIFT of linux/sysinfo.h.
		v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(info.Loads[i])/65536, 'f', 2, 64), 64)
		out[name] = wire.Double(v)
	}
	return out
}
