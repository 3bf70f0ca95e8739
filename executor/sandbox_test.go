package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

func publishes(p int) func(*api.TaskSpec) {
	return func(s *api.TaskSpec) {
		s.Ports = []api.TaskPort{{ContainerPort: p, HostPort: p + 60000, Protocol: "tcp"}}
	}
}

// TestOneContainerPaysForNoSandbox: nor do processes and containers in the host's network beside it.
func TestOneContainerPaysForNoSandbox(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"HOST", "BRIDGE", "NONE", "CUSTOM"} {
		inBubble(t, func(r *rig) { r.runtime.ips = []string{"172.17.0.9"} }, func(r *rig) {
			r.agent.launch(taskInfo("a", 0, bridged, publishes(80), func(s *api.TaskSpec) {
				s.Network = api.TaskNetwork{Mode: mode}
				if mode == "CUSTOM" {
					s.Network.Name = "n"
				}
			}), taskInfo("p", 1))
			r.settle()
			a := r.runtime.task("a")
			if r.callsOf("sandbox ") != "" || a.JoinTask != "" || (len(a.Publish) == 1) != (mode != "HOST") {
				t.Errorf("%s: calls %v, joins %q, publishes %v", mode, r.runtime.called(), a.JoinTask, a.Publish)
			}
		})
	}
}

// TestASandboxHoldsTheNetworkOfSeveral: it is made once, before them, publishes
// the ports of all, and goes with the last; who ends first does not matter.
func TestASandboxHoldsTheNetworkOfSeveral(t *testing.T) {
	t.Parallel()
	fixed := func(s *api.TaskSpec) {
		s.Container.Hostname, s.Container.Parameters = "pod", []api.TaskParameter{{Key: "ip", Value: "10.1.0.5"}, {Key: "ulimit", Value: "nofile=9"}}
	}
	inBubble(t, func(r *rig) { r.runtime.ips = []string{"172.17.0.9"} }, func(r *rig) {
		r.agent.launch(taskInfo("p", 0), taskInfo("a", 1, bridged, publishes(80), fixed), taskInfo("b", 2, bridged, publishes(81)),
			taskInfo("q", 3, func(s *api.TaskSpec) { s.Network.Mode = "BRIDGE" }))
		r.settle()
		if got := r.callsOf("sandbox "); got != "a.net" {
			t.Fatalf("sandboxes %q", got)
		}
		calls := r.runtime.called()
		if slices.Index(calls, "sandbox a.net") > slices.Index(calls, "create a") {
			t.Errorf("calls %v", calls)
		}
		box := r.runtime.task("a.net")
		if len(box.Publish) != 2 || box.Publish[1].ContainerPort != 81 || box.Spec.Container.Hostname != "pod" || len(box.Spec.Container.Parameters) != 1 {
			t.Errorf("sandbox %+v %+v", box.Publish, box.Spec.Container)
		}
		for _, id := range []string{"a", "b", "q"} {
			x := r.runtime.task(id)
			if x.JoinTask != "a.net" || len(x.Publish) != 0 || x.Netns == nil || x.Netns.NetnsID != 7 || !slices.Contains(x.Env, "BCS_CONTAINER_IP=172.17.0.9") {
				t.Errorf("%s joins %q %v, publishes %v, %v", id, x.JoinTask, x.Netns, x.Publish, x.Env)
			}
			if rep := r.report(r.agent.last(id)); len(rep.IPs) != 1 || rep.IPs[0] != "172.17.0.9" {
				t.Errorf("%s is reported at %v", id, rep.IPs)
			}
		}
		if a := r.runtime.task("a"); len(a.Spec.Container.Parameters) != 1 || a.Spec.Container.Parameters[0].Key != "ulimit" {
			t.Errorf("a has %v, the address is the sandbox's", a.Spec.Container.Parameters)
		}
		if p := r.runtime.task("p"); p.JoinTask != "" || p.Netns != nil {
			t.Error("the process of the host's network joined")
		}
		r.runtime.exit("a", Exit{Known: true})
		r.agent.kill("q", 0)
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
		if r.runtime.has("remove a.net") {
			t.Error("the sandbox is removed while b is in it")
		}
		r.agent.kill("b", 0)
		r.settle()
		calls = r.runtime.called()
		if slices.Index(calls, "remove a.net") < slices.Index(calls, "remove b") {
			t.Errorf("calls %v", calls)
		}
	})
}

func TestE7SandboxThatCannotBeMadeIsRemoved(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.sandbox = func(context.Context, *Task) error { return errors.New("no network") }
		r.agent.launch(taskInfo("a", 0, bridged), taskInfo("b", 1, bridged))
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		last := r.agent.last("a")
		if last.GetState() != mesos.TASK_FAILED || last.GetMessage() != "no network" || !r.runtime.has("remove a.net") {
			t.Errorf("%s %q, calls %v", last.GetState(), last.GetMessage(), r.runtime.called())
		}
		r.wantStates("b", "TASK_STARTING", "TASK_KILLING", "TASK_KILLED")
	})
}

func TestKillWhileTheSandboxIsMadeLeavesNone(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.sandbox = func(ctx context.Context, _ *Task) error { <-ctx.Done(); return ctx.Err() }
		r.agent.launch(taskInfo("a", 0, bridged), taskInfo("b", 1, bridged))
		r.settle()
		r.agent.kill("a", 0)
		r.agent.kill("b", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		// Both are removed side by side, and the step of the one that came to it last takes the sandbox along: by then
		// both are stopped, and its own task is removed. The other's removal may be under way.
		calls := r.runtime.called()
		gone := len(calls) - 1
		for gone > 0 && calls[gone] != "remove a.net" {
			gone-- // it may have been made anew for b
		}
		if gone < 1 || calls[gone-1] != "remove a" && calls[gone-1] != "remove b" || slices.Contains(calls[gone+1:], "sandbox a.net") ||
			slices.ContainsFunc(calls[gone+1:], func(c string) bool { return strings.HasPrefix(c, "stop ") }) {
			t.Errorf("calls %v, the sandbox goes when none needs it any more", calls)
		}
	})
}

// Of a sandbox that was being made for a task that is killed, something may be there: the next
// task has that removed before it makes it anew.
func TestKillWhileTheSandboxIsMadeSparesTheNextTask(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		half := false
		r.runtime.sandbox = func(ctx context.Context, _ *Task) error {
			if half {
				return nil
			}
			half = true
			<-ctx.Done()
			return ctx.Err()
		}
		r.agent.launch(taskInfo("a", 0, bridged), taskInfo("b", 1, bridged))
		r.settle()
		r.agent.kill("a", 0)
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_KILLING", "TASK_KILLED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
		calls := r.runtime.called()
		made := slices.Index(calls, "sandbox a.net")
		removed := made + 1 + slices.Index(calls[made+1:], "remove a.net")
		if made < 0 || removed == made || !slices.Contains(calls[removed:], "sandbox a.net") {
			t.Errorf("calls %v, the half-made sandbox is removed and made anew", calls)
		}
		r.agent.kill("b", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestEndOfTheSandboxEndsThoseWhoAreInIt(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, bridged), taskInfo("b", 1, bridged))
		r.settle()
		r.runtime.mu.Lock()
		close(r.runtime.boxes["a.net"])
		r.runtime.mu.Unlock()
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		last := r.agent.last("a")
		if last.GetState() != mesos.TASK_FAILED || !strings.Contains(last.GetMessage(), "holds the network") {
			t.Errorf("%s %q", last.GetState(), last.GetMessage())
		}
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
	})
}
