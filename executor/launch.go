package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/executor/health"
	"tandem/network"
)

// launch takes the tasks of a LAUNCH or LAUNCH_GROUP. If one of them cannot be
// run at all, none is: all are TASK_ERROR, as Mesos does with a bad task group.
func (e *Executor) launch(infos []mesos.TaskInfo) {
	g := &group{}
	for _, info := range infos {
		id := info.TaskID.Value
		if e.tasks[id] != nil {
			// After a reconnection an agent may launch again what it is not sure about.
			e.log.Warn("LAUNCH of a task that is here already, ignored", "task", id)
			continue
		}
		t := &task{id: id, info: info, group: g, since: time.Now()}
		e.tasks[id] = t
		e.order = append(e.order, t)
		g.tasks = append(g.tasks, t)
		e.updates.tasks = append(e.updates.tasks, info)
	}
	if len(g.tasks) == 0 {
		return
	}
	e.log.Info("LAUNCH", "tasks", len(g.tasks))
	e.decodeGroup(g)
	if e.closing {
		for _, t := range g.tasks {
			e.kill(t, &killCause{message: "killed because the executor is shutting down", reason: killedDuringLaunch()})
		}
		return
	}
	for _, t := range g.tasks {
		if t.failure != nil {
			e.rejectGroup(g, t)
			return
		}
	}
	for _, t := range g.tasks {
		e.deliver(t, eventGo)
	}
}

// decodeGroup fills in the specifications, sets failure where that is not possible, and orders the tasks.
func (e *Executor) decodeGroup(g *group) {
	seen := map[string]string{}
	for i, t := range g.tasks {
		spec, foreign, err := decodeSpec(&t.info, e.cfg.ExecutorID)
		if err == nil {
			if spec.NodeIP == "" {
				spec.NodeIP = e.cfg.NodeIP()
			}
			if foreign {
				spec.Position = i
				if spec.Process != nil && spec.Process.User == "" {
					spec.Process.User = e.conn.user
				}
			}
			err = checkSpec(spec)
		}
		if err == nil {
			if other, taken := seen[spec.Name]; taken {
				err = fmt.Errorf("name %q is also that of task %s; names are unique in a taskgroup", spec.Name, other)
			}
			seen[spec.Name] = t.id
		}
		t.spec, t.foreign = spec, foreign
		if err != nil {
			t.failure = &invalid{err: err, reason: mesos.REASON_TASK_INVALID}
		}
	}
	sort.SliceStable(g.tasks, func(i, j int) bool {
		a, b := g.tasks[i].spec, g.tasks[j].spec
		if a == nil || b == nil {
			return false
		}
		if x, y := api.LifecycleOrder(a.Lifecycle), api.LifecycleOrder(b.Lifecycle); x != y {
			return x < y
		}
		return a.Position < b.Position
	})
	e.checkGroup(g)
}

// checkGroup looks at the tasks together: there must be one that the others are
// for. It tells each about the ports of its peers.
func (e *Executor) checkGroup(g *group) {
	if slices.ContainsFunc(g.tasks, func(t *task) bool { return t.failure != nil }) {
		return
	}
	main := false
	for _, t := range g.tasks {
		main = main || t.lifecycle() == api.LifecycleMain
		if t.foreign {
			continue
		}
		own := map[string]bool{"": true}
		for _, p := range t.spec.Ports {
			own[p.Name] = true
		}
		t.spec.PeerPorts = nil
		for _, o := range g.tasks {
			for _, p := range o.spec.Ports {
				if !own[p.Name] {
					own[p.Name] = true
					t.spec.PeerPorts = append(t.spec.PeerPorts, p)
				}
			}
		}
	}
	if !main {
		t := g.tasks[0]
		t.failure = &invalid{err: fmt.Errorf("lifecycle: no task of the taskgroup is a main task, so there is nothing that task %q would be for", t.name()), reason: mesos.REASON_TASK_INVALID}
	}
}

// rejectGroup reports TASK_ERROR for all tasks of a group because of one of them.
func (e *Executor) rejectGroup(g *group, culprit *task) {
	g.culprit = culprit
	e.log.Warn("launch refused", "task", culprit.id, "error", culprit.failure)
	for _, t := range g.tasks {
		if t.failure == nil {
			t.failure = &invalid{
				err:    fmt.Errorf("task group is invalid: task %q: %w", culprit.name(), culprit.failure),
				reason: mesos.REASON_TASK_GROUP_INVALID,
			}
		}
		e.deliver(t, eventKill)
	}
}

// decodeSpec reads the specification out of TaskInfo.data, or makes one of a
// plain TaskInfo (then foreign is true). What is in data never shows in an error:
// it may hold secrets.
func decodeSpec(info *mesos.TaskInfo, executorID string) (spec *api.TaskSpec, foreign bool, err error) {
	plain := info.Command != nil || info.Container != nil
	var head struct {
		Version string `json:"version"`
	}
	headErr := json.Unmarshal(info.Data, &head)
	switch {
	case headErr == nil && head.Version == api.TaskSpecVersion:
		spec = &api.TaskSpec{}
		if err := json.Unmarshal(info.Data, spec); err != nil {
			return nil, false, fmt.Errorf("data of the task is no task specification of version %s: %w", api.TaskSpecVersion, jsonPlace(err))
		}
		return spec, false, nil
	case plain:
		// Another framework may use data for purposes of its own.
		spec, err = foreignSpec(info, executorID)
		return spec, true, err
	case len(info.Data) == 0:
		return nil, false, errors.New("the task has neither data with a task specification nor a command nor a container")
	case headErr != nil:
		return nil, false, fmt.Errorf("data of the task is no task specification: %w", jsonPlace(headErr))
	case head.Version == "":
		return nil, false, fmt.Errorf("data of the task has no version; this executor understands %s", api.TaskSpecVersion)
	default:
		return nil, false, fmt.Errorf("version %q of the task specification is unknown, this executor understands %s; use an executor of the scheduler's release",
			head.Version, api.TaskSpecVersion)
	}
}

// jsonPlace says where a JSON error is, without the text around it.
func jsonPlace(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("malformed JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("field %s at byte %d has the wrong type, not %s", kind.Field, kind.Offset, kind.Type)
	}
	return errors.New("malformed JSON")
}

// checkSpec looks for what no runtime could make sense of; all at once.
func checkSpec(s *api.TaskSpec) error {
	var errs api.Errors
	// The name becomes a directory of the sandbox.
	if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00") {
		errs.Add("name", s.Name, "must be a name without '/'")
	}
	switch {
	case s.Kind == api.TaskContainer && s.Container == nil:
		errs.Add("container", nil, "is missing although the kind is %s", s.Kind)
	case s.Kind == api.TaskProcess && s.Process == nil:
		errs.Add("process", nil, "is missing although the kind is %s", s.Kind)
	case s.Kind != api.TaskContainer && s.Kind != api.TaskProcess:
		errs.Add("kind", s.Kind, "is unknown; use %s or %s", api.TaskContainer, api.TaskProcess)
	}
	if !slices.Contains(api.Lifecycles, s.Lifecycle) && s.Lifecycle != "" {
		errs.Add("lifecycle", s.Lifecycle, "is unknown; use %s", strings.Join(api.Lifecycles, ", "))
	}
	if s.Kind == api.TaskContainer || sharesNetwork(s) {
		if _, err := network.FromTask(s.Network); err != nil {
			errs.Add("network", s.Network.Mode, "%v", err)
		}
	}
	for i, p := range s.Ports {
		path := fmt.Sprintf("ports[%d]", i)
		if p.ContainerPort < 0 || p.ContainerPort > 65535 {
			errs.Add(path+".containerPort", p.ContainerPort, "is no port; ports are 1 to 65535")
		}
		if p.HostPort < 0 || p.HostPort > 65535 {
			errs.Add(path+".hostPort", p.HostPort, "is no port; ports are 1 to 65535, 0 is not published")
		}
		if p.Protocol != "tcp" && p.Protocol != "udp" {
			errs.Add(path+".protocol", p.Protocol, "must be tcp or udp")
		}
	}
	if _, err := health.FromSpec(s); err != nil {
		errs.Add("healthChecks", nil, "%v", err)
	}
	return errs.Sorted()
}
