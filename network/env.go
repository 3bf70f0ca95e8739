package network

import (
	"strconv"
	"strings"

	"tandem/api"
)

// PortEnv is the PORT family of variables of one task, in the order of its
// ports: PORT0 to PORTn, PORT (the same as PORT0), PORTS (all, comma separated),
// and for each named port PORT_<NAME> (upper case, other characters than letters
// and digits as '_') and PORT_<name> as written. The value is the port by which
// others reach the task: the host port where it is published, otherwise the
// container port. A task without ports gets none of them.
func PortEnv(ports []api.TaskPort) []api.TaskEnvVar {
	if len(ports) == 0 {
		return nil
	}
	env := make([]api.TaskEnvVar, 0, 3*len(ports)+2)
	seen := make(map[string]bool, cap(env))
	add := func(name, value string) {
		if !seen[name] {
			seen[name] = true
			env = append(env, api.TaskEnvVar{Name: name, Value: value})
		}
	}
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = strconv.Itoa(Reach(p))
		add("PORT"+strconv.Itoa(i), all[i])
	}
	add("PORT", all[0])
	add("PORTS", strings.Join(all, ","))
	for i, p := range ports {
		if p.Name != "" {
			add("PORT_"+variableName(p.Name), all[i])
			add("PORT_"+p.Name, all[i])
		}
	}
	return env
}

// PeerEnv is what a task learns of the named ports of the other tasks of its
// taskgroup: PORT_<NAME> and PORT_<name> as in PortEnv, of the first that has a
// name. The task's own variables of the same name go before it.
func PeerEnv(ports []api.TaskPort) []api.TaskEnvVar {
	var env []api.TaskEnvVar
	seen := map[string]bool{}
	for _, p := range ports {
		if p.Name == "" {
			continue
		}
		for _, name := range []string{"PORT_" + variableName(p.Name), "PORT_" + p.Name} {
			if !seen[name] {
				seen[name] = true
				env = append(env, api.TaskEnvVar{Name: name, Value: strconv.Itoa(Reach(p))})
			}
		}
	}
	return env
}

// Reach is the port by which others reach the task.
func Reach(p api.TaskPort) int {
	if p.HostPort > 0 {
		return p.HostPort
	}
	return p.ContainerPort
}

// variableName is a port's name as a variable has it: upper case, only letters, digits and '_'.
func variableName(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return c
		default:
			return '_'
		}
	}, name)
}
