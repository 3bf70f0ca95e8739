package executor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tandem/api"
	"tandem/network"
)

// portsPatience is how long a taken port is looked at again while what a dead
// executor left behind is still being removed.
const portsPatience = 10 * time.Second

// sandboxTasks is where in the executor's sandbox the tasks have theirs.
const sandboxTasks = "tasks"

// prepare is the first step of a task; it runs beside the loop.
func (e *Executor) prepare(ctx context.Context, id string, spec *api.TaskSpec, foreign bool, progress func(string)) (prepared, error) {
	rt, err := e.runtimeFor(spec.Kind)
	if err != nil {
		return prepared{}, err
	}
	expanded := spec
	if !foreign {
		if expanded, err = expand(ctx, rt, spec); err != nil {
			return prepared{runtime: rt}, err
		}
	}
	sandbox := filepath.Join(e.cfg.Sandbox, sandboxTasks, spec.Name)
	if err := os.MkdirAll(sandbox, 0o755); err != nil {
		return prepared{runtime: rt}, fmt.Errorf("make the task's sandbox: %w", err)
	}
	if foreign && expanded.Process != nil {
		// A command of another framework runs in its sandbox, as with Mesos's own executor.
		process := *expanded.Process
		process.WorkPath = sandbox
		process.URIs = slices.Clone(process.URIs)
		for i := range process.URIs {
			process.URIs[i].OutputDir = sandbox
		}
		in := *expanded
		in.Process, expanded = &process, &in
	}
	if err := fetchSources(ctx, expanded, progress); err != nil {
		return prepared{runtime: rt}, err
	}
	run := &Task{
		ID: id, Owner: e.cfg.ExecutorID, Spec: expanded, Sandbox: sandbox,
		Env: taskEnv(id, e.cfg.ExecutorID, sandbox, expanded),
	}
	return prepared{rt, run}, rt.Prepare(ctx, run, progress)
}

// taskEnv is the complete environment of a task: the ports of its peers and its
// own PORT family, the user's own
// variables, and what Tandem promises, which nothing a user wrote replaces.
// Nothing of the executor's own environment is in it: that holds the agent's
// settings and was meant for us.
func taskEnv(id, executorID, sandbox string, s *api.TaskSpec) []string {
	pod := s.Taskgroup.ID
	if pod == "" {
		pod = executorID
	}
	vars := slices.Concat(network.PeerEnv(s.PeerPorts), network.PortEnv(s.Ports), s.Env)
	vars = append(vars, []api.TaskEnvVar{
		{Name: "BCS_POD_ID", Value: pod},
		{Name: "BCS_TASK_ID", Value: id},
		{Name: "BCS_NODE_IP", Value: s.NodeIP},
		{Name: "BCS_CONTAINER_IP", Value: containerIP(s)},
		{Name: "MESOS_SANDBOX", Value: sandbox},
	}...)
	last := make(map[string]int, len(vars))
	for i, v := range vars {
		last[v.Name] = i
	}
	env := make([]string, 0, len(last))
	for i, v := range vars {
		// A zero byte cannot be passed to a program; such a name or value is left out.
		if last[v.Name] == i && v.Name != "" && !strings.ContainsAny(v.Name, "=\x00") && !strings.Contains(v.Value, "\x00") {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

// containerIP is the address of a task as far as it is known before it runs: the
// one that it asks for in a custom network, otherwise the agent's. A container
// with another address of its own finds that on its interface.
func containerIP(s *api.TaskSpec) string {
	if s.Container != nil && s.Network.Name != "" {
		for _, p := range s.Container.Parameters {
			if p.Key == "ip" {
				return p.Value
			}
		}
	}
	return s.NodeIP
}

// predecessorPatience is how long what an earlier executor of the same instance
// left may take to be removed. The reaper gives processes and containers a few
// seconds to end.
const predecessorPatience = 30 * time.Second

// awaitPredecessors waits until nothing is left of earlier taskgroups of the
// same instance on this agent. One that was killed has failed for Mesos at once, so
// its successor may be here before its tasks are gone; they must not run side
// by side, on the same files and ports. One that lives is not waited for: to end
// it is the scheduler's business.
func (e *Executor) awaitPredecessors(ctx context.Context, spec *api.TaskSpec) error {
	// The id is {index}.{app}.{namespace}.{cluster}.{timestamp}.
	id := spec.Taskgroup.ID
	dot := strings.LastIndexByte(id, '.')
	if e.opts.Left == nil || dot < 0 || id != e.cfg.ExecutorID {
		return nil
	}
	deadline := time.Now().Add(predecessorPatience)
	for {
		left, err := e.opts.Left(id[:dot+1])
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(other string) bool {
			// Another cluster's name may go on where ours ends.
			return strings.Contains(other[dot+1:], ".")
		})
		if len(left) == 0 {
			return nil
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("something is left of %s, an earlier taskgroup of this instance, on this agent after %s; check that tandem-processd runs and what its log says",
				strings.Join(left, " and "), predecessorPatience)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitPorts returns an error that names the ports on which something listens
// already. It looks again for a while when that may be what a dead executor left.
func (e *Executor) awaitPorts(ctx context.Context, run *Task) error {
	deadline := time.Now().Add(portsPatience)
	for {
		err := e.portsFree(run)
		var taken *network.InUseError
		if !errors.As(err, &taken) {
			return err
		}
		if e.opts.Abandoned == nil || !time.Now().Before(deadline) {
			return err
		}
		if left, leftErr := e.opts.Abandoned(); leftErr != nil || !left {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// portsFree looks at the ports that the task will have on the agent.
func (e *Executor) portsFree(run *Task) error {
	if sharesNetwork(run.Spec) {
		if len(run.Publish) == 0 {
			return nil
		}
		return network.CheckFreePorts(e.opts.PublishAddress, run.Publish)
	}
	node := run.Spec.NodeIP
	if _, err := netip.ParseAddr(node); err != nil {
		node = "" // an agent that is known by a name only: all addresses count
	}
	return network.CheckFreePorts(node, run.Spec.Ports)
}
