package network

import (
	"fmt"
	"strings"

	"tandem/api"
)

// GroupOf reads the ports and the network of a pod whose defaults are set.
// prefix is the path that leads to the pod in its artifact, such as
// spec.template.spec; it goes into the paths of errors, here and in
// ValidatePorts.
func GroupOf(pod *api.PodSpec, prefix string) (Group, api.TaskNetwork, error) {
	mode, name, err := ParseMode(pod.NetworkMode, pod.NetworkType)
	if err != nil {
		return Group{}, api.TaskNetwork{}, api.Errors{{Path: join(prefix, "networkMode"), Value: pod.NetworkMode, Message: err.Error()}}
	}
	g := Group{Mode: mode}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		params := make([]api.TaskParameter, len(c.Parameters))
		for j, p := range c.Parameters {
			params[j] = api.TaskParameter(p)
			if i == 0 && name == "" && strings.EqualFold(p.Key, "net") {
				name = p.Value
			}
		}
		g.Tasks = append(g.Tasks, Task{
			Name: c.Name, PublishAll: PublishAll(params), Ports: declared(c.Ports, join(prefix, fmt.Sprintf("containers[%d].ports", i))),
		})
	}
	for i := range pod.Processes {
		p := &pod.Processes[i]
		g.Tasks = append(g.Tasks, Task{
			Name: p.Name, Process: !pod.ProcessesShareNetwork(), Ports: declared(p.Ports, join(prefix, fmt.Sprintf("processes[%d].ports", i))),
		})
	}
	if (mode == CustomCNM || mode == CustomCNI) && name == "" && (len(pod.Containers) > 0 || pod.ShareNetwork) {
		return Group{}, api.TaskNetwork{}, api.Errors{{
			Path: join(prefix, "networkMode"), Value: pod.NetworkMode,
			Message: "names no network; write the network's name as networkMode, or give the parameter net to the first container",
		}}
	}
	return g, mode.Task(name), nil
}

func declared(ports []api.Port, path string) []Declared {
	out := make([]Declared, len(ports))
	for i, p := range ports {
		out[i] = Declared{
			Name: p.Name, ContainerPort: p.ContainerPort, HostPort: p.HostPort, Protocol: p.Protocol, Path: fmt.Sprintf("%s[%d]", path, i),
		}
	}
	return out
}
