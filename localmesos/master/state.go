package master

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

// texts are the flags as Mesos shows them.
func (f Flags) texts() map[string]string {
	out := map[string]string{
		"ip": f.IP, "port": strconv.Itoa(f.Port), "hostname": f.Hostname, "work_dir": f.WorkDir, "registry": f.Registry,
		"agent_ping_timeout":                    flags.FormatDuration(f.AgentPingTimeout),
		"max_agent_ping_timeouts":               strconv.Itoa(f.MaxAgentPingTimeouts),
		"agent_reregister_timeout":              flags.FormatDuration(f.AgentReregisterTimeout),
		"allocation_interval":                   flags.FormatDuration(f.AllocationInterval),
		"max_completed_frameworks":              strconv.Itoa(f.MaxCompletedFrameworks),
		"max_completed_tasks_per_framework":     strconv.Itoa(f.MaxCompletedTasksPerFramework),
		"max_unreachable_tasks_per_framework":   strconv.Itoa(f.MaxUnreachableTasksPerFramework),
		"max_operator_event_stream_subscribers": strconv.Itoa(f.MaxOperatorEventStreamSubscribers),
		"min_allocatable_resources":             f.MinAllocatableResources,
	}
	if f.AuthenticateHTTPFrameworks {
		out["authenticate_http_frameworks"] = "true"
	}
	// The path only, never what is in the file.
	for name, value := range map[string]string{"credentials": f.Credentials, "http_framework_authenticators": f.HTTPFrameworkAuthenticators, "leader": f.Leader} {
		if value != "" {
			out[name] = value
		}
	}
	if f.Weights != "" {
		out["weights"] = f.Weights
	}
	if rate := rateFlag(f.AgentRemovalRateLimit); rate > 0 {
		out["agent_removal_rate_limit"] = rate.String()
	}
	return out
}

func (m *Master) sortedFrameworks() []*framework {
	out := make([]*framework, 0, len(m.frameworks))
	for _, f := range m.frameworks {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *framework) int { return cmp.Or(a.registered.Compare(b.registered), cmp.Compare(a.id, b.id)) })
	return out
}

func sortedTasks(tasks map[string]*task) []*task {
	out := make([]*task, 0, len(tasks))
	for _, t := range tasks {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *task) int { return cmp.Compare(a.info.TaskID.Value, b.info.TaskID.Value) })
	return out
}

func taskModels(tasks []*task) []object {
	out := make([]object, 0, len(tasks))
	for _, t := range tasks {
		out = append(out, taskModel(t))
	}
	return out
}

// stateModel is /state.
func (m *Master) stateModel() any {
	slaves, recovered := m.slaveModels()
	frameworks, completed := m.frameworkModels()
	out := versionModel()
	active := 0
	for _, a := range m.agents {
		if a.state == agentConnected {
			active++
		}
	}
	for k, v := range (object{
		"id": m.id, "pid": m.info.GetPID(), "hostname": m.flags.Hostname, "start_time": seconds(m.started), "elected_time": seconds(m.started),
		"leader": m.info.GetPID(), "leader_info": object{"id": m.id, "pid": m.info.GetPID(), "port": m.flags.Port, "hostname": m.flags.Hostname},
		"capabilities": []string{"AGENT_UPDATE", "AGENT_DRAINING", "QUOTA_V2"}, "flags": m.flags.texts(),
		"activated_slaves": wire.Double(active), "deactivated_slaves": wire.Double(len(m.agents) - active), "unreachable_slaves": wire.Double(len(m.unreachable)),
		"slaves": slaves, "recovered_slaves": recovered, "frameworks": frameworks, "completed_frameworks": completed,
		"orphan_tasks": []object{}, "unregistered_frameworks": []object{},
	}) {
		out[k] = v
	}
	return out
}

// frameworksModel is /frameworks.
func (m *Master) frameworksModel() any {
	frameworks, completed := m.frameworkModels()
	return object{"frameworks": frameworks, "completed_frameworks": completed, "unregistered_frameworks": []object{}}
}

func (m *Master) frameworkModels() (frameworks, completed []object) {
	frameworks, completed = []object{}, []object{}
	for _, f := range m.sortedFrameworks() {
		frameworks = append(frameworks, m.frameworkModel(f))
	}
	for _, f := range m.completed {
		completed = append(completed, m.frameworkModel(f))
	}
	return frameworks, completed
}

func (m *Master) frameworkModel(f *framework) object {
	capabilities := []string{}
	for _, c := range f.info.Capabilities {
		capabilities = append(capabilities, c.Type.String())
	}
	executors, offers := []object{}, []object{}
	var offered resource.List
	for _, a := range m.sortedAgents() {
		for _, x := range a.executorsOf(f.id) {
			executors = append(executors, executorModel(a, x))
		}
	}
	for _, o := range f.offers {
		offers = append(offers, offerModel(o))
		offered = offered.Add(o.resources...)
	}
	out := object{
		"id": f.id, "name": f.info.Name, "user": f.info.User, "failover_timeout": wire.Double(f.info.GetFailoverTimeout()),
		"checkpoint": f.info.GetCheckpoint(), "hostname": f.info.GetHostname(), "webui_url": f.info.GetWebUiURL(), "capabilities": capabilities,
		"active": f.state == frameworkConnected, "connected": f.state == frameworkConnected, "recovered": f.state == frameworkRecovered,
		"registered_time": seconds(f.registered), "unregistered_time": wire.Double(0), "offer_constraints": object{},
		"resources": resourcesModel(f.total()), "used_resources": resourcesModel(f.used()), "offered_resources": resourcesModel(offered),
		"tasks": taskModels(sortedTasks(f.tasks)), "completed_tasks": taskModels(f.completed), "unreachable_tasks": taskModels(sortedTasks(f.unreachable)),
		"executors": executors, "offers": offers,
	}
	if hasCapability(f.info, mesos.FrameworkInfo_Capability_MULTI_ROLE) {
		out["roles"] = nonNil(f.info.Roles)
	} else {
		out["role"] = f.info.GetRole()
	}
	if f.info.Principal != nil {
		out["principal"] = *f.info.Principal
	}
	if f.info.Labels != nil {
		out["labels"] = bareLabels(f.info.Labels)
	}
	if !f.reregistered.IsZero() {
		out["reregistered_time"] = seconds(f.reregistered)
	}
	if !f.unregistered.IsZero() {
		out["unregistered_time"] = seconds(f.unregistered)
	}
	return out
}

// used is what the framework has and is not only offered, for people.
func (f *framework) used() resource.List {
	var out resource.List
	for id, l := range f.held {
		for _, o := range f.offers {
			if o.agent.id == id {
				l = l.Sub(o.resources...)
			}
		}
		out = out.Add(l...)
	}
	return out
}

// serveSlaves is /slaves; slave_id chooses one.
func (m *Master) serveSlaves(w http.ResponseWriter, r *http.Request) {
	want := r.URL.Query().Get("slave_id")
	m.serveModel(func() any {
		slaves, recovered := m.slaveModels()
		for i, a := range m.sortedAgents() {
			m.addFullResources(slaves[i], a)
		}
		if want != "" {
			other := func(o object) bool { return o["id"] != want }
			slaves, recovered = slices.DeleteFunc(slaves, other), slices.DeleteFunc(recovered, other)
		}
		return object{"slaves": slaves, "recovered_slaves": recovered}
	})(w, r)
}

func (m *Master) slaveModels() (slaves, recovered []object) {
	slaves, recovered = []object{}, []object{}
	for _, a := range m.sortedAgents() {
		slaves = append(slaves, m.slaveModel(a))
	}
	for id, info := range m.recovered {
		recovered = append(recovered, object{"id": id, "hostname": info.Hostname, "port": info.GetPort(), "attributes": attributesModel(info.Attributes)})
	}
	return slaves, recovered
}

func (m *Master) slaveModel(a *agent) object {
	reserved := object{}
	unreserved, offered := splitReserved(a.total), a.offered()
	for role, l := range unreserved.byRole {
		reserved[role] = resourcesModel(l)
	}
	out := object{
		"id": a.id, "hostname": a.info.Hostname, "port": a.info.GetPort(), "pid": a.pid(), "version": a.version,
		"attributes": attributesModel(a.info.Attributes), "registered_time": seconds(a.registered), "active": a.state == agentConnected, "deactivated": false,
		"capabilities": agentCapabilityNames,
		"resources":    resourcesModel(a.total), "used_resources": resourcesModel(a.total.Sub(a.free...).Sub(offered...)), "offered_resources": resourcesModel(offered),
		"reserved_resources": reserved, "unreserved_resources": resourcesModel(unreserved.rest),
	}
	if !a.reregistered.IsZero() {
		out["reregistered_time"] = seconds(a.reregistered)
	}
	return out
}

// addFullResources adds what only /slaves shows.
func (m *Master) addFullResources(out object, a *agent) {
	split := splitReserved(a.total)
	full := object{}
	for role, l := range split.byRole {
		full[role] = rawList(l.Downgraded())
	}
	var used, offered []mesos.Resource
	for _, f := range m.sortedFrameworks() {
		for _, t := range sortedTasks(f.tasks) {
			if t.agent == a && !t.released {
				used = append(used, t.resources.Allocate(t.role()).Downgraded()...)
			}
		}
		for _, x := range a.executorsOf(f.id) {
			used = append(used, x.resources.Allocate(f.roles()[0]).Downgraded()...)
		}
	}
	for _, o := range a.offers {
		offered = append(offered, o.resources.Allocate(o.role).Downgraded()...)
	}
	out["reserved_resources_full"], out["unreserved_resources_full"] = full, rawList(split.rest.Downgraded())
	out["used_resources_full"], out["offered_resources_full"] = rawList(used), rawList(offered)
}

func (a *agent) pid() string {
	return "slave(1)@" + a.ip + ":" + strconv.Itoa(int(a.info.GetPort()))
}

func (a *agent) offered() resource.List {
	var out resource.List
	for _, o := range a.offers {
		out = out.Add(o.resources...)
	}
	return out
}

// reservedSplit is resources by the role that they are reserved to.
type reservedSplit struct {
	byRole map[string]resource.List
	rest   resource.List
}

func splitReserved(l resource.List) reservedSplit {
	out := reservedSplit{byRole: map[string]resource.List{}}
	for _, r := range l {
		if n := len(r.Reservations); n > 0 {
			role := r.Reservations[n-1].GetRole()
			out.byRole[role] = out.byRole[role].Add(r)
		} else {
			out.rest = out.rest.Add(r)
		}
	}
	return out
}

// serveTasks is /tasks with limit (100), offset, order (des), framework_id and task_id.
func (m *Master) serveTasks(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	number := func(name string, def int) int {
		if n, err := strconv.Atoi(q.Get(name)); err == nil && n >= 0 {
			return n
		}
		return def
	}
	limit, offset := number("limit", 100), number("offset", 0)
	m.serveModel(func() any {
		var all []*task
		for _, f := range append(m.sortedFrameworks(), m.completed...) {
			if id := q.Get("framework_id"); id == "" || id == f.id {
				all = append(all, sortedTasks(f.tasks)...)
				all = append(all, sortedTasks(f.unreachable)...)
				all = append(all, f.completed...)
			}
		}
		if id := q.Get("task_id"); id != "" {
			all = slices.DeleteFunc(all, func(t *task) bool { return t.info.TaskID.Value != id })
		}
		began := func(t *task) float64 {
			if len(t.statuses) > 0 {
				return t.statuses[0].GetTimestamp()
			}
			return 0
		}
		slices.SortStableFunc(all, func(a, b *task) int {
			if q.Get("order") == "asc" {
				return cmp.Compare(began(a), began(b))
			}
			return cmp.Compare(began(b), began(a))
		})
		all = all[min(offset, len(all)):]
		return object{"tasks": taskModels(all[:min(limit, len(all))])}
	})(w, r)
}
