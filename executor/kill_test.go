package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
)

func shutdownOnly() []*executor.Event { return []*executor.Event{{Type: executor.Event_SHUTDOWN}} }

func TestE1ExitCodeDecidesBetweenFinishedAndFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want, message string
		exit                Exit
		reason              mesos.TaskStatus_Reason
	}{
		{"zero", "TASK_FINISHED", "exit code 0", Exit{Known: true}, 0},
		{"code", "TASK_FAILED", "exit code 3; last output:\nboom", Exit{Known: true, Code: 3}, 0},
		{"signal", "TASK_FAILED", "signal 9", Exit{Known: true, Signal: 9}, 0},
		{"memory", "TASK_FAILED", "more memory", Exit{Known: true, Signal: 9, OOMKilled: true}, mesos.REASON_CONTAINER_LIMITATION_MEMORY},
		{"unseen", "TASK_FAILED", "nobody saw", Exit{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(r *rig) { r.runtime.output = "one\nboom\n" }, func(r *rig) {
				r.runtime.output = "boom\n"
				r.agent.launch(taskInfo("a", 0))
				r.settle()
				r.runtime.exit("a", c.exit)
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", c.want)
				last := r.agent.last("a")
				if !strings.Contains(last.GetMessage(), c.message) {
					t.Errorf("message %q, want %q in it", last.GetMessage(), c.message)
				}
				if last.GetReason() != c.reason {
					t.Errorf("reason %s, want %s", last.GetReason(), c.reason)
				}
				rep := r.report(last)
				if known := rep.ExitCode != nil; known != c.exit.Known || rep.Signal != c.exit.Signal || rep.OOMKilled != c.exit.OOMKilled {
					t.Errorf("report %+v does not show exit %+v", rep, c.exit)
				}
				if failed := c.want == "TASK_FAILED"; failed != (rep.Output != "") {
					t.Errorf("output %q of a task that is %s", rep.Output, c.want)
				}
			})
		})
	}
}

func TestE1KilledTaskIsKilledWithItsSignal(t *testing.T) {
	t.Parallel()
	for _, capable := range []bool{true, false} {
		inBubble(t, func(r *rig) { r.agent.capable = capable }, func(r *rig) {
			r.agent.launch(taskInfo("a", 0, withGrace(7)), taskInfo("b", 1))
			r.settle()
			r.agent.kill("a", 0)
			r.settle()
			want := []string{"TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED"}
			if !capable {
				want = []string{"TASK_STARTING", "TASK_RUNNING", "TASK_KILLED"}
			}
			r.wantStates("a", want...)
			r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
			if rep := r.report(r.agent.last("a")); rep.Signal != 15 {
				t.Errorf("report %+v, want signal 15", rep)
			}
			if !r.runtime.has("stop a 7s") {
				t.Errorf("calls %v, want the grace of the specification", r.runtime.called())
			}
		})
	}
}

// TestKilledTaskTellsOfItsStopCommand: an end in bad order is one, though it was asked for.
func TestKilledTaskTellsOfItsStopCommand(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.runtime.stop = func(_ context.Context, id string, _ time.Duration) error {
			r.runtime.exit(id, Exit{Known: true, Signal: 15, StopFailure: `stopCmd "./stop.sh": exit code 4`})
			return nil
		}
	}, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.kill("a", 0)
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		last := r.agent.last("a")
		if got, want := last.GetMessage(), `killed on request; stopCmd "./stop.sh": exit code 4`; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	})
}

func TestKillPolicyOfTheCallWinsAndASecondCanShorten(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(ctx context.Context, _ string, grace time.Duration) error {
			select {
			case <-time.After(grace):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.agent.launch(taskInfo("a", 0, withGrace(7)))
		r.settle()
		r.agent.kill("a", time.Minute)
		r.pass(time.Second)
		r.agent.kill("a", 0) // the same again changes nothing
		r.agent.kill("a", 2*time.Second)
		r.pass(3 * time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		for _, call := range []string{"stop a 1m0s", "stop a 2s"} {
			if !r.runtime.has(call) {
				t.Errorf("calls %v, want %q", r.runtime.called(), call)
			}
		}
		if err := r.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestE3KillCancelsAPullAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		cancelled := time.Time{}
		r.runtime.prepare = func(ctx context.Context, _ *Task, _ func(string)) error {
			<-ctx.Done()
			cancelled = time.Now()
			return ctx.Err()
		}
		r.agent.launch(taskInfo("a", 0))
		r.pass(time.Minute)
		began := time.Now()
		r.agent.kill("a", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if d := cancelled.Sub(began); d != 0 {
			t.Errorf("the pull was cancelled %s after KILL", d)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_KILLING", "TASK_KILLED")
		last := r.agent.last("a")
		if reason := last.GetReason(); reason != mesos.REASON_TASK_KILLED_DURING_LAUNCH {
			t.Errorf("reason %s", reason)
		}
		if r.runtime.has("create a") {
			t.Error("a killed task was created")
		}
	})
}

func TestE3EventsAreHandledInTheirOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		// KILL comes in the same moment as LAUNCH, and an unknown task in between.
		r.agent.launch(taskInfo("a", 0))
		r.agent.kill("nobody", 0)
		r.agent.kill("a", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		states := r.agent.states("a")
		if states[0] != "TASK_STARTING" || states[len(states)-1] != "TASK_KILLED" {
			t.Errorf("states %v", states)
		}
	})
}

func TestP6KillDuringEveryStepOfALaunch(t *testing.T) {
	t.Parallel()
	block := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, setup := range map[string]func(*scripted){
		"prepare": func(s *scripted) {
			s.prepare = func(ctx context.Context, _ *Task, _ func(string)) error { return block(ctx) }
		},
		"create": func(s *scripted) { s.create = func(ctx context.Context, _ *Task) error { return block(ctx) } },
		"start":  func(s *scripted) { s.start = func(ctx context.Context, _ string) error { return block(ctx) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(r *rig) { setup(r.runtime) }, func(r *rig) {
				r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
				r.settle()
				r.agent.kill("a", 0)
				r.agent.kill("b", 0)
				began := time.Now()
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 0 { // the clock stands still while anything can be done
					t.Errorf("the end came %v after KILL, not at once", took)
				}
				for _, id := range []string{"a", "b"} {
					r.wantStates(id, "TASK_STARTING", "TASK_KILLING", "TASK_KILLED")
					if !r.runtime.has("remove " + id) {
						t.Errorf("%s was not removed", id)
					}
				}
			})
		})
	}
}

// A call of the runtime that ignores its context must not keep a task from ending.
func TestMuteEngineDoesNotKeepATaskFromEnding(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		release := make(chan struct{})
		r.runtime.create = func(context.Context, *Task) error { <-release; return errors.New("late") }
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.kill("a", 0)
		r.pass(limits[stateCancelling] + time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_KILLING", "TASK_KILLED")
		close(release)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestTaskThatCannotBeStoppedIsNotReportedKilled(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(context.Context, string, time.Duration) error { return errors.New("engine is mute") }
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.kill("a", 0)
		r.pass(limits[stateStopping] + 2*time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_FAILED")
		last := r.agent.last("a")
		if m := last.GetMessage(); !strings.Contains(m, "could not be stopped") {
			t.Errorf("message %q", m)
		}
		if err := r.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopAndRemoveAreTriedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		stops, removes := 0, 0
		r.runtime.stop = func(context.Context, string, time.Duration) error {
			if stops++; stops < 3 {
				return errors.New("engine is busy")
			}
			return nil
		}
		r.runtime.remove = func(context.Context, string) error {
			if removes++; removes < 3 {
				return errors.New("engine is busy")
			}
			return nil
		}
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.kill("a", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		if stops != 3 || removes != 3 {
			t.Errorf("%d stops and %d removes, want 3 of each", stops, removes)
		}
	})
}

func TestRuntimeThatCannotTellIsAskedAgainAndNotForEver(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		failures := 2
		r.runtime.wait = func(context.Context, string) error {
			if failures > 0 {
				failures--
				return errors.New("engine restarts")
			}
			return nil
		}
		r.agent.launch(taskInfo("a", 0))
		r.pass(time.Minute)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
		r.runtime.exit("a", Exit{Known: true})
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
	})
	inBubble(t, nil, func(r *rig) {
		r.runtime.wait = func(context.Context, string) error { return errors.New("engine is gone") }
		r.agent.launch(taskInfo("a", 0))
		r.pass(2 * time.Minute)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		if !r.runtime.has("stop a 1s") {
			t.Error("a task of which nobody knows whether it runs was not stopped")
		}
	})
}

func TestShutdownGivesTasksLessThanTheAgentGivesTheExecutor(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(_ context.Context, _ string, grace time.Duration) error { time.Sleep(grace); return nil }
		r.agent.launch(taskInfo("a", 0, withGrace(60)), taskInfo("b", 1, withGrace(2)))
		r.settle()
		began := time.Now()
		r.agent.shutdown()
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= r.cfg.ShutdownGrace {
			t.Errorf("shutdown took %s, the agent waits %s", took, r.cfg.ShutdownGrace)
		}
		for _, id := range []string{"a", "b"} {
			r.wantStates(id, "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		}
		if !r.runtime.has("stop a 3.5s") || !r.runtime.has("stop b 2s") {
			t.Errorf("calls %v, want 3.5s for a and its own 2s for b", r.runtime.called())
		}
	})
}

func TestSignalIsShutdownAndAMuteRuntimeDoesNotKeepTheExecutor(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(ctx context.Context, _ string, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		began := time.Now()
		r.cancel()
		if err := r.ended(); err == nil || !strings.Contains(err.Error(), "for the reaper") {
			t.Errorf("error %v, want one that says that something is left", err)
		}
		if took := time.Since(began); took >= r.cfg.ShutdownGrace {
			t.Errorf("shutdown took %s", took)
		}
	})
}

func TestKillOfATaskThatEndsAlreadyDoesNotGiveItMoreTime(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(ctx context.Context, _ string, grace time.Duration) error {
			select {
			case <-time.After(grace):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r.agent.launch(taskInfo("a", 0, withGrace(10)), taskInfo("b", 1, withGrace(10)))
		r.settle()
		r.runtime.exit("a", Exit{Known: true, Code: 1})
		r.pass(6 * time.Second)
		r.agent.kill("a", 0)
		r.agent.kill("b", time.Minute)
		r.pass(5 * time.Second)
		if r.running() {
			t.Error("a second KILL gave the tasks another grace period")
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
	})
}

func TestLaunchDuringShutdownIsKilled(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.stop = func(_ context.Context, _ string, grace time.Duration) error { time.Sleep(grace); return nil }
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.shutdown()
		r.agent.launch(taskInfo("b", 0))
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("b", "TASK_KILLED")
	})
}

func TestP6ErrorEventEndsAllWithAnError(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.send(&executor.Event{Type: executor.Event_ERROR, Error: &executor.Event_Error{Message: "no such luck"}})
		if err := r.ended(); err == nil || !strings.Contains(err.Error(), "no such luck") {
			t.Errorf("error %v", err)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
	})
}

func TestForeignMessagesAndUnknownEventsAreIgnored(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		r.agent.send(&executor.Event{Type: executor.Event_MESSAGE, Message: &executor.Event_Message{Data: []byte("hello")}})
		r.agent.send(&executor.Event{Type: executor.Event_HEARTBEAT})
		r.agent.send(&executor.Event{Type: executor.Event_UNKNOWN})
		r.pass(time.Second)
		if !r.running() {
			t.Error("the executor ended")
		}
	})
}
