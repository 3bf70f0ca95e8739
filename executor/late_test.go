package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// sure is a runtime that is certain of the ends of its tasks, or is not.
type sure struct {
	*scripted
	patience time.Duration
	certain  bool
}

func (r sure) Ended(string) (time.Duration, bool) { return r.patience, r.certain }

// late is an executor whose task is killed while nobody removes anything until release.
func late(t *testing.T, certain bool, body func(r *rig, release func())) {
	t.Helper()
	inBubble(t, func(r *rig) {
		r.dress = func(s *scripted) Runtime { return sure{s, 2 * time.Second, certain} }
	}, func(r *rig) {
		released := make(chan struct{})
		r.runtime.remove = func(ctx context.Context, _ string) error {
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		body(r, func() { close(released) })
	})
}

var (
	running = []string{"TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"}
	killed  = append(running[:len(running):len(running)], "TASK_KILLED")
)

// An end that is certain is told before all is removed, and the executor leaves after that.
func TestACertainEndIsToldBeforeTheRemoval(t *testing.T) {
	t.Parallel()
	late(t, true, func(r *rig, release func()) {
		r.agent.kill("a", 0)
		r.pass(2*time.Second - time.Millisecond)
		r.wantStates("a", running...)
		r.pass(time.Second)
		r.wantStates("a", killed...)
		r.pass(20 * time.Second)
		if !r.running() {
			t.Error("the executor has left before all was removed")
		}
		release()
		r.pass(time.Second)
		if r.running() {
			t.Error("all is removed, and the executor stays")
		}
		if err := r.ended(); err != nil || strings.Contains(r.log.String(), "for the reaper") {
			t.Errorf("%v\n%s", err, r.log)
		}
	})
}

// An end that is not certain waits for the removal as long as that may take.
func TestAnUncertainEndWaitsForTheRemoval(t *testing.T) {
	t.Parallel()
	late(t, false, func(r *rig, release func()) {
		r.agent.kill("a", 0)
		r.pass(limits[stateRemoving] - time.Second)
		r.wantStates("a", running...)
		release()
		r.pass(time.Second)
		r.wantStates("a", killed...)
	})
}

// What is never removed is left for the reaper, after the time of a removal.
func TestALateRemovalHasItsDeadline(t *testing.T) {
	t.Parallel()
	late(t, true, func(r *rig, _ func()) {
		r.agent.kill("a", 0)
		r.pass(limits[stateRemoving])
		r.wantStates("a", killed...)
		if !r.running() {
			t.Error("the executor has not waited for the removal")
		}
		r.pass(10 * time.Second)
		if r.running() || !strings.Contains(r.log.String(), "something is left of the task for the reaper") {
			t.Errorf("running: %t\n%s", r.running(), r.log)
		}
	})
}

// The agent's grace period bounds it, too.
func TestALateRemovalDoesNotOutlastAShutdown(t *testing.T) {
	t.Parallel()
	late(t, true, func(r *rig, _ func()) {
		began := time.Now()
		r.agent.shutdown()
		_ = r.ended()
		if took := time.Since(began); took >= r.cfg.ShutdownGrace {
			t.Errorf("the executor left after %s of the agent's %s", took, r.cfg.ShutdownGrace)
		}
		r.wantStates("a", killed...)
	})
}

// A removal that fails is tried again, also after the report.
func TestALateRemovalIsTriedAgain(t *testing.T) {
	t.Parallel()
	late(t, true, func(r *rig, _ func()) {
		began := time.Now()
		r.runtime.remove = func(context.Context, string) error {
			if time.Since(began) < 7*time.Second {
				return errors.New("no")
			}
			return nil
		}
		r.agent.kill("a", 0)
		r.pass(3 * time.Second)
		r.wantStates("a", killed...)
		r.pass(10 * time.Second)
		if r.running() || strings.Contains(r.log.String(), "for the reaper") {
			t.Errorf("running: %t\n%s", r.running(), r.log)
		}
	})
}
