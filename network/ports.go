package network

import (
	"fmt"
	"strings"

	"tandem/api"
)

// Unpublished as a declared host port says that the port is reachable on the
// container's own address only; an artifact without hostPort means the same.
const Unpublished = -1

// maxPort is the highest port number there is.
const maxPort = 65535

// Declared is a port as an artifact declares it.
type Declared struct {
	Name string
	// ContainerPort is 0 when absent. It has no meaning for processes.
	ContainerPort int
	// HostPort is negative (Unpublished) when absent, 0 for a random port, else fixed.
	HostPort int
	// Protocol as declared; see the function Protocol.
	Protocol string
	// Path leads to the port in the artifact, for errors.
	Path string
}

// Task is one task of a taskgroup with the ports it declares.
type Task struct {
	Name string
	// Process is true for a process in the agent's network; false for a container,
	// and for a process that shares the network of the containers.
	Process bool
	// PublishAll is the parameter P: every declared port gets a random host port.
	PublishAll bool
	Ports      []Declared
}

// Group is a taskgroup as the port rules see it.
type Group struct {
	// Mode is the network of the containers.
	Mode  Mode
	Tasks []Task
}

// source says where a port's number on the agent comes from.
type source int

const (
	unpublished source = iota
	drawn
	fixed
)

// rule is what the table of the port rules says about one declared port.
type rule struct {
	host source
	// number is the fixed host port.
	number int
	// container is the port that the task binds; 0 means the same as the host port.
	container int
	protocol  string
	// problem is set when the declaration is refused, field is the key at fault.
	problem, field string
}

func refuse(field, format string, args ...any) rule {
	return rule{field: field, problem: fmt.Sprintf(format, args...)}
}

// apply is the table of the port rules; README.md shows it.
func apply(mode Mode, t *Task, d Declared) rule {
	protocol, err := Protocol(d.Protocol)
	if err != nil {
		return refuse("protocol", "%s", err)
	}
	var r rule
	switch {
	case d.HostPort > maxPort:
		return refuse("hostPort", "no such port: ports end at %d; use 0 for a random one", maxPort)
	case t.Process:
		r = applyHost(0, d.HostPort)
	case d.ContainerPort < 0 || d.ContainerPort > maxPort:
		return refuse("containerPort", "no such port: use 1 to %d", maxPort)
	case mode == None:
		if d.HostPort >= 0 || t.PublishAll {
			return refuse("hostPort", "network mode NONE has no network to publish a port on; leave hostPort out or choose another networkMode")
		}
		r = rule{container: d.ContainerPort}
	case mode == Host:
		r = applyHost(d.ContainerPort, d.HostPort)
	case d.ContainerPort == 0:
		return refuse("containerPort", "network mode %s needs the port that the container listens on; add containerPort", mode)
	case t.PublishAll || d.HostPort == 0:
		r = rule{host: drawn, container: d.ContainerPort}
	case d.HostPort < 0:
		r = rule{container: d.ContainerPort}
	default:
		r = rule{host: fixed, number: d.HostPort, container: d.ContainerPort}
	}
	r.protocol = protocol
	return r
}

// applyHost is the table's part for tasks in the agent's own network, where the
// port that is bound and the port on the agent are one.
func applyHost(containerPort, hostPort int) rule {
	switch {
	case containerPort == 0 && hostPort <= 0:
		return rule{host: drawn}
	case containerPort == 0:
		return rule{host: fixed, number: hostPort}
	case hostPort > 0 && hostPort != containerPort:
		return refuse("hostPort", "network mode HOST maps no ports: the container listens on %d; make hostPort %d too, or leave one of the two out", containerPort, containerPort)
	default:
		return rule{host: fixed, number: containerPort}
	}
}

// ValidatePorts returns everything that is wrong with the ports of a taskgroup,
// with the paths that the declarations carry. Whether fixed ports are free on an
// agent is for Draw and the Ledger to say.
func ValidatePorts(g Group) api.Errors {
	var errs api.Errors
	onAgent := map[portKey]string{}
	inContainers := map[portKey]string{}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		names := map[string]string{}
		for _, d := range t.Ports {
			checkPortName(&errs, names, d)
			r := apply(g.Mode, t, d)
			if r.problem != "" {
				errs.Add(join(d.Path, r.field), fieldValue(d, r.field), "%s", r.problem)
				continue
			}
			who := fmt.Sprintf("%s of task %q", label(d), t.Name)
			if r.host == fixed {
				field := "hostPort"
				if d.HostPort <= 0 {
					field = "containerPort"
				}
				claim(&errs, onAgent, portKey{r.number, r.protocol}, who, join(d.Path, field))
			}
			// The containers of a taskgroup share one network namespace; in
			// the host's, onAgent has said it all.
			if r.container > 0 {
				claim(&errs, inContainers, portKey{r.container, r.protocol}, who, join(d.Path, "containerPort"))
			}
		}
	}
	return errs
}

type portKey struct {
	port     int
	protocol string
}

func claim(errs *api.Errors, held map[portKey]string, k portKey, who, path string) {
	if holder, taken := held[k]; taken {
		errs.Add(path, k.port, "%s port %d is claimed by %s already; the tasks of a taskgroup share one network, so choose another port", k.protocol, k.port, holder)
		return
	}
	held[k] = who
}

// checkPortName keeps names usable in variables, and apart from one another there.
func checkPortName(errs *api.Errors, seen map[string]string, d Declared) {
	if d.Name == "" {
		return
	}
	path := join(d.Path, "name")
	for _, c := range d.Name {
		if c <= ' ' || c == '=' || c == 0x7f {
			errs.Add(path, d.Name, "a port's name becomes the variable PORT_<name>: use letters, digits, '_' and '-'")
			return
		}
	}
	v := variableName(d.Name)
	if other, dup := seen[v]; dup {
		errs.Add(path, d.Name, "has the same variable, PORT_%s, as port %q of this task; choose another name", v, other)
		return
	}
	seen[v] = d.Name
}

func fieldValue(d Declared, field string) any {
	switch field {
	case "hostPort":
		return d.HostPort
	case "containerPort":
		return d.ContainerPort
	default:
		return d.Protocol
	}
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// label names a port for people: its name, else its place or numbers.
func label(d Declared) string {
	if d.Name != "" {
		return fmt.Sprintf("port %q", d.Name)
	}
	if i := strings.LastIndexByte(d.Path, '.'); i >= 0 {
		return d.Path[i+1:]
	}
	return fmt.Sprintf("port %d", max(d.ContainerPort, d.HostPort))
}

// PublishAll reads the parameter P from docker-like parameters: present and not "false".
func PublishAll(params []api.TaskParameter) bool {
	for _, p := range params {
		if p.Key == "P" && !strings.EqualFold(strings.TrimSpace(p.Value), "false") {
			return true
		}
	}
	return false
}
