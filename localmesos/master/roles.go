package master

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

// roleView is what the endpoints show of a role.
type roleView struct {
	name          string
	frameworks    []string
	offered, used resource.List
	reserved      resource.List
}

// roleViews are the roles that frameworks subscribe to, use, or have reserved.
func (m *Master) roleViews() []*roleView {
	views := map[string]*roleView{}
	view := func(name string) *roleView {
		if views[name] == nil {
			views[name] = &roleView{name: name}
		}
		return views[name]
	}
	for _, f := range m.sortedFrameworks() {
		for _, role := range f.roles() {
			v := view(role)
			v.frameworks = append(v.frameworks, f.id)
		}
		for _, o := range f.offers {
			v := view(o.role)
			v.offered = v.offered.Add(o.resources...)
		}
		for _, t := range f.tasks {
			if !t.released {
				v := view(t.role())
				v.used = v.used.Add(t.resources...)
			}
		}
	}
	for _, a := range m.agents {
		for _, x := range a.executors {
			v := view(roleOf(x.info.Resources))
			v.used = v.used.Add(x.resources...)
		}
		for role, l := range splitReserved(a.total).byRole {
			v := view(role)
			v.reserved = v.reserved.Add(l...)
		}
	}
	return slices.SortedFunc(maps.Values(views), func(a, b *roleView) int { return cmp.Compare(a.name, b.name) })
}

// rolesModel is /roles.
func (m *Master) rolesModel() any {
	roles := []object{}
	for _, v := range m.roleViews() {
		roles = append(roles, object{
			"name": v.name, "weight": wire.Double(m.weight(v.name)), "frameworks": nonNil(v.frameworks),
			"resources": resourcesModel(v.offered.Add(v.used...)), "allocated": sparse(v.used), "offered": sparse(v.offered), "reserved": sparse(v.reserved),
			"quota": object{"role": v.name, "guarantee": object{}, "limit": object{}, "consumed": sparse(v.used.Add(v.reserved...))},
		})
	}
	return object{"roles": roles}
}

// sparse writes resources without those that are not there.
func sparse(l resource.List) object {
	out := resourcesModel(l)
	for _, name := range []string{"cpus", "mem", "disk", "gpus"} {
		if _, ok := l.Scalar(name); !ok {
			delete(out, name)
		}
	}
	return out
}

// summaryModel is /state-summary: counts of tasks by framework and agent.
func (m *Master) summaryModel() any {
	frameworks, slaves := []object{}, []object{}
	slaveIDs, frameworkIDs := map[string]map[string]bool{}, map[string]map[string]bool{}
	byFramework, byAgent := map[string]map[mesos.TaskState]int{}, map[string]map[mesos.TaskState]int{}
	for _, f := range m.sortedFrameworks() {
		for _, t := range slices.Concat(sortedTasks(f.tasks), sortedTasks(f.unreachable), f.completed) {
			countIn(byFramework, f.id, t.state)
			countIn(byAgent, t.agentID, t.state)
			mark(slaveIDs, f.id, t.agentID)
			mark(frameworkIDs, t.agentID, f.id)
		}
	}
	for _, f := range m.sortedFrameworks() {
		full := m.frameworkModel(f)
		out := object{"slave_ids": sortedKeys(slaveIDs[f.id])}
		for _, k := range []string{"id", "name", "used_resources", "offered_resources", "capabilities", "hostname", "webui_url", "active", "connected", "recovered"} {
			out[k] = full[k]
		}
		addCounts(out, byFramework[f.id])
		frameworks = append(frameworks, out)
	}
	for _, a := range m.sortedAgents() {
		out := m.slaveModel(a)
		out["framework_ids"] = sortedKeys(frameworkIDs[a.id])
		addCounts(out, byAgent[a.id])
		slaves = append(slaves, out)
	}
	return object{"hostname": m.flags.Hostname, "frameworks": frameworks, "slaves": slaves}
}

func countIn(to map[string]map[mesos.TaskState]int, key string, s mesos.TaskState) {
	if to[key] == nil {
		to[key] = map[mesos.TaskState]int{}
	}
	to[key][s]++
}

func mark(to map[string]map[string]bool, key, value string) {
	if to[key] == nil {
		to[key] = map[string]bool{}
	}
	to[key][value] = true
}

func sortedKeys(m map[string]bool) []string { return nonNil(slices.Sorted(maps.Keys(m))) }

// addCounts adds how many tasks are in each state that the summary shows.
func addCounts(out object, counts map[mesos.TaskState]int) {
	for _, s := range []mesos.TaskState{mesos.TASK_STAGING, mesos.TASK_STARTING, mesos.TASK_RUNNING, mesos.TASK_KILLING, mesos.TASK_FINISHED,
		mesos.TASK_KILLED, mesos.TASK_FAILED, mesos.TASK_LOST, mesos.TASK_ERROR, mesos.TASK_UNREACHABLE} {
		out[s.String()] = counts[s]
	}
}

// statsModel is /system/stats.json.
func statsModel() any {
	s := systemModel()
	return object{"avg_load_1min": s["load_1min"], "avg_load_5min": s["load_5min"], "avg_load_15min": s["load_15min"],
		"cpus_total": s["cpus_total"], "mem_total_bytes": s["mem_total_bytes"], "mem_free_bytes": s["mem_free_bytes"]}
}

func cpuCount() int { return runtime.NumCPU() }

func sinceSeconds(t time.Time) float64 { return time.Since(t).Seconds() }
