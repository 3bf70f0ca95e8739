package api

import (
	"strconv"
	"strings"
)

// setDefaults gives the tasks of a taskgroup their names and defaults; app is
// the name of the application.
func (s *PodSpec) setDefaults(app string) {
	s.NetworkType = strings.ToLower(s.NetworkType)
	for _, reserved := range []string{NetworkHost, NetworkBridge, NetworkNone, NetworkUser} {
		if strings.EqualFold(s.NetworkMode, reserved) {
			s.NetworkMode = reserved
		}
	}
	if len(s.Containers) > 0 || s.ShareNetwork {
		if s.NetworkMode == "" {
			s.NetworkMode = NetworkNone
		}
		if s.NetworkType == "" {
			s.NetworkType = NetworkTypeCNM
		}
	}
	for i := range s.Containers {
		s.Containers[i].setDefaults()
		s.Containers[i].Lifecycle = strings.ToLower(s.Containers[i].Lifecycle)
	}
	for i := range s.Processes {
		s.Processes[i].setDefaults()
		s.Processes[i].Lifecycle = strings.ToLower(s.Processes[i].Lifecycle)
	}
	s.nameTasks(app)
}

// nameTasks names the tasks that have no name: after the application when the
// taskgroup holds one container, after the program for a process, with the
// position where that is not unique.
func (s *PodSpec) nameTasks(app string) {
	taken := map[string]bool{}
	for _, name := range s.TaskNames() {
		taken[name] = true
	}
	free := func(name string, i int) string {
		if name == "" || taken[name] {
			name = strings.TrimRight(clipLabel(name, 56), "-") + "-" + strconv.Itoa(i)
		}
		// Explicit names may have taken that, too.
		for taken[name] {
			name += "x"
		}
		taken[name] = true
		return name
	}
	for i := range s.Containers {
		if c := &s.Containers[i]; c.Name == "" {
			name := app
			if len(s.Containers) > 1 {
				name = clipLabel(app, 56) + "-" + strconv.Itoa(i)
			}
			c.Name = free(name, i)
		}
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.Name == "" {
			p.Name = free(labelFrom(p.ProcName), i)
		}
	}
}

// TaskNames returns the names of the tasks, containers first, in the order in
// which they start. In an object with its defaults all are set.
func (s *PodSpec) TaskNames() []string {
	names := make([]string, 0, s.Size())
	for i := range s.Containers {
		names = append(names, s.Containers[i].Name)
	}
	for i := range s.Processes {
		names = append(names, s.Processes[i].Name)
	}
	return names
}

// portNames returns the names of the ports of all tasks: every task may use the
// port of every other.
func (s *PodSpec) portNames() []string {
	var names []string
	for i := range s.Containers {
		names = append(names, portNames(s.Containers[i].Ports)...)
	}
	for i := range s.Processes {
		names = append(names, portNames(s.Processes[i].Ports)...)
	}
	return names
}

// labelFrom makes a DNS label of any text.
func labelFrom(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		default:
			return '-'
		}
	}, s)
	s = strings.Trim(clipLabel(s, 63), "-")
	if s == "" {
		return "task"
	}
	return s
}

func clipLabel(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}

func (c *checker) template(kind Kind, t *PodTemplate) {
	const path = "spec.template.spec"
	c.labels("spec.template.metadata.labels", t.Metadata.Labels)
	c.labels("spec.template.metadata.annotations", t.Metadata.Annotations)
	s := &t.Spec
	switch {
	case s.Size() == 0 && kind == KindProcess:
		c.fail(path+".processes", nil, "is required: at least one process")
	case s.Size() == 0:
		c.fail(path+".containers", nil, "is required: at least one container")
	// Either kind may hold both; which of them is what it is named for must be there.
	case kind == KindApplication && len(s.Containers) == 0:
		c.fail(path+".processes", nil, "an application runs containers, with or without processes; write kind process to run processes alone")
	case kind == KindProcess && len(s.Processes) == 0:
		c.fail(path+".containers", nil, "kind process runs processes, with or without containers; write kind application to run containers alone")
	}
	c.most(path, s.Size(), maxTasks, "tasks")
	c.network(path, s)
	c.hasMain(path, s)
	names := map[string]bool{}
	ports := s.portNames()
	for i := range s.Containers {
		c.container(indexPath(path+".containers", i), &s.Containers[i], s.NetworkMode, names, ports)
	}
	for i := range s.Processes {
		c.process(indexPath(path+".processes", i), &s.Processes[i], names, ports)
	}
}

func (c *checker) network(path string, s *PodSpec) {
	if len(s.NodeSelector) > 0 {
		c.warn(joinPath(path, "nodeSelector"), "has no effect; use constraint")
	}
	if len(s.Containers) == 0 && !s.ShareNetwork && s.NetworkMode != "" && s.NetworkMode != NetworkHost {
		c.warn(joinPath(path, "networkMode"), "has no effect: processes use the host's network unless shareNetwork is true")
	}
	if s.ShareNetwork && s.NetworkMode == NetworkHost {
		c.warn(joinPath(path, "shareNetwork"), "has no effect with networkMode HOST: all tasks use the agent's network")
	}
	if s.NetworkMode != "" {
		c.text(joinPath(path, "networkMode"), s.NetworkMode)
	}
	if strings.Contains(s.NetworkMode, "|") {
		c.fail(joinPath(path, "networkMode"), s.NetworkMode, "choose one of the alternatives: HOST, BRIDGE, NONE or the name of a network")
	}
	if s.NetworkType != "" {
		c.oneOf(joinPath(path, "networkType"), s.NetworkType, NetworkTypeCNM, NetworkTypeCNI)
	}
	c.notNegative(path+".netLimit.egressLimit", int64(s.EgressLimitMbps()))
}

// taskName checks that a name is a label and that no other task has it; the
// name of a process is also that of its directory in the sandbox.
func (c *checker) taskName(path, name string, names map[string]bool) {
	switch {
	case !isLabel(name):
		c.label(joinPath(path, "name"), name)
	case names[name]:
		c.fail(joinPath(path, "name"), name, "another task of the taskgroup has this name; choose another")
	}
	names[name] = true
}
