package master

import (
	"fmt"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/internal/wire"
)

// The least that an executor of a task group must have.
const (
	minExecutorCPUs = 0.01
	minExecutorMem  = 32.0
)

// validateTask checks a task of a LAUNCH in the order and words of Mesos.
func (m *Master) validateTask(acc *acceptance, t mesos.TaskInfo) error {
	if err := m.validateTaskInfo(acc, t); err != nil {
		return err
	}
	if (t.Executor != nil) == (t.Command != nil) {
		return mesosError("Task should have at least one (but not both) of CommandInfo or ExecutorInfo present")
	}
	total := resource.Of(t.Resources)
	if x := t.Executor; x != nil {
		if err := m.validateExecutor(acc, *x); err != nil {
			return err
		}
		switch {
		case x.Type != mesos.ExecutorInfo_UNKNOWN && x.Type != mesos.ExecutorInfo_CUSTOM:
			return mesosError("'ExecutorInfo.type' must be 'CUSTOM'")
		case x.Command == nil:
			return mesosError("'ExecutorInfo.command' must be set")
		}
		if acc.agent.executors[executorKey{acc.framework.id, x.ExecutorID.Value}] == nil {
			total = total.Add(x.Resources...)
		}
	}
	if left := acc.left.InOrderOf(acc.agent.total).Allocate(acc.role); !left.Contains(total...) {
		return mesosError(fmt.Sprintf("Total resources %s required by task and its executor is more than available %s", total, left))
	}
	return nil
}

// validateTaskInfo checks what is the same for tasks of LAUNCH and of LAUNCH_GROUP.
func (m *Master) validateTaskInfo(acc *acceptance, t mesos.TaskInfo) error {
	id := t.TaskID.Value
	if err := validateID(id); err != nil {
		return err
	}
	if acc.framework.tasks[id] != nil {
		return mesosError("Task has duplicate ID: " + id)
	}
	if t.AgentID.Value != acc.agent.id {
		return mesosError("Task uses invalid agent " + t.AgentID.Value + " while agent " + acc.agent.id + " is expected")
	}
	if grace := t.GetKillPolicy().GetGracePeriod(); grace != nil && grace.Nanoseconds < 0 {
		return mesosError("Task's 'kill_policy.grace_period' must be non-negative")
	}
	if limit := t.MaxCompletionTime; limit != nil && limit.Nanoseconds < 0 {
		return mesosError("Task's `max_completion_time` must be non-negative")
	}
	if t.Check != nil {
		if err := validateCheck(*t.Check); err != nil {
			return mesosError("Task uses invalid check: " + err.Error())
		}
	}
	if t.HealthCheck != nil {
		if err := validateHealthCheck(*t.HealthCheck); err != nil {
			return mesosError("Task uses invalid health check: " + err.Error())
		}
	}
	if len(t.Resources) == 0 {
		return mesosError("Task uses no resources")
	}
	if t.Command != nil {
		if err := validateCommand(*t.Command); err != nil {
			return mesosError("Task's `CommandInfo` is invalid: " + err.Error())
		}
	}
	return nil
}

// validateExecutor checks what is the same for executors of LAUNCH and of LAUNCH_GROUP.
func (m *Master) validateExecutor(acc *acceptance, x mesos.ExecutorInfo) error {
	switch x.Type {
	case mesos.ExecutorInfo_DEFAULT:
		if x.Command != nil {
			return mesosError("'ExecutorInfo.command' must not be set for 'DEFAULT' executor")
		}
	case mesos.ExecutorInfo_CUSTOM:
		if x.Command == nil {
			return mesosError("'ExecutorInfo.command' must be set for 'CUSTOM' executor")
		}
	case mesos.ExecutorInfo_UNKNOWN:
	}
	if err := validateID(x.ExecutorID.Value); err != nil {
		return err
	}
	if x.FrameworkID == nil {
		return mesosError("'ExecutorInfo.framework_id' must be set")
	}
	if x.FrameworkID.Value != acc.framework.id {
		return mesosError("ExecutorInfo has an invalid FrameworkID (Actual: " + x.FrameworkID.Value + " vs Expected: " + acc.framework.id + ")")
	}
	if grace := x.ShutdownGracePeriod; grace != nil && grace.Nanoseconds < 0 {
		return mesosError("ExecutorInfo's 'shutdown_grace_period' must be non-negative")
	}
	if x.Command != nil {
		if err := validateCommand(*x.Command); err != nil {
			return mesosError("Executor's `CommandInfo` is invalid: " + err.Error())
		}
	}
	if there := acc.agent.executors[executorKey{acc.framework.id, x.ExecutorID.Value}]; there != nil && !sameExecutor(there.info, x) {
		line := strings.Repeat("-", 60) + "\n"
		return mesosError("ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID.\n" +
			line + "Existing ExecutorInfo:\n" + wire.TextForm(&there.info) + "\n" + line + "ExecutorInfo:\n" + wire.TextForm(&x) + "\n" + line)
	}
	return nil
}

// sameExecutor compares all of two ExecutorInfos, resources by what they are worth.
func sameExecutor(a, b mesos.ExecutorInfo) bool {
	if !resource.Of(a.Resources).Equal(resource.Of(b.Resources)) {
		return false
	}
	a.Resources, b.Resources = nil, nil
	return a.Equal(b)
}

// validateGroup checks a LAUNCH_GROUP.
func (m *Master) validateGroup(acc *acceptance, x mesos.ExecutorInfo, tasks []mesos.TaskInfo) error {
	seen := map[string]bool{}
	for _, t := range tasks {
		err := m.validateGroupTask(acc, x, t)
		if err == nil && seen[t.TaskID.Value] {
			// Apache Mesos 1.12 ends itself here.
			err = mesosError("Task has duplicate ID: " + t.TaskID.Value)
		}
		seen[t.TaskID.Value] = true
		if err != nil {
			return err
		}
	}
	switch {
	case x.Type == mesos.ExecutorInfo_UNKNOWN:
		return mesosError("'ExecutorInfo.type' must be set")
	case x.FrameworkID == nil:
		return mesosError("'ExecutorInfo.framework_id' must be set")
	}
	if err := m.validateExecutor(acc, x); err != nil {
		return err
	}
	if x.GetContainer() != nil && x.Container.GetType() == mesos.ContainerInfo_DOCKER {
		return mesosError("Docker ContainerInfo is not supported on the executor")
	}
	if err := validateExecutorSize(x); err != nil {
		return err
	}
	var total resource.List
	for _, t := range tasks {
		total = total.Add(t.Resources...)
	}
	if acc.agent.executors[executorKey{acc.framework.id, x.ExecutorID.Value}] == nil {
		total = total.Add(x.Resources...)
	}
	if left := acc.left.InOrderOf(acc.agent.total).Allocate(acc.role); !left.Contains(total...) {
		return mesosError(fmt.Sprintf("Total resources %s required by task group and its executor are more than available %s", total, left))
	}
	return nil
}

func (m *Master) validateGroupTask(acc *acceptance, x mesos.ExecutorInfo, t mesos.TaskInfo) error {
	err := m.validateTaskInfo(acc, t)
	id := t.TaskID.Value
	if c := t.Container; err == nil && c != nil {
		switch {
		case c.GetType() == mesos.ContainerInfo_DOCKER:
			err = mesosError("Docker ContainerInfo is not supported on the task")
		case len(c.NetworkInfos) > 0:
			err = mesosError("NetworkInfos must not be set on the task")
		}
	}
	if err != nil {
		return mesosError("Task '" + id + "' is invalid: " + err.Error())
	}
	if t.Executor != nil && !sameExecutor(*t.Executor, x) {
		return mesosError("The `ExecutorInfo` of task '" + id + "' is different from executor '" + x.ExecutorID.Value + "'")
	}
	return nil
}

func validateExecutorSize(x mesos.ExecutorInfo) error {
	resources := resource.Of(x.Resources)
	name := "Executor '" + x.ExecutorID.Value + "' uses "
	amount := func(v float64, ok bool, unit string) string {
		if !ok {
			return "None"
		}
		return resource.FormatScalar(v) + unit
	}
	if cpus, ok := resources.Scalar("cpus"); cpus < minExecutorCPUs {
		return mesosError(fmt.Sprintf("%sless CPUs (%s) than the minimum required (%g)", name, amount(cpus, ok, ""), minExecutorCPUs))
	}
	if mem, ok := resources.Scalar("mem"); mem < minExecutorMem {
		return mesosError(fmt.Sprintf("%sless memory (%s) than the minimum required (%gMB)", name, amount(mem, ok, "MB"), minExecutorMem))
	}
	if disk, _ := resources.Scalar("disk"); disk <= 0 {
		return mesosError(name + "no disk")
	}
	return nil
}

// validateID checks ids that become names of directories.
func validateID(id string) error {
	switch {
	case id == "":
		return mesosError("ID must not be empty")
	case len(id) > 255:
		return mesosError("ID must not be greater than 255 characters")
	case id == "." || id == "..":
		return mesosError("'" + id + "' is disallowed")
	case strings.ContainsFunc(id, func(c rune) bool { return c == '/' || c == '\\' || c < ' ' || c == 0x7f }):
		return mesosError("'" + id + "' contains invalid characters")
	}
	return nil
}

func validateCommand(c mesos.CommandInfo) error {
	for _, v := range c.GetEnvironment().GetVariables() {
		switch v.GetType() {
		case mesos.Environment_Variable_VALUE:
			if v.Value == nil {
				return mesosError("Environment variable '" + v.Name + "' of type 'VALUE' must have a value set")
			}
		case mesos.Environment_Variable_SECRET:
			if v.Secret == nil {
				return mesosError("Environment variable '" + v.Name + "' of type 'SECRET' must have a secret set")
			}
		default:
			return mesosError("Environment variable of type 'UNKNOWN' is not allowed")
		}
	}
	return nil
}
