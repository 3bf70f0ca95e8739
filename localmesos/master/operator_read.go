package master

import (
	"cmp"
	"maps"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/resource"
)

// readers answer the calls of the operator API that change nothing. They run in
// the loop; what they return may be encoded outside of it.
var readers = map[apimaster.Call_Type]func(*Master) *apimaster.Response{
	apimaster.Call_GET_HEALTH: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_HEALTH, GetHealth: &apimaster.Response_GetHealth{Healthy: true}}
	},
	apimaster.Call_GET_VERSION: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_VERSION, GetVersion: &apimaster.Response_GetVersion{VersionInfo: versionInfo()}}
	},
	apimaster.Call_GET_FLAGS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_FLAGS, GetFlags: m.flagList()}
	},
	apimaster.Call_GET_METRICS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_METRICS, GetMetrics: m.metricList()}
	},
	apimaster.Call_GET_LOGGING_LEVEL: func(*Master) *apimaster.Response {
		// There is one log, and its level is not the master's.
		return &apimaster.Response{Type: apimaster.Response_GET_LOGGING_LEVEL, GetLoggingLevel: &apimaster.Response_GetLoggingLevel{Level: 0}}
	},
	apimaster.Call_GET_MASTER: func(m *Master) *apimaster.Response {
		info, started := m.info, float64(m.started.UnixMicro())/1e6
		return &apimaster.Response{Type: apimaster.Response_GET_MASTER, GetMaster: &apimaster.Response_GetMaster{
			MasterInfo: &info, StartTime: &started, ElectedTime: &started,
		}}
	},
	apimaster.Call_GET_AGENTS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_AGENTS, GetAgents: m.getAgents()}
	},
	apimaster.Call_GET_FRAMEWORKS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_FRAMEWORKS, GetFrameworks: m.getFrameworks()}
	},
	apimaster.Call_GET_EXECUTORS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_EXECUTORS, GetExecutors: m.getExecutors()}
	},
	apimaster.Call_GET_OPERATIONS: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_OPERATIONS, GetOperations: &apimaster.Response_GetOperations{}}
	},
	apimaster.Call_GET_TASKS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_TASKS, GetTasks: m.getTasks()}
	},
	apimaster.Call_GET_STATE: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_STATE, GetState: m.getState()}
	},
	apimaster.Call_GET_ROLES: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_ROLES, GetRoles: m.getRoles()}
	},
	apimaster.Call_GET_WEIGHTS: func(m *Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_WEIGHTS, GetWeights: &apimaster.Response_GetWeights{WeightInfos: m.weightInfos()}}
	},
	// There are neither quotas nor maintenance, which is what Mesos says of a cluster without them.
	apimaster.Call_GET_QUOTA: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_QUOTA, GetQuota: &apimaster.Response_GetQuota{}}
	},
	apimaster.Call_GET_MAINTENANCE_STATUS: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_MAINTENANCE_STATUS, GetMaintenanceStatus: &apimaster.Response_GetMaintenanceStatus{}}
	},
	apimaster.Call_GET_MAINTENANCE_SCHEDULE: func(*Master) *apimaster.Response {
		return &apimaster.Response{Type: apimaster.Response_GET_MAINTENANCE_SCHEDULE, GetMaintenanceSchedule: &apimaster.Response_GetMaintenanceSchedule{}}
	},
}

func versionInfo() mesos.VersionInfo {
	var none string
	var never float64
	return mesos.VersionInfo{Version: Version, BuildDate: &none, BuildTime: &never, BuildUser: &none, GitSHA: &none}
}

func (m *Master) getState() *apimaster.Response_GetState {
	return &apimaster.Response_GetState{GetTasks: m.getTasks(), GetExecutors: m.getExecutors(), GetFrameworks: m.getFrameworks(), GetAgents: m.getAgents()}
}

func (m *Master) getRoles() *apimaster.Response_GetRoles {
	out := &apimaster.Response_GetRoles{}
	for _, v := range m.roleViews() {
		r := mesos.Role{Name: v.name, Weight: m.weight(v.name), Resources: v.offered.Add(v.used...).Allocate(v.name)}
		for _, id := range v.frameworks {
			r.Frameworks = append(r.Frameworks, mesos.FrameworkID{Value: id})
		}
		out.Roles = append(out.Roles, r)
	}
	return out
}

func (m *Master) weightInfos() []mesos.WeightInfo {
	var out []mesos.WeightInfo
	for _, role := range slices.Sorted(maps.Keys(m.weights)) {
		out = append(out, mesos.WeightInfo{Role: &role, Weight: m.weights[role]})
	}
	return out
}

func (m *Master) flagList() *apimaster.Response_GetFlags {
	out := &apimaster.Response_GetFlags{}
	texts := m.flags.texts()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		value := texts[name]
		out.Flags = append(out.Flags, mesos.Flag{Name: name, Value: &value})
	}
	return out
}

func (m *Master) metricList() *apimaster.Response_GetMetrics {
	out := &apimaster.Response_GetMetrics{}
	values := m.metrics()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := float64(values[name])
		out.Metrics = append(out.Metrics, mesos.Metric{Name: name, Value: &value})
	}
	return out
}

func (m *Master) getAgents() *apimaster.Response_GetAgents {
	out := &apimaster.Response_GetAgents{}
	for _, a := range m.sortedAgents() {
		out.Agents = append(out.Agents, a.message())
	}
	for _, info := range m.recovered {
		out.RecoveredAgents = append(out.RecoveredAgents, info)
	}
	slices.SortFunc(out.RecoveredAgents, func(a, b mesos.AgentInfo) int { return cmp.Compare(a.GetID().Value, b.GetID().Value) })
	return out
}

// message is the agent as the v1 API shows it.
func (a *agent) message() apimaster.Response_GetAgents_Agent {
	pid, offered, deactivated := a.pid(), a.offered(), false
	x := apimaster.Response_GetAgents_Agent{
		AgentInfo: a.info, Active: a.state == agentConnected, Deactivated: &deactivated, Version: a.version, PID: &pid,
		RegisteredTime: timeInfo(a.registered), Capabilities: agentCapabilities,
		TotalResources: a.total.Downgraded(), OfferedResources: offered.Downgraded(),
		// What is only offered is not allocated.
		AllocatedResources: a.total.Sub(a.free...).Sub(offered...).Downgraded(),
	}
	if !a.reregistered.IsZero() {
		x.ReregisteredTime = timeInfo(a.reregistered)
	}
	return x
}

func timeInfo(t time.Time) *mesos.TimeInfo { return &mesos.TimeInfo{Nanoseconds: t.UnixNano()} }

func (m *Master) getFrameworks() *apimaster.Response_GetFrameworks {
	out := &apimaster.Response_GetFrameworks{}
	for _, f := range m.sortedFrameworks() {
		x := f.message()
		offered := resource.List(nil)
		for _, o := range f.sortedOffers() {
			x.Offers = append(x.Offers, o.message())
			offered = offered.Add(o.resources.Allocate(o.role)...)
		}
		x.OfferedResources, x.AllocatedResources = offered.Downgraded(), f.used().Downgraded()
		out.Frameworks = append(out.Frameworks, x)
	}
	for _, f := range m.completed {
		out.CompletedFrameworks = append(out.CompletedFrameworks, f.message())
	}
	return out
}

// message is the framework as the v1 API shows it, without what it holds. Mesos
// shows the first registration as a second one, too.
func (f *framework) message() apimaster.Response_GetFrameworks_Framework {
	connected := f.state == frameworkConnected
	x := apimaster.Response_GetFrameworks_Framework{
		FrameworkInfo: f.info, Active: connected, Connected: connected, Recovered: f.state == frameworkRecovered,
		RegisteredTime: timeInfo(f.registered), ReregisteredTime: timeInfo(f.registered),
	}
	if !f.reregistered.IsZero() {
		x.ReregisteredTime = timeInfo(f.reregistered)
	}
	if !f.unregistered.IsZero() {
		x.UnregisteredTime = timeInfo(f.unregistered)
	}
	return x
}

func (m *Master) getExecutors() *apimaster.Response_GetExecutors {
	out := &apimaster.Response_GetExecutors{}
	for _, a := range m.sortedAgents() {
		for _, f := range m.sortedFrameworks() {
			for _, x := range a.executorsOf(f.id) {
				out.Executors = append(out.Executors, apimaster.Response_GetExecutors_Executor{ExecutorInfo: x.info, AgentID: mesos.AgentID{Value: a.id}})
			}
		}
	}
	return out
}

func (m *Master) getTasks() *apimaster.Response_GetTasks {
	out := &apimaster.Response_GetTasks{}
	for _, f := range append(m.sortedFrameworks(), m.completed...) {
		for _, t := range sortedTasks(f.tasks) {
			out.Tasks = append(out.Tasks, t.message())
		}
		for _, t := range sortedTasks(f.unreachable) {
			out.UnreachableTasks = append(out.UnreachableTasks, t.message())
		}
		for _, t := range f.completed {
			out.CompletedTasks = append(out.CompletedTasks, t.message())
		}
	}
	return out
}

// message is the task as the v1 API shows it.
func (t *task) message() mesos.Task {
	state := t.state
	out := mesos.Task{
		Name: t.info.Name, TaskID: t.info.TaskID, FrameworkID: mesos.FrameworkID{Value: t.framework.id}, AgentID: mesos.AgentID{Value: t.agentID},
		// record changes the slice in place.
		State: &state, Resources: t.info.Resources, Statuses: slices.Clone(t.statuses), StatusUpdateState: t.sent, StatusUpdateUUID: t.sentUUID,
		Labels: t.info.Labels, Discovery: t.info.Discovery, Container: t.info.Container, HealthCheck: t.info.HealthCheck, KillPolicy: t.info.KillPolicy,
	}
	if t.executorID != "" {
		out.ExecutorID = &mesos.ExecutorID{Value: t.executorID}
	}
	if user := t.user(); user != "" {
		out.User = &user
	}
	return out
}
