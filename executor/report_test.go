package executor

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestReportTellsHowLongEachPhaseTook: of every update, for as much of the task's life as is over.
func TestReportTellsHowLongEachPhaseTook(t *testing.T) {
	t.Parallel()
	takes := func(d time.Duration) func(context.Context, *Task) error {
		return func(context.Context, *Task) error { time.Sleep(d); return nil }
	}
	inBubble(t, func(r *rig) {
		prepare := takes(3 * time.Second)
		r.runtime.prepare = func(ctx context.Context, task *Task, _ func(string)) error { return prepare(ctx, task) }
		r.runtime.create = takes(1500 * time.Microsecond)
		r.runtime.start = func(context.Context, string) error { time.Sleep(2 * time.Second); return nil }
		r.runtime.stop = func(context.Context, string, time.Duration) error { time.Sleep(4 * time.Second); return nil }
		r.runtime.remove = func(context.Context, string) error { time.Sleep(time.Second); return nil }
	}, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.pass(time.Minute)
		const up = "[{staged 0} {preparing 3} {prepared 0} {creating 0.0015} {created 0} {starting 2}"
		told := func() string { return fmt.Sprint(r.report(r.agent.last("a")).Phases) }
		if got := told(); got != up+"]" {
			t.Errorf("TASK_RUNNING: %s", got)
		}
		r.agent.kill("a", 0)
		r.settle()
		const running = " {running 54.9985}"
		if got := told(); got != up+running+"]" {
			t.Errorf("TASK_KILLING: %s", got)
		}
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if got := told(); got != up+running+" {stopping 4} {removing 1}]" {
			t.Errorf("TASK_KILLED: %s", got)
		}
		for _, u := range r.agent.of("a") {
			var sum float64
			for _, p := range r.report(u).Phases {
				sum += p.Seconds
			}
			if sum > time.Hour.Seconds() {
				t.Errorf("phases of %v", r.report(u).Phases)
			}
		}
	})
}
