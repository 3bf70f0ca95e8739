package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sort"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xagent "github.com/mesos/mesos-go/api/v1/lib/agent"

	"tandem/internal/version"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/internal/wire"
)

// operatorAPI is /api/v1, and all below it that has no handler of its own: the
// calls of the v1 operator API that only read.
func (a *Agent) operatorAPI(w http.ResponseWriter, r *http.Request) {
	var call xagent.Call
	present, e := wire.ReadCall(w, r, &call)
	if e == nil && !present["type"] {
		e = wire.Errorf(http.StatusBadRequest, "Failed to validate agent::Call: Expecting 'type' to be present")
	}
	var mt wire.MediaType
	if e == nil {
		mt, e = wire.ResponseType(r.Header)
	}
	var answer *xagent.Response
	if e == nil {
		answer, e = a.respond(r, &call)
	}
	var b []byte
	if e == nil {
		var err error
		if b, err = wire.Marshal(mt, answer); err == nil && mt == wire.JSON {
			b, err = withEmptyLists(b)
		}
		if err != nil {
			e = wire.Errorf(http.StatusInternalServerError, "%s", err.Error())
		}
	}
	if e != nil {
		e.Write(w)
		return
	}
	wire.Body(w, http.StatusOK, string(mt), b)
}

// respond answers a call: those that look at files or processes beside the event
// loop, the others in it.
func (a *Agent) respond(r *http.Request, call *xagent.Call) (answer *xagent.Response, e *wire.Error) {
	recovered := false
	ok := a.loop.do(r.Context(), func() {
		if recovered = a.master.recovered; recovered {
			answer = a.answer(call.Type)
		}
	})
	switch {
	case !ok:
	case !recovered:
		return nil, errRecovering
	case call.Type == xagent.Call_LIST_FILES:
		return a.listFiles(call.ListFiles)
	case call.Type == xagent.Call_READ_FILE:
		return a.readFilePiece(call.ReadFile)
	case call.Type == xagent.Call_GET_CONTAINERS:
		answer = &xagent.Response{Type: xagent.Response_GET_CONTAINERS}
		answer.GetContainers, ok = a.listContainers(r)
	case answer == nil:
		return nil, wire.Errorf(http.StatusNotImplemented, "501 Not Implemented.")
	}
	if !ok {
		return nil, wire.Errorf(http.StatusServiceUnavailable, "The agent is ending.")
	}
	return answer, nil
}

// lists are those that Apache Mesos writes even if nothing is in them.
var lists = map[string][]string{
	"get_tasks":      {"pending_tasks", "queued_tasks", "launched_tasks", "terminated_tasks", "completed_tasks"},
	"get_executors":  {"executors", "completed_executors"},
	"get_frameworks": {"frameworks", "completed_frameworks"},
	"get_containers": {"containers"},
	"list_files":     {"file_infos"},
}

func withEmptyLists(b []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // 4.0 must stay 4.0
	var o object
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	fill := func(in object) {
		for field, names := range lists {
			if inner, ok := in[field].(object); ok {
				for _, name := range names {
					if inner[name] == nil {
						inner[name] = []any{}
					}
				}
			}
		}
	}
	fill(o)
	if state, ok := o["get_state"].(object); ok {
		fill(state)
	}
	return json.Marshal(o)
}

// answer makes the response to a call; nil is for one that is not implemented.
func (a *Agent) answer(t xagent.Call_Type) *xagent.Response {
	switch t {
	case xagent.Call_GET_HEALTH:
		return &xagent.Response{Type: xagent.Response_GET_HEALTH, GetHealth: &xagent.Response_GetHealth{Healthy: true}}
	case xagent.Call_GET_VERSION:
		user, zero := "tandem "+version.Version, 0.0
		return &xagent.Response{Type: xagent.Response_GET_VERSION, GetVersion: &xagent.Response_GetVersion{
			VersionInfo: mesos.VersionInfo{Version: mesosVersion, GitSHA: &version.Commit, BuildDate: &version.Date, BuildUser: &user, BuildTime: &zero}}}
	case xagent.Call_GET_FLAGS:
		out := &xagent.Response_GetFlags{}
		for name, v := range a.flagsJSON() {
			text, _ := v.(string)
			out.Flags = append(out.Flags, mesos.Flag{Name: name, Value: &text})
		}
		sort.Slice(out.Flags, func(i, j int) bool { return out.Flags[i].Name < out.Flags[j].Name })
		return &xagent.Response{Type: xagent.Response_GET_FLAGS, GetFlags: out}
	case xagent.Call_GET_AGENT:
		info := a.info
		return &xagent.Response{Type: xagent.Response_GET_AGENT, GetAgent: &xagent.Response_GetAgent{AgentInfo: &info}}
	case xagent.Call_GET_LOGGING_LEVEL:
		// Verbose logging, which Apache Mesos counts from 0, is the log handler's own matter here.
		return &xagent.Response{Type: xagent.Response_GET_LOGGING_LEVEL, GetLoggingLevel: &xagent.Response_GetLoggingLevel{}}
	case xagent.Call_GET_METRICS:
		return &xagent.Response{Type: xagent.Response_GET_METRICS, GetMetrics: a.listMetrics()}
	case xagent.Call_GET_FRAMEWORKS:
		return &xagent.Response{Type: xagent.Response_GET_FRAMEWORKS, GetFrameworks: a.listFrameworks()}
	case xagent.Call_GET_EXECUTORS:
		return &xagent.Response{Type: xagent.Response_GET_EXECUTORS, GetExecutors: a.listExecutors()}
	case xagent.Call_GET_TASKS:
		return &xagent.Response{Type: xagent.Response_GET_TASKS, GetTasks: a.listTasks()}
	case xagent.Call_GET_STATE:
		return &xagent.Response{Type: xagent.Response_GET_STATE, GetState: &xagent.Response_GetState{
			GetTasks: a.listTasks(), GetExecutors: a.listExecutors(), GetFrameworks: a.listFrameworks()}}
	default:
		return nil
	}
}

func (a *Agent) listFrameworks() *xagent.Response_GetFrameworks {
	out := &xagent.Response_GetFrameworks{}
	for _, fw := range a.sortedFrameworks() {
		out.Frameworks = append(out.Frameworks, xagent.Response_GetFrameworks_Framework{FrameworkInfo: fw.info})
	}
	for _, fw := range a.completed {
		out.CompletedFrameworks = append(out.CompletedFrameworks, xagent.Response_GetFrameworks_Framework{FrameworkInfo: fw.info})
	}
	return out
}

func (a *Agent) listExecutors() *xagent.Response_GetExecutors {
	out := &xagent.Response_GetExecutors{}
	a.eachExecutor(func(e *executor, past bool) {
		x := xagent.Response_GetExecutors_Executor{ExecutorInfo: e.info}
		if past {
			out.CompletedExecutors = append(out.CompletedExecutors, x)
		} else {
			out.Executors = append(out.Executors, x)
		}
	})
	return out
}

func (a *Agent) listTasks() *xagent.Response_GetTasks {
	out := &xagent.Response_GetTasks{}
	a.eachExecutor(func(e *executor, _ bool) {
		for _, t := range e.order {
			to := map[taskPhase]*[]mesos.Task{queued: &out.QueuedTasks, launched: &out.LaunchedTasks,
				ended: &out.TerminatedTasks, done: &out.CompletedTasks}[t.phase]
			*to = append(*to, a.describeTask(e, t))
		}
	})
	return out
}

// eachExecutor visits all executors, those of the past after the others.
func (a *Agent) eachExecutor(f func(e *executor, past bool)) {
	all := append(a.sortedFrameworks(), a.completed...)
	for _, fw := range all {
		for _, e := range sortedExecutors(fw) {
			f(e, false)
		}
	}
	for _, fw := range all {
		for _, e := range fw.completed {
			f(e, true)
		}
	}
}

func (a *Agent) describeTask(e *executor, t *task) mesos.Task {
	state := t.state
	out := mesos.Task{Name: t.info.Name, TaskID: t.info.TaskID, FrameworkID: mesos.FrameworkID{Value: e.fw.id},
		AgentID: mesos.AgentID{Value: e.run.Agent}, State: &state, Resources: t.info.Resources, Statuses: t.statuses,
		Labels: t.info.Labels, Discovery: t.info.Discovery, Container: t.info.Container, HealthCheck: t.info.HealthCheck,
		KillPolicy: t.info.KillPolicy}
	if !e.generated {
		out.ExecutorID = &mesos.ExecutorID{Value: e.id}
	}
	var last *mesos.TaskStatus
	if u, ok := a.updates.Front(updates.Key{Framework: e.fw.id, Task: t.id()}); ok {
		last = &u.Status
	} else if n := len(t.statuses); n > 0 {
		last = &t.statuses[n-1]
	}
	if last != nil {
		out.StatusUpdateState, out.StatusUpdateUUID = last.State, last.UUID
	}
	return out
}
