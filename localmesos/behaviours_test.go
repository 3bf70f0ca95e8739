package localmesos

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
)

// TestBehaviours shows, one by one, what Apache Mesos does and a newcomer would
// not expect, through master, agent and the APIs as frameworks and executors use them.
func TestBehaviours(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *rig){
		"an executor is told that its update is taken before a scheduler has acknowledged anything": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			for _, state := range []string{"TASK_RUNNING", "TASK_FINISHED"} {
				x.acknowledged(x.update("t", state, ""))
			}
			// The second has not even been sent.
			if s := r.status("t"); s.GetState() != mesos.TASK_RUNNING {
				t.Errorf("%v", s)
			}
		},
		"updates come one at a time, and a stale acknowledgement is taken and means nothing": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			x.update("t", "TASK_STARTING", "")
			second := x.update("t", "TASK_RUNNING", "")
			first := r.status("t")
			wrong := first
			wrong.UUID = second
			r.acknowledge(wrong)
			r.call(&scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: &scheduler.Call_Reconcile{}})
			if s := r.status("t"); s.GetReason() != mesos.REASON_RECONCILIATION {
				t.Errorf("after a wrong acknowledgement came %v", s)
			}
			r.acknowledge(first)
			if s := r.status("t"); !bytes.Equal(s.UUID, second) {
				t.Errorf("after the right acknowledgement came %v", s)
			}
		},
		"the agent completes a status with the container and its own address, until an executor gives one": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			address := func(s mesos.TaskStatus) string {
				var out []string
				for _, n := range s.GetContainerStatus().NetworkInfos {
					for _, ip := range n.IPAddresses {
						out = append(out, fmt.Sprintf("%s %s", ip.GetProtocol(), ip.GetIPAddress()))
					}
				}
				return strings.Join(out, ", ")
			}
			for _, step := range []struct{ more, want string }{
				{"", "IPv4 127.0.0.1"},
				{`"container_status":{"network_infos":[{"ip_addresses":[{"ip_address":"10.1.2.3"}]}]}`, "IPv4 10.1.2.3"},
				{"", "IPv4 127.0.0.1"},
			} {
				x.update("t", "TASK_RUNNING", step.more)
				s := r.status("t")
				r.acknowledge(s)
				if address(s) != step.want || s.ContainerStatus.ContainerID == nil || s.AgentID == nil {
					t.Errorf("with %q: %v", step.more, s)
				}
			}
		},
		"what the agent says of a task whose executor is gone has no container_status": func(t *testing.T, r *rig) {
			o := r.offer()
			r.accept(o, r.task("t", "x", "exit 3", o))
			s := r.status("t")
			if s.ContainerStatus != nil || s.GetExecutorID().GetValue() != "x" || len(s.UUID) == 0 {
				t.Errorf("%v", s)
			}
		},
		"an update of an unknown task is passed on as it is, and the executor hears nothing of it": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			x.update("stranger", "TASK_RUNNING", "")
			if s := r.status("stranger"); s.ExecutorID != nil || s.ContainerStatus != nil || len(s.UUID) == 0 {
				t.Errorf("%v", s)
			}
			x.acknowledged(x.update("t", "TASK_RUNNING", "")) // and this is the first that is acknowledged
		},
		"a uuid that was there before is acknowledged again and not passed on again": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			uuid := x.update("t", "TASK_RUNNING", "")
			x.acknowledged(uuid)
			x.updateAgain("t", "TASK_RUNNING", "", uuid)
			x.acknowledged(uuid)
			last := x.update("t", "TASK_FINISHED", "")
			r.acknowledge(r.status("t"))
			if s := r.status("t"); !bytes.Equal(s.UUID, last) {
				t.Errorf("%v", s)
			}
		},
		"a status from reconciliation has no uuid, data or labels, but has health and container": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "t")
			x.update("t", "TASK_RUNNING", `"data":"AAE=","healthy":true,"labels":{"labels":[{"key":"k","value":"v"}]}`)
			if s := r.status("t"); string(s.Data) != "\x00\x01" || s.Labels == nil {
				t.Errorf("the update itself: %v", s)
			}
			r.call(&scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: &scheduler.Call_Reconcile{}})
			if s := r.status("t"); s.UUID != nil || s.Data != nil || s.Labels != nil || !s.GetHealthy() || s.ContainerStatus == nil || s.GetReason() != mesos.REASON_RECONCILIATION {
				t.Errorf("%v", s)
			}
		},
		"two tasks of one LAUNCH come as two events, without framework_info and with what the master adds": func(t *testing.T, r *rig) {
			o := r.offer()
			r.accept(o, r.task("a", "x", sleeper, o), r.task("b", "x", sleeper, o))
			x := &player{r: r, id: "x", events: make(chan played, 10)}
			x.subscribe()
			if e := x.next(executor.Event_SUBSCRIBED); e.Subscribed.ContainerID == nil {
				t.Errorf("no container_id: %s", e.text)
			}
			for _, id := range []string{"a", "b"} {
				e := x.next(executor.Event_LAUNCH)
				info := e.Launch.Task
				if info.TaskID.Value != id || strings.Contains(e.text, "framework_info") || info.Executor.GetFrameworkID().GetValue() != r.id ||
					info.Resources[0].GetAllocationInfo().GetRole() != "*" {
					t.Error(e.text)
				}
			}
		},
		"a KILL is passed on each time, with a policy only if the call has one, and to the one task of a group": func(t *testing.T, r *rig) {
			x := r.launchOn("x", "a", "b")
			for _, task := range []string{"a", "b"} {
				x.update(task, "TASK_RUNNING", "")
			}
			kill := func(policy *mesos.KillPolicy) {
				r.call(&scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: "a"}, KillPolicy: policy}})
			}
			kill(nil)
			kill(&mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: 5e9}})
			first, second := x.next(executor.Event_KILL).Kill, x.next(executor.Event_KILL).Kill
			if first.KillPolicy != nil || second.KillPolicy.GetGracePeriod().GetNanoseconds() != 5e9 || first.TaskID.Value != "a" || second.TaskID.Value != "a" {
				t.Errorf("%v %v", first, second)
			}
		},
		"a KILL of an unknown task is answered as a reconciliation": func(t *testing.T, r *rig) {
			r.call(&scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: "stranger"}}})
			if s := r.status("stranger"); s.GetState() != mesos.TASK_LOST || s.GetSource() != mesos.SOURCE_MASTER || s.GetReason() != mesos.REASON_RECONCILIATION || s.UUID != nil {
				t.Errorf("%v", s)
			}
		},
		"a task without cpus starts, and one without resources does not": func(t *testing.T, r *rig) {
			o := r.offer()
			none, nothing := r.task("none", "x", sleeper, o), r.task("nothing", "y", sleeper, o)
			none.Resources, none.Executor.Resources = amounts(0, 32), amounts(0.1, 32)
			nothing.Resources = nil
			r.accept(o, none, nothing)
			if s := r.status("nothing"); s.GetState() != mesos.TASK_ERROR || s.GetMessage() != "Task uses no resources" || s.UUID != nil {
				t.Errorf("%v", s)
			}
			x := &player{r: r, id: "x", events: make(chan played, 10)}
			x.subscribe()
			x.next(executor.Event_LAUNCH)
		},
		"a call that does not parse is 400 and leaves its offer good": func(t *testing.T, r *rig) {
			o := r.offer()
			body := fmt.Sprintf(`{"type":"ACCEPT","framework_id":{"value":%q},"accept":{"offer_ids":[{"value":%q}],"operations":[{"type":"LAUNCH_GROUP","launch_group":{"task_group":{}}}]}}`, r.id, o.ID.Value)
			req, err := http.NewRequest(http.MethodPost, r.c.MasterURL()+"/api/v1/scheduler", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", string(wire.JSON))
			req.Header.Set("Mesos-Stream-Id", r.stream)
			resp, err := oneShot.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "launch_group.executor") {
				t.Errorf("%s %s", resp.Status, text)
			}
			r.accept(o, r.task("t", "x", sleeper, o))
			x := &player{r: r, id: "x", events: make(chan played, 10)}
			x.subscribe()
			x.next(executor.Event_LAUNCH)
		},
		"REVIVE gives no second offer of what is held, and none for a role that the framework has not": func(t *testing.T, r *rig) {
			r.offer()
			for _, roles := range [][]string{nil, {"elsewhere"}} {
				r.call(&scheduler.Call{Type: scheduler.Call_REVIVE, Revive: &scheduler.Call_Revive{Roles: roles}})
			}
			r.call(&scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: "mark"}}})
			r.waitFor("the mark", func(e scheduler.Event) bool {
				if e.Type == scheduler.Event_OFFERS {
					t.Errorf("a second offer: %v", e.Offers)
				}
				return e.Type == scheduler.Event_UPDATE
			})
		},
		"ports come first in an offer": func(t *testing.T, r *rig) {
			o := r.offer()
			if o.Resources[0].Name != "ports" || o.GetURL().GetPath() != "/slave(1)" || o.AllocationInfo.GetRole() != "*" {
				t.Errorf("%v", o)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t))
		})
	}
}

// TestEveryExecutorThatEndsIsAFailure runs executors to their ends: FAILURE comes
// first, with the raw wait status, and then the end of the task, which is the same for all.
func TestEveryExecutorThatEndsIsAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		name, command string
		status        int32
	}{
		{"exit 0", "exit 0", 0},
		{"exit 3", "exit 3", 3 << 8},
		{"killed by a signal within its container", "sh -c 'kill -9 $$'; exit $?", 137 << 8},
		{"a program that is not there", "./no-such-program", 127 << 8},
	} {
		o := r.offer()
		id := strings.ReplaceAll(c.name, " ", "-")
		r.accept(o, r.task(id, id, c.command, o))
		e := r.waitFor("FAILURE or an update", func(e scheduler.Event) bool {
			return e.Type == scheduler.Event_FAILURE || e.Type == scheduler.Event_UPDATE
		})
		if e.Type != scheduler.Event_FAILURE || e.Failure.GetStatus() != c.status || e.Failure.GetExecutorID().GetValue() != id || e.Failure.AgentID == nil {
			t.Errorf("%s: %v", c.name, e)
		}
		s := r.status(id)
		r.acknowledge(s)
		if s.GetState() != mesos.TASK_FAILED || s.GetSource() != mesos.SOURCE_AGENT || s.GetReason() != mesos.REASON_EXECUTOR_TERMINATED || s.GetMessage() != "Executor terminated" {
			t.Errorf("%s: %v", c.name, s)
		}
	}
}

// TestEnvironmentOfAnExecutor looks at all that an executor is given.
func TestEnvironmentOfAnExecutor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.offer()
	own, value := r.task("t", "x", "pwd >where; env | sort >environment", o), "mine"
	own.Executor.Command.Environment = &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: "MESOS_OWN", Value: &value}}}
	r.accept(o, own)
	r.status("t") // it has ended
	agentDir := filepath.Join(r.c.Agent(0).WorkDir(), "slaves", o.AgentID.Value, "frameworks", r.id, "executors", "x", "runs")
	latest, err := os.Readlink(filepath.Join(agentDir, "latest"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(agentDir, "latest", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	if where := read("where"); where != latest {
		t.Errorf("it ran in %s, and latest is %s", where, latest)
	}
	lines := strings.Split(read("environment"), "\n")
	for _, want := range []string{
		"MESOS_SLAVE_ID=" + o.AgentID.Value, "MESOS_EXECUTOR_ID=x", "MESOS_FRAMEWORK_ID=" + r.id, "MESOS_CHECKPOINT=1", "MESOS_RECOVERY_TIMEOUT=15mins",
		"MESOS_SUBSCRIPTION_BACKOFF_MAX=2secs", "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD=2secs", "LIBPROCESS_PORT=0", "MESOS_SANDBOX=" + latest,
		"MESOS_DIRECTORY=" + latest, "MESOS_AGENT_ENDPOINT=" + strings.TrimPrefix(r.agentURL, "http://"), "MESOS_OWN=mine",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "MESOS_AGENT_ID=") || strings.HasPrefix(line, "HOME=") {
			t.Errorf("%s should not be there", line)
		}
	}
}
