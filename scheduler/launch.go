package scheduler

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/network"
	"tandem/scheduler/mesos"
	"tandem/scheduler/placement"
	"tandem/scheduler/wire"
)

// plan is a taskgroup before it has a place.
type plan struct {
	o       *object
	sl      *slot
	id      string
	stamp   int64
	specs   []api.TaskSpec
	request placement.Request
}

// plan makes the specifications of a taskgroup's tasks, all but ports and
// address, and the request for a place. An error says what is missing.
func (l *loop) plan(o *object, sl *slot, now time.Time) (*plan, error) {
	pod := &o.app.Spec.Template.Spec
	meta := o.app.Metadata
	l.stamp = max(l.stamp+1, now.UnixNano())
	p := &plan{o: o, sl: sl, stamp: l.stamp}
	p.id = fmt.Sprintf("%d.%s.%s.%s.%d", sl.Index, meta.Name, meta.Namespace, l.s.o.Cluster, p.stamp)
	ref := api.TaskgroupRef{
		ID: p.id, Name: fmt.Sprintf("%s-%d", meta.Name, sl.Index), Application: meta.Name, Namespace: meta.Namespace,
		Cluster: l.s.o.Cluster, Index: sl.Index, Size: pod.Size(),
	}
	group, net, err := network.GroupOf(pod, "")
	if err != nil {
		return nil, err
	}
	labels := o.app.PodLabels()
	need := l.s.o.Executor
	names := pod.TaskNames()
	common := func(i int, kind api.TaskKind, lifecycle string, r api.Resources) api.TaskSpec {
		spec := api.TaskSpec{
			Version: api.TaskSpecVersion, Taskgroup: ref, Name: names[i], Kind: kind, Position: i, Lifecycle: lifecycle,
			KillPolicy: o.app.KillPolicy.Task(), Labels: labels,
		}
		spec.Requests, spec.Limits = r.Task()
		need = need.Add(resources(spec.Requests))
		return spec
	}
	var missing []error
	for i := range pod.Containers {
		c := &pod.Containers[i]
		spec := common(i, api.TaskContainer, c.Lifecycle, c.Resources)
		spec.Container, spec.Network, spec.HealthChecks = c.Task(), net, c.HealthChecks
		spec.Network.EgressLimitMbps = pod.EgressLimitMbps()
		spec.Env = api.TaskEnv(c.Env, c.Resources)
		missing = append(missing, l.credentials(meta.Namespace, spec.Container), l.configuration(meta.Namespace, &spec, c.ConfigMaps, c.Secrets))
		p.specs = append(p.specs, spec)
	}
	for i := range pod.Processes {
		q := &pod.Processes[i]
		spec := common(len(pod.Containers)+i, api.TaskProcess, q.Lifecycle, q.Resources)
		spec.Process, spec.Network, spec.HealthChecks = q.Task(), network.Host.Task(""), q.HealthChecks
		if pod.ProcessesShareNetwork() {
			spec.Network = net
		}
		spec.Env = api.TaskEnv(q.Env, q.Resources)
		missing = append(missing, l.configuration(meta.Namespace, &spec, q.ConfigMaps, q.Secrets))
		p.specs = append(p.specs, spec)
	}
	if err := errors.Join(missing...); err != nil {
		return nil, err
	}
	p.request = placement.Request{
		ID: p.id, App: meta.Namespace + "/" + meta.Name, Labels: labels, Need: need, Group: group,
		Constraint: placement.Constraint{Constraint: o.app.Constraint},
	}
	if sl.Retain.After(now) {
		p.request.OnlyHost = sl.Host
		l.wakeAt(sl.Retain)
	}
	return p, nil
}

func resources(r api.TaskResources) placement.Resources {
	return placement.Resources{CPUs: placement.ToMilli(r.CPUs), MemMB: placement.ToMilli(r.MemMB), DiskMB: placement.ToMilli(r.DiskMB)}
}

// configuration resolves what the task takes from configmaps and secrets.
func (l *loop) configuration(namespace string, spec *api.TaskSpec, configs []api.ConfigRef, secrets []api.SecretRef) error {
	var errs []error
	for _, c := range configs {
		for _, item := range c.Items {
			content, source, err := l.configValue(namespace, c.Name, item.DataKey)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			addItem(spec, &item, content, source, false)
		}
	}
	for _, s := range secrets {
		for _, item := range s.Items {
			content, err := l.secretValue(namespace, s.SecretName, item.DataKey)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			addItem(spec, &item, content, nil, true)
		}
	}
	return errors.Join(errs...)
}

func addItem(spec *api.TaskSpec, item *api.DataItem, content []byte, source *api.TaskSource, secret bool) {
	if item.Type == api.DataEnv {
		spec.Env = append(spec.Env, api.TaskEnvVar{Name: item.KeyOrPath, Value: string(content), Literal: true, Source: source})
		return
	}
	f := api.TaskFile{Path: path.Clean(item.KeyOrPath), Content: content, Source: source, Mode: 0o644, User: item.User, Secret: secret}
	switch {
	case secret:
		f.Mode = 0o400
	case item.ReadOnly:
		f.Mode = 0o444
	}
	spec.Files = append(spec.Files, f)
}

// configValue returns a value of a configmap, or where the executor is to fetch it.
func (l *loop) configValue(namespace, name, key string) ([]byte, *api.TaskSource, error) {
	o := l.objects[api.Ref{Kind: api.KindConfigMap, Namespace: namespace, Name: name}]
	if o == nil {
		return nil, nil, fmt.Errorf("configmap %s/%s does not exist; apply it", namespace, name)
	}
	m, ok := o.typed.(*api.ConfigMap)
	if !ok {
		return nil, nil, fmt.Errorf("configmap %s/%s is of another kind in the store", namespace, name)
	}
	item, ok := m.Datas[key]
	if !ok {
		return nil, nil, fmt.Errorf("configmap %s/%s has no key %q", namespace, name, key)
	}
	if item.Type != api.ConfigFile {
		return nil, &api.TaskSource{URL: item.Content, User: item.RemoteUser, Password: item.RemotePasswd}, nil
	}
	content, err := decodeContent(item.Content, "configmap", namespace, name, key)
	return content, nil, err
}

func (l *loop) secretValue(namespace, name, key string) ([]byte, error) {
	o := l.objects[api.Ref{Kind: api.KindSecret, Namespace: namespace, Name: name}]
	if o == nil {
		return nil, fmt.Errorf("secret %s/%s does not exist; apply it", namespace, name)
	}
	m, ok := o.typed.(*api.Secret)
	if !ok {
		return nil, fmt.Errorf("secret %s/%s is of another kind in the store", namespace, name)
	}
	item, ok := m.Datas[key]
	if !ok {
		return nil, fmt.Errorf("secret %s/%s has no key %q", namespace, name, key)
	}
	return decodeContent(item.Content, "secret", namespace, name, key)
}

// decodeContent never shows the content in its error.
func decodeContent(content, kind, namespace, name, key string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: key %q is not base64", kind, namespace, name, key)
	}
	return b, nil
}

// credentials replaces references to secrets by what they refer to.
func (l *loop) credentials(namespace string, c *api.ContainerTask) error {
	for _, field := range []*string{&c.RegistryUser, &c.RegistryPass} {
		name, key, ok := api.ParseSecretRef(*field)
		if !ok {
			continue
		}
		value, err := l.secretValue(namespace, name, key)
		if err != nil {
			return err
		}
		*field = strings.TrimSpace(string(value))
	}
	return nil
}

// launch settles a planned taskgroup on its agent: its record and its operation.
func (l *loop) launch(p *plan, a *agent, d *placement.Decision, now time.Time) (*groupRecord, mesoslib.Offer_Operation, error) {
	meta := p.o.app.Metadata
	g := &groupRecord{
		ID: p.id, Generation: p.o.generation, State: wire.Launching, AgentID: a.id, Hostname: a.hostname, NodeIP: a.ip, AgentURL: a.url,
		Attributes: a.attributes, Labels: p.request.Labels, Need: p.request.Need, Ledger: d.Ports.Ledger, Created: now,
		Grace: p.o.app.KillPolicy.Task().GracePeriodSeconds, Drain: p.o.app.KillPolicy.Task().DrainSeconds,
	}
	charged := d.Ports.Charged
	var infos []mesoslib.TaskInfo
	for i := range p.specs {
		spec := &p.specs[i]
		spec.NodeIP, spec.Ports = a.ip, d.Ports.Tasks[i]
		data, err := json.Marshal(spec)
		if err != nil {
			return nil, mesoslib.Offer_Operation{}, fmt.Errorf("encode the task %s: %w", spec.Name, err)
		}
		var ports network.Ranges
		for _, port := range spec.Ports {
			// A port that two protocols share is charged once.
			if port.HostPort > 0 && charged.Contains(port.HostPort) {
				ports = append(ports, network.Range{Begin: port.HostPort, End: port.HostPort})
				charged = charged.Without(port.HostPort)
			}
		}
		id := fmt.Sprintf("%d.%d.%d.%s.%s.%s", p.stamp, i, p.sl.Index, meta.Name, meta.Namespace, l.s.o.Cluster)
		infos = append(infos, mesoslib.TaskInfo{
			Name: spec.Name, TaskID: mesoslib.TaskID{Value: id}, AgentID: mesoslib.AgentID{Value: a.id},
			Resources:  l.resources(resources(spec.Requests), ports.Normalize()),
			KillPolicy: mesos.KillPolicy(time.Duration(g.Grace) * time.Second), Data: data,
		})
		g.Tasks = append(g.Tasks, taskRecord{
			ID: id, Name: spec.Name, Kind: spec.Kind, Lifecycle: spec.Lifecycle, State: mesoslib.TASK_STAGING, Ports: spec.Ports, Changed: now,
			Checked: slices.ContainsFunc(spec.HealthChecks, func(h api.HealthCheck) bool { return h.OnAgent() }),
		})
	}
	return g, mesos.LaunchGroup(l.executor(g), infos), nil
}

func (l *loop) executor(g *groupRecord) mesoslib.ExecutorInfo {
	o := &l.s.o
	name, shell := "tandem-executor", true
	info := mesoslib.ExecutorInfo{
		Type: mesoslib.ExecutorInfo_CUSTOM, ExecutorID: mesoslib.ExecutorID{Value: g.ID},
		FrameworkID: &mesoslib.FrameworkID{Value: l.frameworkID}, Name: &name, Source: &name,
		Command:   &mesoslib.CommandInfo{Value: &o.ExecutorCommand, Shell: &shell},
		Resources: l.resources(o.Executor, nil),
		// SHUTDOWN gives the tasks their grace, and the executor a moment to report.
		ShutdownGracePeriod: &mesoslib.DurationInfo{Nanoseconds: (time.Duration(g.Grace+g.Drain)*time.Second + 5*time.Second).Nanoseconds()},
	}
	for _, uri := range o.ExecutorURIs {
		executable := !strings.Contains(path.Base(uri), ".")
		info.Command.URIs = append(info.Command.URIs, mesoslib.CommandInfo_URI{Value: uri, Executable: &executable})
	}
	return info
}

// resources renders amounts for Mesos, allocated to the framework's role.
func (l *loop) resources(r placement.Resources, ports network.Ranges) []mesoslib.Resource {
	scalar, ranges := mesoslib.SCALAR, mesoslib.RANGES
	allocation := &mesoslib.Resource_AllocationInfo{Role: &l.s.o.Role}
	var out []mesoslib.Resource
	for _, x := range []struct {
		name   string
		amount placement.Milli
	}{{"cpus", r.CPUs}, {"mem", r.MemMB}, {"disk", r.DiskMB}} {
		if x.amount > 0 {
			out = append(out, mesoslib.Resource{Name: x.name, Type: &scalar, Scalar: &mesoslib.Value_Scalar{Value: x.amount.Float()}, AllocationInfo: allocation})
		}
	}
	if len(ports) > 0 {
		v := &mesoslib.Value_Ranges{}
		for _, p := range ports {
			v.Range = append(v.Range, mesoslib.Value_Range{Begin: uint64(p.Begin), End: uint64(p.End)})
		}
		out = append(out, mesoslib.Resource{Name: "ports", Type: &ranges, Ranges: v, AllocationInfo: allocation})
	}
	return out
}
