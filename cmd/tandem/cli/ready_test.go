package cli

import (
	"testing"
	"time"

	"tandem/api"
	"tandem/scheduler/wire"
)

// TestReadyTasks: what is said of a taskgroup that runs as it should is that all are ready, though its
// init tasks have ended; and one that is told to be unhealthy is not ready.
func TestReadyTasks(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	for _, c := range []struct {
		want  string
		tasks []wire.Task
	}{
		{"2/2", []wire.Task{{State: "FINISHED", Lifecycle: api.LifecycleInit}, {State: "RUNNING", Lifecycle: api.LifecycleSidecar}, {State: "RUNNING"}}},
		{"0/1", []wire.Task{{State: "RUNNING", Lifecycle: api.LifecycleInit}, {State: "STAGING"}}},
		{"1/2", []wire.Task{{State: "RUNNING", Healthy: &no}, {State: "RUNNING", Healthy: &yes}}},
		{"1/2", []wire.Task{{State: "FINISHED"}, {State: "RUNNING"}}},
	} {
		r := taskgroupRow(wire.Taskgroup{Name: "a-0", State: wire.Running, Tasks: c.tasks}, time.Now())
		if got := r.cells[3].Text; got != c.want {
			t.Errorf("%+v: READY %s, want %s", c.tasks, got, c.want)
		}
	}
}
