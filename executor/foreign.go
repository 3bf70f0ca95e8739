package executor

import (
	"fmt"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// foreignSpec makes a specification of a TaskInfo that another framework made
// for Mesos's own executors: a command becomes a process, a container of type
// DOCKER becomes a container. What cannot be honoured is refused, never dropped
// silently, where dropping it would change what runs.
func foreignSpec(info *mesos.TaskInfo, executorID string) (*api.TaskSpec, error) {
	s := &api.TaskSpec{
		Version: api.TaskSpecVersion,
		// The task id is unique on the agent; the name of a plain task need not be.
		Name:      info.TaskID.Value,
		Taskgroup: api.TaskgroupRef{ID: executorID, Name: executorID, Size: 1},
		Requests:  scalars(info.Resources),
		Ports:     foreignPorts(info),
	}
	if info.Labels != nil && len(info.Labels.Labels) > 0 {
		s.Labels = map[string]string{}
		for _, l := range info.Labels.Labels {
			s.Labels[l.Key] = l.GetValue()
		}
	}
	var errs api.Errors
	if cmd := info.Command; cmd != nil && cmd.Environment != nil {
		for i, v := range cmd.Environment.Variables {
			if v.GetType() != mesos.Environment_Variable_VALUE {
				errs.Add(fmt.Sprintf("command.environment.variables[%d]", i), v.Name, "is not a plain value; secrets need a secret resolver, which this executor has not")
				continue
			}
			s.Env = append(s.Env, api.TaskEnvVar{Name: v.Name, Value: v.GetValue(), Literal: true})
		}
	}
	if _, err := foreignChecks(info); err != nil {
		errs.Add("task", info.TaskID.Value, "%v", err)
	}
	if info.Container == nil {
		foreignProcess(s, info, &errs)
	} else {
		foreignContainer(s, info, &errs)
	}
	if err := errs.Sorted(); err != nil {
		return nil, err
	}
	return s, nil
}

func foreignProcess(s *api.TaskSpec, info *mesos.TaskInfo, errs *api.Errors) {
	s.Kind = api.TaskProcess
	s.Network = api.TaskNetwork{Mode: "HOST"}
	cmd := info.Command
	line := commandLine(cmd)
	if line == "" {
		errs.Add("command.value", nil, "is empty; say what to run")
	}
	s.Process = &api.ProcessTask{ProcName: info.Name, User: cmd.GetUser(), StartCmd: line}
	for i, u := range cmd.URIs {
		if u.OutputFile != nil || u.GetExecutable() {
			errs.Add(fmt.Sprintf("command.uris[%d]", i), u.Value, "uses output_file or executable, which this executor does not support; put the file into an archive")
		}
		policy := "Always"
		if u.GetCache() {
			policy = "IfNotPresent"
		}
		s.Process.URIs = append(s.Process.URIs, api.ProcessURI{Value: u.Value, PullPolicy: policy})
	}
}

func foreignContainer(s *api.TaskSpec, info *mesos.TaskInfo, errs *api.Errors) {
	s.Kind = api.TaskContainer
	c := info.Container
	if c.GetType() != mesos.ContainerInfo_DOCKER || c.Docker == nil {
		errs.Add("container.type", c.GetType().String(), "is not supported; use DOCKER with its docker section")
		return
	}
	d := c.Docker
	s.Container = &api.ContainerTask{
		Image: d.Image, Hostname: c.GetHostname(), Privileged: d.GetPrivileged(), PullPolicy: "IfNotPresent",
	}
	if d.GetForcePullImage() {
		s.Container.PullPolicy = "Always"
	}
	for _, p := range d.Parameters {
		s.Container.Parameters = append(s.Container.Parameters, api.TaskParameter{Key: p.Key, Value: p.Value})
	}
	for i, v := range c.Volumes {
		if v.Source != nil || v.Image != nil {
			errs.Add(fmt.Sprintf("container.volumes[%d]", i), v.ContainerPath, "has a source or an image; only host_path is supported")
			continue
		}
		s.Container.Volumes = append(s.Container.Volumes, api.ContainerVolume{
			HostPath: v.GetHostPath(), MountPath: v.ContainerPath, ReadOnly: v.GetMode() == mesos.RO,
		})
	}
	switch d.GetNetwork() {
	case mesos.ContainerInfo_DockerInfo_HOST:
		s.Network = api.TaskNetwork{Mode: "HOST"}
	case mesos.ContainerInfo_DockerInfo_BRIDGE:
		s.Network = api.TaskNetwork{Mode: "BRIDGE"}
	case mesos.ContainerInfo_DockerInfo_NONE:
		s.Network = api.TaskNetwork{Mode: "NONE"}
	default:
		s.Network = api.TaskNetwork{Mode: "CUSTOM", Type: "cnm"}
		if len(c.NetworkInfos) > 0 {
			s.Network.Name = c.NetworkInfos[0].GetName()
		}
	}
	if cmd := info.Command; cmd != nil {
		switch {
		case cmd.GetShell() && cmd.GetValue() != "":
			s.Container.Command, s.Container.Args = []string{"/bin/sh", "-c"}, []string{cmd.GetValue()}
		case !cmd.GetShell():
			if cmd.GetValue() != "" {
				s.Container.Command = []string{cmd.GetValue()}
			}
			s.Container.Args = cmd.Arguments
		}
		if len(cmd.URIs) > 0 {
			errs.Add("command.uris", nil, "are not supported for containers; put the files into the image or a volume")
		}
	}
}

// commandLine is a CommandInfo as a line for the shell. Without shell, value is
// the program and arguments are its argv, with the name of the program first.
func commandLine(cmd *mesos.CommandInfo) string {
	if cmd.GetShell() {
		return cmd.GetValue()
	}
	if cmd.GetValue() == "" {
		return ""
	}
	words := []string{quote(cmd.GetValue())}
	for _, a := range cmd.Arguments[min(1, len(cmd.Arguments)):] {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

// quote makes a word that sh(1) takes literally.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// foreignPorts are a container's port mappings, or what the task's discovery
// information declares, or the ports resources in their order.
func foreignPorts(info *mesos.TaskInfo) []api.TaskPort {
	var ports []api.TaskPort
	if c := info.Container; c != nil && c.Docker != nil && len(c.Docker.PortMappings) > 0 {
		for _, m := range c.Docker.PortMappings {
			ports = append(ports, api.TaskPort{ContainerPort: int(m.ContainerPort), HostPort: int(m.HostPort), Protocol: protocol(m.GetProtocol())})
		}
		return ports
	}
	if d := info.Discovery; d != nil && d.Ports != nil && len(d.Ports.Ports) > 0 {
		for _, p := range d.Ports.Ports {
			ports = append(ports, api.TaskPort{Name: p.GetName(), ContainerPort: int(p.Number), HostPort: int(p.Number), Protocol: protocol(p.GetProtocol())})
		}
		return ports
	}
	for _, r := range info.Resources {
		if r.Name != "ports" || r.Ranges == nil {
			continue
		}
		for _, x := range r.Ranges.Range {
			// A whole agent's range is no list of ports; nobody needs more than this.
			for p := x.Begin; p <= x.End && p <= 65535 && len(ports) < 1000; p++ {
				ports = append(ports, api.TaskPort{ContainerPort: int(p), HostPort: int(p), Protocol: "tcp"})
			}
		}
	}
	return ports
}

func protocol(s string) string {
	if s == "" {
		return "tcp"
	}
	return strings.ToLower(s)
}

// scalars sums up a task's resources.
func scalars(resources []mesos.Resource) api.TaskResources {
	var sum api.TaskResources
	for _, r := range resources {
		if r.Scalar == nil {
			continue
		}
		switch r.Name {
		case "cpus":
			sum.CPUs += r.Scalar.Value
		case "mem":
			sum.MemMB += r.Scalar.Value
		case "disk":
			sum.DiskMB += r.Scalar.Value
		}
	}
	return sum
}
