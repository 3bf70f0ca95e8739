package executor

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
)

func TestDataThatIsNoSpecificationIsTaskError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ data, message string }{
		"unknown version": {`{"version":"tandem/v9","name":"x"}`, `version "tandem/v9" of the task specification is unknown`},
		"no version":      {`{"name":"x"}`, "has no version"},
		"malformed":       {`{"version": "tandem/v1", secret`, "malformed JSON at byte"},
		"wrong type":      {`{"version":"tandem/v1","env":"hush"}`, "field env"},
		"empty":           {"", "neither data with a task specification nor a command"},
		"no process":      {`{"version":"tandem/v1","name":"x","kind":"process"}`, "process: is missing"},
		"bad name":        {`{"version":"tandem/v1","name":"../x","kind":"process","process":{}}`, "name"},
		"bad network":     {`{"version":"tandem/v1","name":"x","kind":"container","container":{},"network":{"mode":"container:x"}}`, "network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(r *rig) {
				bad := taskInfo("bad", 0)
				bad.Data = []byte(c.data)
				r.agent.launch(taskInfo("good", 1), bad)
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				r.wantStates("bad", "TASK_ERROR")
				r.wantStates("good", "TASK_ERROR")
				last, sibling := r.agent.last("bad"), r.agent.last("good")
				if !strings.Contains(last.GetMessage(), c.message) || strings.Contains(last.GetMessage(), "hush") {
					t.Errorf("message %q, want %q in it and no values", last.GetMessage(), c.message)
				}
				if sibling.GetReason() != mesos.REASON_TASK_GROUP_INVALID || !strings.Contains(sibling.GetMessage(), "task group is invalid: task ") {
					t.Errorf("sibling: %s %q", sibling.GetReason(), sibling.GetMessage())
				}
				r.wantCalls()
			})
		})
	}
}

func TestFailureOfAnyStepEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	fail := func(id string) error {
		if id == "b" {
			return errors.New("no such image")
		}
		return nil
	}
	for name, setup := range map[string]func(*scripted){
		"prepare": func(s *scripted) {
			s.prepare = func(_ context.Context, x *Task, _ func(string)) error { return fail(x.ID) }
		},
		"create": func(s *scripted) { s.create = func(_ context.Context, x *Task) error { return fail(x.ID) } },
		"start":  func(s *scripted) { s.start = func(_ context.Context, id string) error { return fail(id) } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(r *rig) { setup(r.runtime) }, func(r *rig) {
				r.agent.launch(taskInfo("a", 0), taskInfo("b", 1), taskInfo("c", 2))
				if err := r.ended(); err != nil {
					t.Error(err)
				}
				last := r.agent.last("b")
				if last.GetState() != mesos.TASK_FAILED || last.GetReason() != mesos.REASON_CONTAINER_LAUNCH_FAILED || last.GetMessage() != "no such image" {
					t.Errorf("b: %s %s %q", last.GetState(), last.GetReason(), last.GetMessage())
				}
				for _, id := range []string{"a", "c"} {
					s := r.agent.last(id)
					if s.GetState() != mesos.TASK_KILLED || !strings.Contains(s.GetMessage(), "task-b") {
						t.Errorf("%s: %s %q", id, s.GetState(), s.GetMessage())
					}
				}
				for _, id := range []string{"a", "b", "c"} {
					if !r.runtime.has("remove " + id) {
						t.Errorf("%s was not removed", id)
					}
				}
				if r.runtime.has("start c") {
					t.Error("c was started after b had failed")
				}
			})
		})
	}
}

func TestFailedTaskEndsItsSiblings(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		r.runtime.exit("b", Exit{Known: true, Code: 1})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		last := r.agent.last("a")
		if !strings.Contains(last.GetMessage(), `"task-b"`) {
			t.Errorf("message %q does not name the culprit", last.GetMessage())
		}
	})
}

func TestEnvironmentOfATask(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.cfg.Token = "s3cret" }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, bridged, func(s *api.TaskSpec) {
			s.Ports = []api.TaskPort{{Name: "web-1", ContainerPort: 80, HostPort: 61234, Protocol: "tcp"}, {Name: "admin", ContainerPort: 81, Protocol: "tcp"}}
			s.Env = []api.TaskEnvVar{{Name: "USERS", Value: "own"}, {Name: "PORT1", Value: "override"}, {Name: "ZERO", Value: "a\x00b"}}
		}))
		r.settle()
		env := r.runtime.task("a").Env
		for _, want := range []string{
			"BCS_POD_ID=0.web.test.local.1700000000", "BCS_TASK_ID=a", "BCS_NODE_IP=127.0.0.1", "BCS_CONTAINER_IP=127.0.0.1",
			"MESOS_SANDBOX=" + r.cfg.Sandbox + "/tasks/task-a",
			"PORT0=61234", "PORT=61234", "PORTS=61234,81", "PORT_WEB_1=61234", "PORT_web-1=61234", "USERS=own", "PORT1=override",
		} {
			if !slices.Contains(env, want) {
				t.Errorf("environment lacks %s: %v", want, env)
			}
		}
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			if (strings.HasPrefix(name, "MESOS_") && name != "MESOS_SANDBOX") || strings.HasPrefix(name, "LIBPROCESS_") || strings.Contains(value, "s3cret") || name == "ZERO" {
				t.Errorf("environment holds %s", v)
			}
		}
	})
}

func TestLaunchTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0))
		r.agent.launch(taskInfo("a", 0))
		r.settle()
		if n := strings.Count(strings.Join(r.runtime.called(), ";"), "start a"); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

func TestTwoLaunchesAreTwoGroups(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		for _, id := range []string{"a", "b"} {
			r.agent.send(&executor.Event{Type: executor.Event_LAUNCH, Launch: &executor.Event_Launch{Task: taskInfo(id, 0)}})
		}
		r.settle()
		r.runtime.exit("a", Exit{Known: true, Code: 1})
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
	})
}

// What the runtime refuses for good is TASK_ERROR; the reason tells the author's
// mistake from the operator's policy.
func TestRefusalOfTheRuntimeIsTaskError(t *testing.T) {
	t.Parallel()
	for policy, reason := range map[bool]mesos.TaskStatus_Reason{false: mesos.REASON_TASK_INVALID, true: mesos.REASON_TASK_UNAUTHORIZED} {
		inBubble(t, func(r *rig) {
			r.runtime.prepare = func(_ context.Context, x *Task, _ func(string)) error {
				if x.ID == "a" {
					return &RefusedError{Err: errors.New("forbidden"), Policy: policy}
				}
				return nil
			}
		}, func(r *rig) {
			r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
			if err := r.ended(); err != nil {
				t.Error(err)
			}
			last := r.agent.last("a")
			if last.GetState() != mesos.TASK_ERROR || last.GetReason() != reason || last.GetMessage() != "forbidden" {
				t.Errorf("%s %s %q", last.GetState(), last.GetReason(), last.GetMessage())
			}
			if s := r.agent.last("b"); s.GetState() != mesos.TASK_KILLED {
				t.Errorf("b: %s", s.GetState())
			}
		})
	}
}

func TestRuntimeThatCannotBeMadeFailsTheTask(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.exec.runtimes.make[api.TaskContainer] = func() (Runtime, error) { return nil, errors.New("no engine at /var/run/docker.sock") }
		r.agent.launch(taskInfo("a", 0, bridged), taskInfo("b", 1))
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		last := r.agent.last("a")
		if last.GetState() != mesos.TASK_FAILED || !strings.Contains(last.GetMessage(), "no engine at") {
			t.Errorf("%s %q", last.GetState(), last.GetMessage())
		}
	})
}

// Real sockets cannot be in a bubble, so this asks the step itself.
func TestTakenPortIsNamedWithItsListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	spec := &api.TaskSpec{Kind: api.TaskProcess, NodeIP: "127.0.0.1", Network: api.TaskNetwork{Mode: "HOST"}, Ports: []api.TaskPort{{Name: "http", ContainerPort: port, HostPort: port, Protocol: "tcp"}}}
	bridge := &api.TaskSpec{Kind: api.TaskContainer, NodeIP: "127.0.0.1", Network: api.TaskNetwork{Mode: "BRIDGE"}}
	named := *spec
	named.NodeIP = "node-1.example.com"
	looks := 0
	for name, c := range map[string]struct {
		run       Task
		abandoned func() (bool, error)
	}{
		"process":        {Task{Spec: spec}, nil},
		"named node":     {Task{Spec: &named}, nil},
		"bridge":         {Task{Spec: bridge, Publish: spec.Ports}, nil},
		"nothing left":   {Task{Spec: spec}, func() (bool, error) { return false, nil }},
		"journal broken": {Task{Spec: spec}, func() (bool, error) { return true, errors.New("unreadable") }},
	} {
		e := New(Options{Abandoned: c.abandoned})
		began := time.Now()
		err := e.awaitPorts(t.Context(), &c.run)
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) || !strings.Contains(err.Error(), "listens on 127.0.0.1") {
			t.Errorf("%s: error %v, want one that names port %d and its listener", name, err, port)
		}
		if time.Since(began) > portsPatience/2 {
			t.Errorf("%s: took %s although there was nothing to wait for", name, time.Since(began))
		}
	}
	// What a dead executor left is waited for.
	e := New(Options{Abandoned: func() (bool, error) {
		if looks++; looks == 3 {
			l.Close()
		}
		return true, nil
	}})
	if err := e.awaitPorts(t.Context(), &Task{Spec: spec}); err != nil {
		t.Errorf("port that became free: %v", err)
	}
}

// A taskgroup does not start beside what a killed executor of the same instance left.
func TestWaitsForWhatIsLeftOfAnEarlierTaskgroupOfTheInstance(t *testing.T) {
	t.Parallel()
	const own, old = "0.web.test.local.2", "0.web.test.local.1"
	spec := &api.TaskSpec{Taskgroup: api.TaskgroupRef{ID: own}}
	for name, c := range map[string]struct {
		left []string
		gone time.Duration
		took time.Duration
		want string
	}{
		"nothing":                {nil, 0, 0, ""},
		"another cluster's name": {[]string{"0.web.test.local.x.1"}, time.Hour, 0, ""},
		"removed after a while":  {[]string{old}, 4 * time.Second, 4 * time.Second, ""},
		"never removed":          {[]string{old}, time.Hour, predecessorPatience, old},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				e := New(Options{Config: Config{ExecutorID: own}, Left: func(prefix string) ([]string, error) {
					if prefix != "0.web.test.local." {
						t.Errorf("asked for %q", prefix)
					}
					if time.Since(began) >= c.gone {
						return nil, nil
					}
					return slices.Clone(c.left), nil
				}})
				err := e.awaitPredecessors(t.Context(), spec)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if took := time.Since(began); took < c.took || took > c.took+100*time.Millisecond {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}
