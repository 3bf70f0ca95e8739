package scheduler

import (
	"testing"

	mesosapi "github.com/mesos/mesos-go/api/v1/lib"
)

// TestWhy: a taskgroup's message is that of the task that matters; an init task that
// is done matters only once all are.
func TestWhy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tasks []taskRecord
		want  string
	}{
		{[]taskRecord{{Name: "prep", State: mesosapi.TASK_FINISHED, Message: "exit code 0"}, {Name: "main", State: mesosapi.TASK_RUNNING}}, ""},
		{[]taskRecord{{Name: "prep", State: mesosapi.TASK_FINISHED, Message: "exit code 0"}, {Name: "main", State: mesosapi.TASK_STARTING, Message: "creating"}}, "main: creating"},
		{[]taskRecord{{Name: "prep", State: mesosapi.TASK_FINISHED, Message: "exit code 0"}, {Name: "main", State: mesosapi.TASK_FAILED, Message: "exit code 1"}}, "main: exit code 1"},
		{[]taskRecord{{Name: "main", State: mesosapi.TASK_FINISHED, Message: "exit code 0"}}, "exit code 0"},
	} {
		if got := (&groupRecord{Tasks: c.tasks}).why(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.tasks, got, c.want)
		}
	}
}
