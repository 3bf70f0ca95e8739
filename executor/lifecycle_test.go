package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

func lifecycle(l string) func(*api.TaskSpec) { return func(s *api.TaskSpec) { s.Lifecycle = l } }

var (
	initTask = lifecycle(api.LifecycleInit)
	sidecar  = lifecycle(api.LifecycleSidecar)
)

// starts are the calls of Start so far, and those of Stop.
func (r *rig) starts() string { return r.callsOf("start ") }

func (r *rig) callsOf(prefix string) string {
	var out []string
	for _, c := range r.runtime.called() {
		if rest, ok := strings.CutPrefix(c, prefix); ok {
			out = append(out, strings.Fields(rest)[0])
		}
	}
	return strings.Join(out, " ")
}

func TestInitTasksRunOneAfterAnotherBeforeTheRest(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		// In an order of their own, and as Mesos may hand them over.
		r.agent.launch(taskInfo("m", 0), taskInfo("s", 1, sidecar), taskInfo("i2", 3, initTask), taskInfo("i1", 2, initTask))
		r.settle()
		for _, want := range []string{"i1", "i1 i2"} {
			if got := r.starts(); got != want {
				t.Fatalf("started %q, want %q", got, want)
			}
			r.pass(time.Hour / 2)
			for _, id := range []string{"m", "s", "i1", "i2"} {
				if slices.Contains(r.agent.states(id), "TASK_RUNNING") {
					t.Errorf("%s is RUNNING before the init tasks have ended", id)
				}
			}
			now := want[len(want)-2:]
			if got := r.agent.last("m"); got.GetMessage() != `waiting for init task "task-`+now+`"` {
				t.Errorf("the main task says %q while %s runs", got.GetMessage(), now)
			}
			r.runtime.exit(now, Exit{Known: true})
			r.settle()
		}
		if got := r.starts(); got != "i1 i2 s m" {
			t.Errorf("started %q, want the sidecar before the main task", got)
		}
		r.wantStates("i1", "TASK_STARTING", "TASK_FINISHED")
		r.wantStates("m", "TASK_STARTING", "TASK_RUNNING")
		r.wantStates("s", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestInitTaskThatDoesNotSucceedEndsTheTaskgroup(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig){
		"TASK_FAILED": func(r *rig) { r.runtime.exit("i", Exit{Known: true, Code: 1}) },
		"TASK_KILLED": func(r *rig) { r.agent.kill("i", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(r *rig) {
				r.agent.launch(taskInfo("i", 0, initTask), taskInfo("m", 1))
				r.settle()
				end(r)
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				last, m := r.agent.last("i"), r.agent.last("m")
				if last.GetState().String() != name || m.GetState() != mesos.TASK_KILLED || !strings.Contains(m.GetMessage(), `"task-i"`) {
					t.Errorf("%s, %s %q", last.GetState(), m.GetState(), m.GetMessage())
				}
				if r.starts() != "i" {
					t.Errorf("started %q", r.starts())
				}
			})
		})
	}
}

func TestTaskgroupEndsWithItsMainTasks(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("s", 0, sidecar, withGrace(9)), taskInfo("a", 1), taskInfo("b", 2))
		r.settle()
		r.runtime.exit("a", Exit{Known: true})
		r.pass(time.Minute)
		if got := r.callsOf("stop "); got != "a" {
			t.Errorf("stopped %q while a main task runs", got)
		}
		r.runtime.exit("b", Exit{Known: true})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("s", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
		last := r.agent.last("s")
		if !strings.Contains(last.GetMessage(), "main tasks") || !r.runtime.has("stop s 9s") {
			t.Errorf("%q, calls %v", last.GetMessage(), r.runtime.called())
		}
	})
}

func TestSidecarThatFailsEndsTheTaskgroupAndOneThatFinishesDoesNot(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("s", 0, sidecar), taskInfo("x", 1, sidecar), taskInfo("m", 2))
		r.settle()
		r.runtime.exit("s", Exit{Known: true})
		r.pass(time.Minute)
		r.wantStates("m", "TASK_STARTING", "TASK_RUNNING")
		r.runtime.exit("x", Exit{Known: true, Code: 2})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("x", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		r.wantStates("m", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
	})
}

// stopsAfter makes a task take a while to end.
func stopsAfter(r *rig, id string, d time.Duration) {
	r.runtime.stop = func(ctx context.Context, task string, grace time.Duration) error {
		if task != id {
			return nil
		}
		select {
		case <-time.After(min(d, grace)):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// TestSidecarsStopAfterTheMainTasksBeforeOneDeadline: the sidecar gets what is left, and its
// share of the time if the main tasks leave nothing.
func TestSidecarsStopAfterTheMainTasksBeforeOneDeadline(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig){
		"KILL": func(r *rig) { r.agent.kill("m", 0); r.agent.kill("s", 0) },
		"fail": func(r *rig) { r.runtime.exit("f", Exit{Known: true, Code: 1}) },
	} {
		for _, c := range []struct {
			takes time.Duration
			want  string
		}{{4 * time.Second, "stop s 6s"}, {time.Hour, "stop s 2s"}} {
			t.Run(name+" "+c.want, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(r *rig) { stopsAfter(r, "m", c.takes) }, func(r *rig) {
					r.agent.launch(taskInfo("m", 2, withGrace(10)), taskInfo("f", 1, withGrace(10)), taskInfo("s", 0, sidecar, withGrace(10)))
					r.settle()
					if name == "KILL" {
						r.agent.kill("f", 0)
						r.settle()
					}
					began := time.Now()
					end(r)
					r.settle()
					if got := r.callsOf("stop "); strings.Contains(got, "s") || !strings.Contains(got, "m") {
						t.Errorf("calls %v, the sidecar is to wait", r.runtime.called())
					}
					if states := r.agent.states("s"); states[len(states)-1] != "TASK_KILLING" {
						t.Errorf("s is told as %v, though it will be killed", states)
					}
					if err := r.ended(); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 10*time.Second+100*time.Millisecond {
						t.Errorf("took %s, more than one grace period", took)
					}
					if !r.runtime.has(c.want) {
						t.Errorf("calls %v, want %s", r.runtime.called(), c.want)
					}
					r.wantStates("s", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
				})
			})
		}
	}
}

func TestSidecarKilledAloneEndsAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("m", 0), taskInfo("s", 1, sidecar))
		r.settle()
		r.agent.kill("s", 0)
		r.settle()
		r.wantStates("s", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		r.wantStates("m", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestShutdownKeepsTheOrderWithinTheAgentsGrace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { stopsAfter(r, "m", time.Hour) }, func(r *rig) {
		r.agent.launch(taskInfo("s", 0, sidecar, withGrace(60)), taskInfo("m", 1, withGrace(60)))
		r.settle()
		began := time.Now()
		r.agent.shutdown()
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= r.cfg.ShutdownGrace {
			t.Errorf("took %s of the agent's %s", took, r.cfg.ShutdownGrace)
		}
		if got := r.callsOf("stop "); got != "m s" {
			t.Errorf("stopped %q", got)
		}
		r.wantStates("s", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
	})
}

// TestRunningOnlyWhenTheWholeTaskgroupHasStarted: not one of its tasks before.
func TestRunningOnlyWhenTheWholeTaskgroupHasStarted(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.start = func(ctx context.Context, id string) error {
			if id == "b" {
				select {
				case <-time.After(20 * time.Second):
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.pass(10 * time.Second)
		r.wantStates("a", "TASK_STARTING")
		r.pass(20 * time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
	})
	// One that is killed meanwhile is not waited for.
	inBubble(t, nil, func(r *rig) {
		r.runtime.start = func(ctx context.Context, id string) error {
			if id == "b" {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		r.agent.kill("b", 0)
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestDrainDelayComesBeforeTheStopSignal(t *testing.T) {
	t.Parallel()
	drains := func(s *api.TaskSpec) { s.KillPolicy = api.TaskKillPolicy{GracePeriodSeconds: 5, DrainSeconds: 20} }
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, drains), taskInfo("b", 1, drains))
		r.settle()
		r.agent.kill("a", 5*time.Second)
		r.pass(19 * time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
		if got := r.callsOf("stop "); got != "" {
			t.Errorf("stopped %q within the drain delay", got)
		}
		r.pass(2 * time.Second)
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		if !r.runtime.has("stop a 5s") {
			t.Errorf("calls %v", r.runtime.called())
		}
		// A second KILL that leaves less time is in a hurry, and so is the agent.
		r.agent.kill("b", 0)
		r.pass(time.Second)
		r.agent.kill("b", time.Second)
		r.settle()
		if !r.runtime.has("stop b 1s") {
			t.Errorf("calls %v", r.runtime.called())
		}
	})
	// What ends by itself, or because another failed, is not drained; SHUTDOWN has no time for it.
	for name, end := range map[string]func(*rig){
		"exit": func(r *rig) { r.runtime.exit("b", Exit{Known: true, Code: 1}) }, "shutdown": func(r *rig) { r.agent.shutdown() },
	} {
		inBubble(t, nil, func(r *rig) {
			r.agent.launch(taskInfo("a", 0, drains), taskInfo("b", 1, drains))
			r.settle()
			end(r)
			r.settle()
			if !strings.Contains(r.callsOf("stop "), "a") {
				t.Errorf("%s: calls %v", name, r.runtime.called())
			}
		})
	}
}

func TestTaskgroupWithoutAMainTaskIsRefused(t *testing.T) {
	t.Parallel()
	for name, specs := range map[string][]mesos.TaskInfo{
		"no task of the taskgroup is a main task": {taskInfo("a", 0, sidecar), taskInfo("b", 1, initTask)},
		"lifecycle": {taskInfo("a", 0, lifecycle("boot")), taskInfo("b", 1)},
	} {
		inBubble(t, nil, func(r *rig) {
			r.agent.launch(specs...)
			if err := r.ended(); err != nil {
				t.Error(err)
			}
			r.wantStates("a", "TASK_ERROR")
			r.wantStates("b", "TASK_ERROR")
			last := r.agent.last("a")
			if !strings.Contains(last.GetMessage(), name) {
				t.Errorf("message %q", last.GetMessage())
			}
		})
	}
}

func TestEveryTaskSeesThePortsOfAll(t *testing.T) {
	t.Parallel()
	port := func(name string, n int) func(*api.TaskSpec) {
		return func(s *api.TaskSpec) {
			s.Ports = append(s.Ports, api.TaskPort{Name: name, ContainerPort: n, HostPort: n, Protocol: "tcp"})
		}
	}
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, port("web", 61001), func(s *api.TaskSpec) { s.Process.StartCmd = "x ${ports.db} ${ports.web}" }),
			taskInfo("b", 1, port("db", 61002), port("web", 61003)))
		r.settle()
		env := r.runtime.task("a").Env
		for _, want := range []string{"PORT_DB=61002", "PORT_db=61002", "PORT_WEB=61001", "PORTS=61001"} {
			if !slices.Contains(env, want) {
				t.Errorf("%s is not in %v", want, env)
			}
		}
		if got := r.runtime.task("a").Spec.Process.StartCmd; got != "x 61002 61001" {
			t.Errorf("start command %q", got)
		}
	})
}

// TestSidecarsShareOfTheGrace: a quarter, at most two seconds, and only where a sidecar is
// there to have it.
func TestSidecarsShareOfTheGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		grace   int64
		sidecar bool
		want    string
	}{{10, true, "stop m 8s"}, {4, true, "stop m 3s"}, {60, true, "stop m 58s"}, {0, true, "stop m 750ms"}, {10, false, "stop m 10s"}} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(r *rig) {
				s := taskInfo("s", 0, withGrace(c.grace), lifecycle(api.LifecycleSidecar))
				r.agent.launch(s, taskInfo("m", 1, withGrace(c.grace)))
				r.settle()
				if !c.sidecar {
					r.runtime.exit("s", Exit{Known: true})
					r.settle()
				}
				r.agent.kill("m", 0)
				r.settle()
				if !r.runtime.has(c.want) {
					t.Errorf("calls %v, want %s", r.runtime.called(), c.want)
				}
			})
		})
	}
}

// TestInitTasksHaveOneLimitTogether: the one that runs when it is over fails, and says why.
func TestInitTasksHaveOneLimitTogether(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("i1", 0, initTask), taskInfo("i2", 1, initTask), taskInfo("m", 2))
		r.settle()
		r.pass(initLimit - time.Minute)
		r.runtime.exit("i1", Exit{Known: true})
		r.settle()
		if got := r.starts(); got != "i1 i2" {
			t.Fatalf("started %q", got)
		}
		r.pass(time.Minute - time.Second)
		if r.runtime.has("stop i2 1s") {
			t.Error("stopped before its time")
		}
		r.pass(time.Second)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		i, m := r.agent.last("i2"), r.agent.last("m")
		if i.GetState() != mesos.TASK_FAILED || !strings.Contains(i.GetMessage(), "within the 2h0m0s that the init tasks of a taskgroup have together") {
			t.Errorf("%s %q", i.GetState(), i.GetMessage())
		}
		if m.GetState() != mesos.TASK_KILLED || !strings.Contains(m.GetMessage(), `"task-i2"`) {
			t.Errorf("%s %q", m.GetState(), m.GetMessage())
		}
	})
}

// TestKillInTheMidstOfALongInit: whoever is killed, it is done within the grace.
func TestKillInTheMidstOfALongInit(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(*rig){
		"init":     func(r *rig) { r.agent.kill("i", 0) },
		"main":     func(r *rig) { r.agent.kill("m", 0) },
		"all":      func(r *rig) { r.agent.kill("m", 0); r.agent.kill("s", 0); r.agent.kill("i", 0) },
		"shutdown": func(r *rig) { r.agent.shutdown() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(r *rig) { stopsAfter(r, "i", time.Hour) }, func(r *rig) {
				r.agent.launch(taskInfo("i", 0, initTask, withGrace(3)), taskInfo("s", 1, sidecar), taskInfo("m", 2))
				r.settle()
				r.pass(time.Hour)
				began := time.Now()
				kill(r)
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("took %s", took)
				}
				for _, id := range []string{"i", "s", "m"} {
					if s := r.agent.last(id); s.GetState() != mesos.TASK_KILLED {
						t.Errorf("%s ended as %s %q", id, s.GetState(), s.GetMessage())
					}
				}
				if r.starts() != "i" {
					t.Errorf("started %q", r.starts())
				}
			})
		})
	}
}

// TestRemoveIsTriedUntilItsLimit: a runtime that is away for most of the time that a
// removal has is asked again before it is over.
func TestRemoveIsTriedUntilItsLimit(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		var back time.Time
		r.runtime.remove = func(context.Context, string) error {
			if time.Now().Before(back) {
				return errors.New("nobody answers")
			}
			return nil
		}
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		back = time.Now().Add(25 * time.Second)
		r.agent.kill("a", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if took := time.Since(back); took < 0 || strings.Contains(r.log.String(), "something is left") {
			t.Errorf("ended %s after it was back", took)
		}
	})
}
