package master

import (
	"encoding/json"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

// object is a JSON object of the endpoints that tools read. Their form is
// older than the v1 API: ids are plain texts, resources are one object.
type object = map[string]any

// resourcesModel writes resources as {"cpus":0.1,"disk":0.0,"gpus":0.0,"mem":32.0,"ports":"[1-2]"}.
func resourcesModel(l resource.List) object {
	out := object{"cpus": wire.Double(0), "disk": wire.Double(0), "gpus": wire.Double(0), "mem": wire.Double(0)}
	for _, r := range l {
		switch r.GetType() {
		case mesos.SCALAR:
			v, _ := l.Scalar(r.Name)
			out[r.Name] = wire.Double(v)
		case mesos.RANGES:
			out[r.Name] = resource.FormatRanges(r.GetRanges().GetRange())
		case mesos.SET:
			out[r.Name] = "{" + strings.Join(r.GetSet().GetItem(), ", ") + "}"
		case mesos.TEXT: // no resource has it
		}
	}
	return out
}

func attributesModel(attributes []mesos.Attribute) object {
	out := object{}
	for _, a := range attributes {
		switch a.Type {
		case mesos.SCALAR:
			out[a.Name] = wire.Double(a.GetScalar().GetValue())
		case mesos.RANGES:
			out[a.Name] = resource.FormatRanges(a.GetRanges().GetRange())
		case mesos.SET:
			out[a.Name] = "{" + strings.Join(a.GetSet().GetItem(), ", ") + "}"
		case mesos.TEXT:
			out[a.Name] = a.GetText().GetValue()
		}
	}
	return out
}

// raw encodes a message of the v1 API for use inside a model.
func raw(m interface {
	Reset()
	String() string
	ProtoMessage()
}) json.RawMessage {
	b, err := wire.MarshalJSON(m)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

func rawList[T any, P interface {
	*T
	Reset()
	String() string
	ProtoMessage()
}](items []T) []json.RawMessage {
	out := make([]json.RawMessage, 0, len(items))
	for i := range items {
		out = append(out, raw(P(&items[i])))
	}
	return out
}

// bareLabels returns labels as the array that these endpoints show.
func bareLabels(l *mesos.Labels) []json.RawMessage { return rawList(l.Labels) }

func statusModel(s mesos.TaskStatus) object {
	out := object{"state": s.GetState().String(), "timestamp": wire.Double(s.GetTimestamp())}
	if s.Labels != nil {
		out["labels"] = bareLabels(s.Labels)
	}
	if s.Healthy != nil {
		out["healthy"] = *s.Healthy
	}
	if s.ContainerStatus != nil {
		out["container_status"] = containerStatusModel(*s.ContainerStatus)
	}
	return out
}

func containerStatusModel(c mesos.ContainerStatus) object {
	out := object{}
	if c.ContainerID != nil {
		out["container_id"] = raw(c.ContainerID)
	}
	if len(c.NetworkInfos) > 0 {
		var infos []object
		for _, n := range c.NetworkInfos {
			infos = append(infos, networkInfoModel(n))
		}
		out["network_infos"] = infos
	}
	if c.CgroupInfo != nil {
		out["cgroup_info"] = raw(c.CgroupInfo)
	}
	return out
}

func networkInfoModel(n mesos.NetworkInfo) object {
	out := object{}
	if len(n.IPAddresses) > 0 {
		out["ip_addresses"] = rawList(n.IPAddresses)
	}
	if n.Name != nil {
		out["name"] = *n.Name
	}
	if len(n.Groups) > 0 {
		out["groups"] = n.Groups
	}
	if n.Labels != nil {
		out["labels"] = bareLabels(n.Labels)
	}
	if len(n.PortMappings) > 0 {
		out["port_mappings"] = rawList(n.PortMappings)
	}
	return out
}

func taskModel(t *task) object {
	statuses := make([]object, 0, len(t.statuses))
	for _, s := range t.statuses {
		statuses = append(statuses, statusModel(s))
	}
	out := object{
		"id": t.info.TaskID.Value, "name": t.info.Name, "framework_id": t.framework.id, "executor_id": t.executorID,
		"slave_id": t.agentID, "state": t.state.String(), "resources": resourcesModel(t.resources), "role": t.role(), "statuses": statuses,
	}
	if user := t.user(); user != "" {
		out["user"] = user
	}
	if t.info.Labels != nil {
		out["labels"] = bareLabels(t.info.Labels)
	}
	if t.info.Discovery != nil {
		out["discovery"] = raw(t.info.Discovery)
	}
	if t.info.Container != nil {
		out["container"] = raw(t.info.Container)
	}
	if t.info.HealthCheck != nil {
		out["health_check"] = raw(t.info.HealthCheck)
	}
	return out
}

func (t *task) role() string { return roleOf(t.info.Resources) }

// roleOf is the role that resources are allocated to.
func roleOf(resources []mesos.Resource) string {
	for _, r := range resources {
		if r.AllocationInfo != nil {
			return r.AllocationInfo.GetRole()
		}
	}
	return "*"
}

func commandModel(c mesos.CommandInfo) object {
	out := object{"shell": c.GetShell(), "argv": nonNil(c.Arguments), "uris": rawList(c.URIs)}
	if c.Value != nil {
		out["value"] = *c.Value
	}
	if c.User != nil {
		out["user"] = *c.User
	}
	if c.Environment != nil {
		out["environment"] = raw(c.Environment)
	}
	return out
}

func executorModel(a *agent, x *executor) object {
	out := object{
		"executor_id": x.info.ExecutorID.Value, "name": x.info.GetName(), "framework_id": x.framework, "slave_id": a.id,
		"resources": resourcesModel(x.resources), "role": roleOf(x.info.Resources), "type": x.info.Type.String(), "command": object{},
	}
	if x.info.Command != nil {
		out["command"] = commandModel(*x.info.Command)
	}
	if x.info.Labels != nil {
		out["labels"] = bareLabels(x.info.Labels)
	}
	return out
}

func offerModel(o *offer) object {
	return object{"id": o.id, "framework_id": o.framework.id, "slave_id": o.agent.id,
		"allocation_info": object{"role": o.role}, "resources": resourcesModel(o.resources)}
}

func seconds(t time.Time) wire.Double { return wire.Double(float64(t.UnixMicro()) / 1e6) }

func nonNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func versionModel() object {
	return object{"version": Version, "build_date": "", "build_time": wire.Double(0), "build_user": "", "git_sha": ""}
}
