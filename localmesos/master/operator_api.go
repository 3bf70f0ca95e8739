package master

import (
	"net/http"
	"slices"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
)

// serveOperator is /api/v1, and all below it that has no handler of its own.
func (m *Master) serveOperator(w http.ResponseWriter, r *http.Request) {
	var call apimaster.Call
	present, e := wire.ReadCall(w, r, &call)
	if e != nil {
		e.Write(w)
		return
	}
	if !present["type"] {
		wire.Text(w, http.StatusBadRequest, "Failed to validate master::Call: Expecting 'type' to be present")
		return
	}
	mt, e := wire.ResponseType(r.Header)
	if e != nil {
		e.Write(w)
		return
	}
	var response *apimaster.Response
	var b []byte
	var err error
	if !m.loop.do(func() {
		response = m.operatorResponse(&call)
		switch {
		case response == nil:
		case mt == wire.JSON:
			b, err = m.operatorJSON(response)
		default:
			b, err = wire.Marshal(mt, response)
		}
	}) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	if response == nil {
		wire.Text(w, http.StatusNotImplemented, "501 Not Implemented.")
		return
	}
	if err != nil {
		wire.Text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", string(mt))
	_, _ = w.Write(b)
}

// operatorResponse answers the calls that only read; nil means not implemented.
func (m *Master) operatorResponse(c *apimaster.Call) *apimaster.Response {
	switch c.Type {
	case apimaster.Call_GET_HEALTH:
		return &apimaster.Response{Type: apimaster.Response_GET_HEALTH, GetHealth: &apimaster.Response_GetHealth{Healthy: true}}
	case apimaster.Call_GET_VERSION:
		return &apimaster.Response{Type: apimaster.Response_GET_VERSION, GetVersion: &apimaster.Response_GetVersion{VersionInfo: versionInfo()}}
	case apimaster.Call_GET_FLAGS:
		return &apimaster.Response{Type: apimaster.Response_GET_FLAGS, GetFlags: m.flagList()}
	case apimaster.Call_GET_MASTER:
		info := m.info
		return &apimaster.Response{Type: apimaster.Response_GET_MASTER, GetMaster: &apimaster.Response_GetMaster{MasterInfo: &info}}
	case apimaster.Call_GET_AGENTS:
		return &apimaster.Response{Type: apimaster.Response_GET_AGENTS, GetAgents: m.getAgents()}
	case apimaster.Call_GET_FRAMEWORKS:
		return &apimaster.Response{Type: apimaster.Response_GET_FRAMEWORKS, GetFrameworks: m.getFrameworks()}
	case apimaster.Call_GET_EXECUTORS:
		return &apimaster.Response{Type: apimaster.Response_GET_EXECUTORS, GetExecutors: m.getExecutors()}
	case apimaster.Call_GET_TASKS:
		return &apimaster.Response{Type: apimaster.Response_GET_TASKS, GetTasks: m.getTasks()}
	case apimaster.Call_GET_STATE:
		return &apimaster.Response{Type: apimaster.Response_GET_STATE, GetState: &apimaster.Response_GetState{
			GetTasks: m.getTasks(), GetExecutors: m.getExecutors(), GetFrameworks: m.getFrameworks(), GetAgents: m.getAgents(),
		}}
	case apimaster.Call_GET_ROLES:
		return &apimaster.Response{Type: apimaster.Response_GET_ROLES, GetRoles: m.getRoles()}
	case apimaster.Call_GET_LOGGING_LEVEL:
		// There is one log, and its level is not the master's.
		return &apimaster.Response{Type: apimaster.Response_GET_LOGGING_LEVEL, GetLoggingLevel: &apimaster.Response_GetLoggingLevel{Level: 0}}
	default:
		return nil
	}
}

func versionInfo() mesos.VersionInfo {
	var none string
	var never float64
	return mesos.VersionInfo{Version: Version, BuildDate: &none, BuildTime: &never, BuildUser: &none, GitSHA: &none}
}

func (m *Master) getRoles() *apimaster.Response_GetRoles {
	out := &apimaster.Response_GetRoles{}
	for _, v := range m.roleViews() {
		r := mesos.Role{Name: v.name, Weight: 1, Resources: v.offered.Add(v.used...).Allocate(v.name)}
		for _, id := range v.frameworks {
			r.Frameworks = append(r.Frameworks, mesos.FrameworkID{Value: id})
		}
		out.Roles = append(out.Roles, r)
	}
	return out
}

func (m *Master) flagList() *apimaster.Response_GetFlags {
	out := &apimaster.Response_GetFlags{}
	for name, value := range m.flags.texts() {
		out.Flags = append(out.Flags, mesos.Flag{Name: name, Value: &value})
	}
	slices.SortFunc(out.Flags, func(a, b mesos.Flag) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func (m *Master) getAgents() *apimaster.Response_GetAgents {
	out := &apimaster.Response_GetAgents{}
	for _, a := range m.sortedAgents() {
		pid, offered := a.pid(), a.offered()
		x := apimaster.Response_GetAgents_Agent{
			AgentInfo: a.info, Active: a.state == agentConnected, Version: a.version, PID: &pid,
			RegisteredTime: &mesos.TimeInfo{Nanoseconds: a.registered.UnixNano()},
			TotalResources: a.total.Downgraded(), OfferedResources: offered.Downgraded(),
			AllocatedResources: a.total.Sub(a.free...).Downgraded(),
		}
		if !a.reregistered.IsZero() {
			x.ReregisteredTime = &mesos.TimeInfo{Nanoseconds: a.reregistered.UnixNano()}
		}
		out.Agents = append(out.Agents, x)
	}
	for _, info := range m.recovered {
		out.RecoveredAgents = append(out.RecoveredAgents, info)
	}
	return out
}

func (m *Master) getFrameworks() *apimaster.Response_GetFrameworks {
	out := &apimaster.Response_GetFrameworks{}
	one := func(f *framework) apimaster.Response_GetFrameworks_Framework {
		connected := f.state == frameworkConnected
		x := apimaster.Response_GetFrameworks_Framework{
			FrameworkInfo: f.info, Active: connected, Connected: connected, Recovered: f.state == frameworkRecovered,
			RegisteredTime: &mesos.TimeInfo{Nanoseconds: f.registered.UnixNano()}, AllocatedResources: f.total().Downgraded(),
		}
		for _, o := range f.offers {
			x.Offers = append(x.Offers, o.message())
			x.OfferedResources = append(x.OfferedResources, o.resources.Allocate(o.role).Downgraded()...)
		}
		if !f.reregistered.IsZero() {
			x.ReregisteredTime = &mesos.TimeInfo{Nanoseconds: f.reregistered.UnixNano()}
		}
		if !f.unregistered.IsZero() {
			x.UnregisteredTime = &mesos.TimeInfo{Nanoseconds: f.unregistered.UnixNano()}
		}
		return x
	}
	for _, f := range m.sortedFrameworks() {
		out.Frameworks = append(out.Frameworks, one(f))
	}
	for _, f := range m.completed {
		out.CompletedFrameworks = append(out.CompletedFrameworks, one(f))
	}
	return out
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
		State: &state, Resources: t.info.Resources, Statuses: t.statuses, StatusUpdateState: t.sent, StatusUpdateUUID: t.sentUUID,
		Labels: t.info.Labels, Discovery: t.info.Discovery, Container: t.info.Container, HealthCheck: t.info.HealthCheck, KillPolicy: t.info.KillPolicy,
	}
	if t.executorID != "" {
		out.ExecutorID = &mesos.ExecutorID{Value: t.executorID}
	}
	return out
}
