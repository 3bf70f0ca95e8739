package scheduler

import (
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/scheduler/wire"
)

// TestStateOfATaskgroup: one that has run and of which a part has failed or is being ended is
// on its way down, and is not starting.
func TestStateOfATaskgroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  string
		tasks []mesos.TaskState
	}{
		{wire.Launching, []mesos.TaskState{mesos.TASK_STAGING, mesos.TASK_STAGING}},
		{wire.Starting, []mesos.TaskState{mesos.TASK_STARTING, mesos.TASK_STAGING}},
		{wire.Starting, []mesos.TaskState{mesos.TASK_FINISHED, mesos.TASK_STARTING}},
		{wire.Starting, []mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_STARTING}},
		{wire.Running, []mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_RUNNING}},
		{wire.Running, []mesos.TaskState{mesos.TASK_FINISHED, mesos.TASK_RUNNING}},
		{wire.Killing, []mesos.TaskState{mesos.TASK_FAILED, mesos.TASK_RUNNING}},
		{wire.Killing, []mesos.TaskState{mesos.TASK_FAILED, mesos.TASK_KILLING}},
		{wire.Killing, []mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_KILLING}},
		{wire.Killing, []mesos.TaskState{mesos.TASK_KILLED, mesos.TASK_STARTING}},
		{wire.Unreachable, []mesos.TaskState{mesos.TASK_FAILED, mesos.TASK_UNREACHABLE}},
		{wire.Failed, []mesos.TaskState{mesos.TASK_FAILED, mesos.TASK_KILLED}},
		{wire.Finished, []mesos.TaskState{mesos.TASK_FINISHED, mesos.TASK_FINISHED}},
	} {
		g := groupRecord{State: wire.Launching}
		for _, s := range c.tasks {
			g.Tasks = append(g.Tasks, taskRecord{State: s})
		}
		if g.derive(time.Now()); g.State != c.want {
			t.Errorf("%v: %s, want %s", c.tasks, g.State, c.want)
		}
	}
}
