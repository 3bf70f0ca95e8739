package executor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"tandem/api"
)

// warming is a runtime whose Warm takes as long as it is allowed to.
type warming struct {
	*scripted
	begun, ended atomic.Bool
}

func (w *warming) Warm(ctx context.Context) {
	w.begun.Store(true)
	<-ctx.Done()
	w.ended.Store(true)
}

// TestWarmingUpHoldsNothingUp: a runtime that cannot get ready, because its daemon hangs,
// delays neither the subscription nor a task nor the end, and is not waited for without end.
func TestWarmingUpHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(*rig, *warming){
		"a task": func(r *rig, w *warming) {
			r.agent.launch(taskInfo("a", 0))
			r.settle()
			r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
			if w.ended.Load() {
				r.Error("it was over before")
			}
			r.pass(warmLimit)
			if !w.ended.Load() {
				r.Errorf("it goes on after %s", warmLimit)
			}
			r.runtime.exit("a", Exit{Known: true})
			if err := r.ended(); err != nil {
				r.Error(err)
			}
		},
		"the end": func(r *rig, w *warming) {
			before := time.Now()
			r.agent.shutdown()
			if err := r.ended(); err != nil {
				r.Error(err)
			}
			if took := time.Since(before); took > 0 || !w.ended.Load() {
				r.Errorf("it took %s, ended: %t", took, w.ended.Load())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &warming{}
			inBubble(t, func(r *rig) {
				r.warm = []api.TaskKind{api.TaskProcess}
				r.dress = func(s *scripted) Runtime { w.scripted = s; return w }
			}, func(r *rig) {
				r.agent.set(func() {
					if len(r.agent.subscriptions) != 1 || !w.begun.Load() {
						t.Errorf("%d subscriptions, warming up: %t", len(r.agent.subscriptions), w.begun.Load())
					}
				})
				body(r, w)
			})
		})
	}
}

// TestARuntimeThatCannotBeWarmedIsMadeForTheTask: that it could not be made ahead is no
// failure of anything; the first task tries again.
func TestARuntimeThatCannotBeWarmedIsMadeForTheTask(t *testing.T) {
	t.Parallel()
	tries := 0
	inBubble(t, func(r *rig) {
		r.warm = []api.TaskKind{api.TaskProcess}
		r.make = func() error {
			if tries++; tries == 1 {
				return errors.New("not now")
			}
			return nil
		}
	}, func(r *rig) {
		if tries != 1 {
			t.Errorf("%d tries before the first task", tries)
		}
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
	})
}
