package api

import "slices"

// Values of the key lifecycle of a task: when it runs beside the others of its
// taskgroup. Empty means main.
const (
	// LifecycleInit tasks run to completion, one after another, before the others start.
	LifecycleInit = "init"
	// LifecycleMain tasks are what the taskgroup is for.
	LifecycleMain = "main"
	// LifecycleSidecar tasks start before the main ones and are stopped after
	// them; a taskgroup whose main tasks have ended ends.
	LifecycleSidecar = "sidecar"
)

// Lifecycles are the values of the key lifecycle.
var Lifecycles = []string{LifecycleInit, LifecycleMain, LifecycleSidecar}

// LifecycleOrder is the place of a lifecycle in the start order: init, sidecar,
// main. An unknown value is that of a main task.
func LifecycleOrder(lifecycle string) int {
	return slices.Index([]string{LifecycleInit, LifecycleSidecar, LifecycleMain}, known(lifecycle))
}

// known maps what is not known to main.
func known(lifecycle string) string {
	if slices.Contains(Lifecycles, lifecycle) {
		return lifecycle
	}
	return LifecycleMain
}

// lifecycles returns those of the tasks, in the order of TaskNames.
func (s *PodSpec) lifecycles() []string {
	out := make([]string, 0, s.Size())
	for i := range s.Containers {
		out = append(out, s.Containers[i].Lifecycle)
	}
	for i := range s.Processes {
		out = append(out, s.Processes[i].Lifecycle)
	}
	return out
}

// lifecycle checks one task's, and that a task which ends by itself before the
// others start is not asked whether it is alive.
func (c *checker) lifecycle(path, value string, checks []HealthCheck) {
	if value == "" {
		return
	}
	if c.oneOf(joinPath(path, "lifecycle"), value, Lifecycles...) && value == LifecycleInit && len(checks) > 0 {
		c.fail(joinPath(path, "healthChecks"), nil, "has no meaning for an init task, which is judged by its exit code; remove it")
	}
}

// hasMain checks that a taskgroup has something to run for.
func (c *checker) hasMain(path string, s *PodSpec) {
	all := s.lifecycles()
	if len(all) > 0 && !slices.ContainsFunc(all, func(l string) bool { return known(l) == LifecycleMain }) {
		c.fail(path, nil, "has no main task, so nothing would keep its sidecars; leave lifecycle out for at least one task")
	}
}
