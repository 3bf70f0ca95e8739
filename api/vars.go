package api

import (
	"slices"
	"strings"
)

// Variables are written ${name} and are replaced in one pass: what a variable
// stands for is not looked at again. $${ stands for a plain ${.
//
// In the strings of a process every variable is ours. In those of a container only
// those that begin with "bcs." are: any other, such as ${BCS_NODE_IP}, is left for
// the shell.

// Names of the variables; those of ports are followed by the port's name.
const (
	varWorkPath  = "workPath"
	varPidFile   = "pidFile"
	varPorts     = "ports."
	varBCS       = "bcs."
	varBCSPorts  = "bcs.ports."
	varWorkBase  = "work_base_dir"
	varRunBase   = "run_base_dir"
	varNamespace = "namespace"
	varProcess   = "processname"
	varInstance  = "instanceid"
	varHostIP    = "hostip"
)

var bcsVariables = []string{"bcs.namespace", "bcs.appname", "bcs.instanceid", "bcs.hostip", "bcs.taskgroupid", "bcs.taskgroupname"}

var processVariables = []string{varWorkBase, varRunBase, varNamespace, varProcess, varInstance, varHostIP, varWorkPath, varPidFile}

// maxVariable limits what is looked at for the end of a variable, so that time
// stays linear in the length of the text.
const maxVariable = 256

// replace rewrites the variables of s. ours tells which names are variables at
// all; value gives what each stands for. unclosed is true when a "${" that would
// be ours has no end.
func replace(s string, ours func(name string) bool, value func(name string) string) (result string, unclosed bool) {
	if !strings.Contains(s, "${") {
		return s, false
	}
	var b strings.Builder
	unclosed = replaceInto(func(piece string) { b.WriteString(piece) }, s, ours, value)
	return b.String(), unclosed
}

// replaceInto is replace for those who look at what surrounds a variable: put
// gets the pieces in their order.
func replaceInto(put func(string), s string, ours func(name string) bool, value func(name string) string) (unclosed bool) {
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			put(s)
			return unclosed
		}
		name, _, closed := strings.Cut(s[i+2:min(len(s), i+2+maxVariable)], "}")
		switch {
		case !ours(name):
			// The name may hold another "${", as in ${X:-${bcs.hostip}}.
			put(s[:i+2])
			s = s[i+2:]
		case i > 0 && s[i-1] == '$':
			put(s[:i-1] + "${")
			s = s[i+2:]
		case !closed:
			unclosed = true
			put(s[:i+2])
			s = s[i+2:]
		default:
			put(s[:i])
			put(value(name))
			s = s[i+3+len(name):]
		}
	}
}

func allOurs(string) bool { return true }

func bcsOurs(name string) bool { return strings.HasPrefix(name, varBCS) }

// scope is the set of variables that a string of an artifact may use.
type scope struct {
	names []string
	ours  func(string) bool
}

func containerScope(ports []string) scope {
	names := slices.Clone(bcsVariables)
	for _, p := range ports {
		names = append(names, varBCSPorts+p)
	}
	return scope{names: names, ours: bcsOurs}
}

func processScope(ports []string) scope {
	s := containerScope(ports)
	s.names = append(s.names, processVariables...)
	for _, p := range ports {
		s.names = append(s.names, varPorts+p)
	}
	s.ours = allOurs
	return s
}

func (s scope) without(names ...string) scope {
	s.names = slices.DeleteFunc(slices.Clone(s.names), func(n string) bool { return slices.Contains(names, n) })
	return s
}

// variables reports the variables of a string that the scope does not have. It
// never shows the string, which may be confidential.
func (c *checker) variables(path, value string, s scope) {
	_, unclosed := replace(value, s.ours, func(name string) string {
		if slices.Contains(s.names, name) {
			return ""
		}
		switch {
		case name == varWorkPath || name == varPidFile:
			c.fail(path, "${"+name+"}", "cannot be used here: it is not settled yet, or not given")
		case strings.HasPrefix(name, varPorts) || strings.HasPrefix(name, varBCSPorts):
			c.fail(path, "${"+clip(name)+"}", "no port of this taskgroup has this name%s", didYouMean(name, s.names))
		default:
			c.fail(path, "${"+clip(name)+"}", "is not a variable%s; write $${...} for a plain ${...}", didYouMean(name, s.names))
		}
		return ""
	})
	if unclosed {
		c.fail(path, nil, "has a ${ without a closing brace; write $${ for a plain ${")
	}
}
