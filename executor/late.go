package executor

import (
	"context"
	"time"
)

// Ender is a Runtime that can tell by itself that nothing of a task runs, and that
// nobody will start anything of it: then its end is told although whoever keeps its
// record does not answer, and the removal goes on beside.
type Ender interface {
	// Ended tells whether that is certain, and for how long Remove may hold up the
	// terminal update. It may be asked for any task, at any time.
	Ended(taskID string) (patience time.Duration, certain bool)
}

// removal is what the removing step gives.
type removal struct {
	// output is the task's last, where that was asked for.
	output string
	// late tells that the removal takes longer than the report may wait for it.
	late bool
}

// lateRemoved tells what became of a removal that went on after the report.
type lateRemoved struct {
	task *task
	err  error
}

// removeInTime removes a task. late tells that this is not done, and that nobody need
// wait for it to tell the task's end.
func removeInTime(ctx context.Context, rt Runtime, id string) (late bool, err error) {
	if x, ok := rt.(Ender); ok {
		if patience, certain := x.Ended(id); certain {
			limited, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := removeUntil(limited, rt, id)
			if err == nil || ctx.Err() != nil {
				return false, err
			}
			return true, nil
		}
	}
	return false, rt.Remove(ctx, id)
}

// removeUntil tries to remove a task until the context ends.
func removeUntil(ctx context.Context, rt Runtime, id string) error {
	for {
		err := rt.Remove(ctx, id)
		if err == nil || await(ctx, nil, pauseBeforeAgain) != nil {
			return err
		}
	}
}

// removeLate goes on removing a task whose end is told, within the same limit. The
// executor does not leave before, unless its own time is up.
func (e *Executor) removeLate(t *task) {
	e.late++
	e.log.Warn("the end of the task is told before all is removed, which goes on", "task", t.id)
	rt, id := t.runtime, t.id
	e.workers.Go(func() {
		ctx, cancel := context.WithTimeout(e.work, limits[stateRemoving])
		defer cancel()
		e.post(lateRemoved{t, removeUntil(ctx, rt, id)})
	})
}

// removedLate takes the result of removeLate.
func (e *Executor) removedLate(m lateRemoved) {
	e.late--
	if m.err != nil {
		e.log.Error("something is left of the task for the reaper", "task", m.task.id, "error", m.err)
	}
}
