package agent

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

type object = map[string]any

// inLoop answers with what f makes in the event loop.
func (a *Agent) inLoop(w http.ResponseWriter, r *http.Request, f func() any) {
	var v any
	if !a.loop.do(r.Context(), func() { v = f() }) {
		wire.Text(w, http.StatusServiceUnavailable, "The agent is ending.")
		return
	}
	if e, ok := v.(*wire.Error); ok {
		e.Write(w)
		return
	}
	writeJSON(w, r, v)
}

// getState is /state, laid out as Apache Mesos does it.
func (a *Agent) getState(w http.ResponseWriter, r *http.Request) {
	a.inLoop(w, r, func() any {
		if !a.master.recovered {
			return errRecovering
		}
		total := resource.Of(a.info.Resources)
		used := a.allocated()
		s := object{
			"id": a.id(), "pid": a.pid(), "hostname": a.info.Hostname, "start_time": seconds(a.started),
			"resources": resourcesJSON(total), "unreserved_resources": resourcesJSON(total),
			"unreserved_resources_full": total.Downgraded(), "unreserved_resources_allocated": resourcesJSON(used),
			"reserved_resources": object{}, "reserved_resources_full": object{}, "reserved_resources_allocated": object{},
			"attributes": attributesJSON(a.info.Attributes), "flags": a.flagsJSON(), "capabilities": []string{"MULTI_ROLE"},
			"resource_providers": []any{}, "master_hostname": strings.TrimPrefix(a.flags.Master, "http://"),
			"frameworks": a.frameworksJSON(a.sortedFrameworks()), "completed_frameworks": a.frameworksJSON(a.completed),
		}
		for k, v := range versionJSON() {
			s[k] = v
		}
		return s
	})
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// allocated is what the executors and tasks here may use.
func (a *Agent) allocated() resource.List {
	var used resource.List
	for _, fw := range a.frameworks {
		for _, e := range fw.executors {
			if e.state == terminated {
				continue
			}
			used = used.Add(resource.Of(e.info.Resources).Unallocate()...)
			for _, t := range e.order {
				if t.live() {
					used = used.Add(resource.Of(t.info.Resources).Unallocate()...)
				}
			}
		}
	}
	return used
}

// resourcesJSON is the short form of resources: scalars as numbers, ranges as text.
func resourcesJSON(l resource.List) object {
	out := object{"cpus": 0.0, "gpus": 0.0, "mem": 0.0, "disk": 0.0}
	for _, r := range l {
		switch r.GetType() {
		case mesos.SCALAR:
			v, _ := l.Scalar(r.Name)
			out[r.Name] = v
		case mesos.RANGES:
			out[r.Name] = resource.FormatRanges(r.GetRanges().GetRange())
		case mesos.SET:
			out[r.Name] = "{" + strings.Join(r.GetSet().GetItem(), ", ") + "}"
		case mesos.TEXT: // a resource cannot be one
		}
	}
	return out
}

func attributesJSON(list []mesos.Attribute) object {
	out := object{}
	for _, at := range list {
		switch at.Type {
		case mesos.SCALAR:
			out[at.Name] = at.GetScalar().GetValue()
		case mesos.RANGES:
			out[at.Name] = resource.FormatRanges(at.GetRanges().GetRange())
		case mesos.TEXT:
			out[at.Name] = at.GetText().GetValue()
		case mesos.SET:
			out[at.Name] = at.GetSet().GetItem()
		}
	}
	return out
}

func (a *Agent) frameworksJSON(list []*framework) []any {
	out := []any{}
	for _, fw := range list {
		live, past := []any{}, []any{}
		for _, e := range sortedExecutors(fw) {
			live = append(live, e.json())
		}
		for _, e := range fw.completed {
			past = append(past, e.json())
		}
		hostname := fw.info.GetHostname()
		out = append(out, object{"id": fw.id, "name": fw.info.Name, "user": fw.info.User, "roles": rolesOf(fw.info),
			"failover_timeout": fw.info.GetFailoverTimeout(), "checkpoint": fw.checkpoint(), "hostname": hostname,
			"executors": live, "completed_executors": past})
	}
	return out
}

func rolesOf(f mesos.FrameworkInfo) []string {
	if len(f.Roles) > 0 {
		return f.Roles
	}
	return []string{f.GetRole()}
}

func (e *executor) json() object {
	o := object{"id": e.id, "name": e.info.GetName(), "source": e.info.GetSource(), "container": e.run.Container,
		"directory": e.directory, "type": e.info.Type.String(), "role": roleOf(e.info.Resources)}
	if e.info.Type == mesos.ExecutorInfo_UNKNOWN {
		o["type"] = "CUSTOM"
	}
	used := resource.Of(e.info.Resources).Unallocate()
	now, waiting, past := []any{}, []any{}, []any{}
	for _, t := range e.order {
		switch t.phase {
		case queued:
			waiting = append(waiting, t.json(e))
		case done:
			past = append(past, t.json(e))
		default:
			now = append(now, t.json(e))
			if t.live() {
				used = used.Add(resource.Of(t.info.Resources).Unallocate()...)
			}
		}
	}
	o["resources"] = resourcesJSON(used)
	o["tasks"], o["queued_tasks"], o["completed_tasks"] = now, waiting, past
	return o
}

func roleOf(list []mesos.Resource) string {
	for _, r := range list {
		if r.AllocationInfo != nil {
			return r.AllocationInfo.GetRole()
		}
	}
	return "*"
}

func (t *task) json(e *executor) object {
	o := object{"id": t.id(), "name": t.info.Name, "framework_id": e.fw.id, "executor_id": e.id,
		"slave_id": e.run.Agent, "state": t.state.String(), "role": roleOf(t.info.Resources),
		"resources": resourcesJSON(resource.Of(t.info.Resources).Unallocate()), "statuses": statusesJSON(t.statuses)}
	if e.generated {
		o["executor_id"] = ""
	}
	if t.info.Labels != nil {
		o["labels"] = t.info.Labels.Labels
	}
	if t.info.Discovery != nil {
		o["discovery"] = t.info.Discovery
	}
	return o
}

func statusesJSON(list []mesos.TaskStatus) []any {
	out := []any{}
	for i := range list {
		s := &list[i]
		o := object{"state": s.GetState().String(), "timestamp": s.GetTimestamp()}
		if s.Healthy != nil {
			o["healthy"] = *s.Healthy
		}
		if s.Labels != nil {
			o["labels"] = s.Labels.Labels
		}
		if s.ContainerStatus != nil {
			if b, err := wire.MarshalJSON(s.ContainerStatus); err == nil {
				o["container_status"] = bareLabels(b)
			}
		}
		out = append(out, o)
	}
	return out
}

// bareLabels writes the labels of network_infos as /state does: a list, not an
// object that holds one. The executor's pid is left out there.
func bareLabels(b []byte) any {
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return nil
	}
	delete(o, "executor_pid")
	infos, _ := o["network_infos"].([]any)
	for _, i := range infos {
		if n, ok := i.(object); ok {
			if l, ok := n["labels"].(object); ok {
				n["labels"] = l["labels"]
			}
		}
	}
	return o
}

// flagsJSON shows the flags as texts.
func (a *Agent) flagsJSON() object {
	f := a.flags
	return object{"ip": a.ip, "port": strconv.Itoa(int(a.info.GetPort())), "hostname": a.info.Hostname, "master": f.Master,
		"work_dir": f.WorkDir, "resources": f.Resources, "attributes": f.Attributes, "default_role": f.DefaultRole,
		"executor_registration_timeout":   flags.FormatDuration(f.ExecutorRegistrationTimeout),
		"executor_reregistration_timeout": flags.FormatDuration(f.ExecutorReregistrationTimeout),
		"executor_shutdown_grace_period":  flags.FormatDuration(f.ExecutorShutdownGracePeriod),
		"recovery_timeout":                flags.FormatDuration(f.RecoveryTimeout),
		"fetcher_stall_timeout":           flags.FormatDuration(f.FetcherStallTimeout),
		"switch_user":                     strconv.FormatBool(f.SwitchUser), "cgroups_root": f.CgroupsRoot}
}

func (a *Agent) getFlags(w http.ResponseWriter, r *http.Request) {
	a.inLoop(w, r, func() any { return object{"flags": a.flagsJSON()} })
}
