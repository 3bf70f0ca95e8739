package api

import (
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Dirs are the directories of the process daemon on the agent.
type Dirs struct {
	// WorkBase is what ${work_base_dir} stands for.
	WorkBase string
	// RunBase is what ${run_base_dir} stands for.
	RunBase string
}

// Vars are the variables of one task and what they stand for.
type Vars struct {
	values map[string]string
	ours   func(string) bool
}

// NewVars returns the variables of a task, except workPath and pidFile, which
// ExpandSpec adds. A variable whose value is not known, because dirs or the
// node's address is empty, does not exist.
func NewVars(spec *TaskSpec, dirs Dirs) *Vars {
	v := &Vars{values: map[string]string{}, ours: bcsOurs}
	set := func(name, value string) {
		if value != "" {
			v.values[name] = value
		}
	}
	g := &spec.Taskgroup
	index := strconv.Itoa(g.Index)
	set("bcs.namespace", g.Namespace)
	set("bcs.appname", g.Application)
	set("bcs.instanceid", index)
	set("bcs.hostip", spec.NodeIP)
	set("bcs.taskgroupid", g.ID)
	set("bcs.taskgroupname", g.Name)
	process := spec.Kind == TaskProcess
	if process {
		v.ours = allOurs
		set(varWorkBase, dirs.WorkBase)
		set(varRunBase, dirs.RunBase)
		set(varNamespace, g.Namespace)
		set(varProcess, g.Application)
		set(varInstance, index)
		set(varHostIP, spec.NodeIP)
	}
	// Its own ports come last, so that they win.
	for _, p := range slices.Concat(spec.PeerPorts, spec.Ports) {
		// The port by which others reach the task, as in the PORT family.
		port := p.HostPort
		if port <= 0 {
			port = p.ContainerPort
		}
		if p.Name == "" || port <= 0 {
			continue
		}
		set(varBCSPorts+p.Name, strconv.Itoa(port))
		if process {
			set(varPorts+p.Name, strconv.Itoa(port))
		}
	}
	return v
}

// Expand replaces the variables of s in one pass: what a variable stands for is
// not looked at again. Its second result names the variables that are not
// known; each is left as it is.
func (v *Vars) Expand(s string) (expanded string, unknown []string) {
	expanded, unclosed := replace(s, v.ours, func(name string) string {
		value, ok := v.values[name]
		if !ok {
			unknown = append(unknown, name)
			return "${" + name + "}"
		}
		return value
	})
	if unclosed {
		unknown = append(unknown, "${")
	}
	return expanded, unknown
}

// ExpandSpec returns a deep copy of spec in which every variable is replaced:
// in every text of a process, and in the environment, commands, checks and paths
// of files and volumes of either kind. In command lines of processes and of
// checks, a value that the shell would take apart is quoted as its place wants
// it. Paths of a process that are relative are put below its work path. BCS_POD_ID and BCS_NODE_IP are added to the environment; nothing a user
// wrote replaces them. The error (Errors) names every variable that is not
// known and every path that leaves its place.
func ExpandSpec(spec *TaskSpec, dirs Dirs) (*TaskSpec, error) {
	e := &expander{vars: NewVars(spec, dirs), out: spec.clone()}
	if p := e.out.Process; p != nil {
		// The order is fixed: workPath, then pidFile, then the rest, so that
		// each may use what was settled before it.
		e.path("process.workPath", &p.WorkPath, "")
		e.vars.values[varWorkPath] = p.WorkPath
		if p.PidFile != "" {
			e.path("process.pidFile", &p.PidFile, p.WorkPath)
			e.vars.values[varPidFile] = p.PidFile
		}
		e.process(p)
	}
	if c := e.out.Container; c != nil {
		e.container(c)
	}
	e.environment()
	base := ""
	if e.out.Process != nil {
		base = e.out.Process.WorkPath
	}
	for i := range e.out.Files {
		e.path(indexPath("files", i)+".path", &e.out.Files[i].Path, base)
		if e.out.Process != nil {
			e.text(indexPath("files", i)+".user", &e.out.Files[i].User)
		}
	}
	for i := range e.out.HealthChecks {
		e.healthCheck(indexPath("healthChecks", i), &e.out.HealthChecks[i])
	}
	if err := e.errs.Sorted(); err != nil {
		return nil, err
	}
	return e.out, nil
}

type expander struct {
	vars *Vars
	out  *TaskSpec
	errs Errors
}

func (e *expander) text(at string, s *string) {
	expanded, unknown := e.vars.Expand(*s)
	for _, name := range unknown {
		e.errs.Add(at, name, "is not a variable that is known here")
	}
	*s = expanded
}

func (e *expander) command(at string, s *string) {
	expanded, unknown, err := e.vars.ExpandCommand(*s)
	for _, name := range unknown {
		e.errs.Add(at, name, "is not a variable that is known here")
	}
	if err != nil {
		e.errs.Add(at, nil, "%s", err)
	}
	*s = expanded
}

// path expands a path and makes it absolute and clean. A path that climbs is
// refused rather than cleaned: whoever wrote it meant something else.
func (e *expander) path(at string, s *string, base string) {
	before := len(e.errs)
	e.text(at, s)
	if len(e.errs) > before {
		return
	}
	if slices.Contains(strings.Split(*s, "/"), "..") {
		e.errs.Add(at, *s, "must not contain \"..\"")
		return
	}
	if !strings.HasPrefix(*s, "/") && base != "" {
		*s = base + "/" + *s
	}
	if !strings.HasPrefix(*s, "/") {
		e.errs.Add(at, *s, "must be an absolute path")
		return
	}
	*s = path.Clean(*s)
}

func (e *expander) process(p *ProcessTask) {
	for i := range p.URIs {
		u := &p.URIs[i]
		at := indexPath("process.uris", i)
		e.text(at+".value", &u.Value)
		e.text(at+".user", &u.User)
		e.text(at+".pwd", &u.Password)
		if u.OutputDir == "" {
			u.OutputDir = p.WorkPath
		}
		e.path(at+".outputDir", &u.OutputDir, p.WorkPath)
	}
	// By reflection, so that no text that is added later is forgotten.
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		s, ok := v.Field(i).Addr().Interface().(*string)
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case !ok, s == &p.WorkPath, s == &p.PidFile:
		case strings.HasSuffix(key, "Cmd"):
			e.command("process."+key, s)
		default:
			e.text("process."+key, s)
		}
	}
}

func (e *expander) healthCheck(at string, h *HealthCheck) {
	if h.Command != nil {
		e.command(at+".command.value", &h.Command.Value)
	}
	if h.HTTP != nil {
		e.text(at+".http.path", &h.HTTP.Path)
		for _, name := range sortedKeys(h.HTTP.Headers) {
			value := h.HTTP.Headers[name]
			e.text(at+".http.headers."+name, &value)
			h.HTTP.Headers[name] = value
		}
	}
	if h.GRPC != nil {
		e.text(at+".grpc.service", &h.GRPC.Service)
	}
}

func (e *expander) container(c *ContainerTask) {
	if c.WorkingDir != "" {
		e.path("container.workingDir", &c.WorkingDir, "")
	}
	for i := range c.Command {
		e.text(indexPath("container.command", i), &c.Command[i])
	}
	for i := range c.Args {
		e.text(indexPath("container.args", i), &c.Args[i])
	}
	for i := range c.Volumes {
		v := &c.Volumes[i]
		v.MountPath = replacePodID(v.MountPath, e.out.Taskgroup.ID)
		e.path(indexPath("container.volumes", i)+".mountPath", &v.MountPath, "")
		if v.HostPath == "" {
			continue
		}
		v.HostPath = replacePodID(v.HostPath, e.out.Taskgroup.ID)
		e.path(indexPath("container.volumes", i)+".hostPath", &v.HostPath, "")
	}
}

// replacePodID replaces $BCS_POD_ID and ${BCS_POD_ID}, which directories of
// volumes have always been able to use.
func replacePodID(s, id string) string {
	s = strings.ReplaceAll(s, "${BCS_POD_ID}", id)
	const name = "$BCS_POD_ID"
	var b strings.Builder
	for {
		i := strings.Index(s, name)
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		rest := s[i+len(name):]
		b.WriteString(s[:i])
		if rest != "" && (rest[0] == '_' || rest[0] >= '0' && rest[0] <= '9' || rest[0] >= 'A' && rest[0] <= 'Z' || rest[0] >= 'a' && rest[0] <= 'z') {
			b.WriteString(name)
		} else {
			b.WriteString(id)
		}
		s = rest
	}
}

// environment expands names and values, and adds what the specification alone tells.
func (e *expander) environment() {
	own := []TaskEnvVar{
		{Name: "BCS_POD_ID", Value: e.out.Taskgroup.ID, Literal: true},
		{Name: "BCS_NODE_IP", Value: e.out.NodeIP, Literal: true},
	}
	for i := range e.out.Env {
		v := &e.out.Env[i]
		if v.Literal {
			continue
		}
		e.text(indexPath("env", i)+".name", &v.Name)
		e.text(indexPath("env", i)+".value", &v.Value)
		// What is expanded is literal from now on.
		v.Literal = true
	}
	e.out.Env = slices.DeleteFunc(e.out.Env, func(v TaskEnvVar) bool {
		return v.Name == own[0].Name || v.Name == own[1].Name
	})
	e.out.Env = append(e.out.Env, own...)
}
