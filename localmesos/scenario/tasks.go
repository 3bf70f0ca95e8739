package scenario

import (
	"context"
	"fmt"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/taskstate"
)

// The methods of a framework that steps use return what is still in the way, in
// words, and nothing when it is done.

func (f *framework) connectedCheck(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream == "" {
		return "the framework is not subscribed: " + f.last, nil
	}
	return "", nil
}

// startVariable marks the processes of a task.
const startVariable = "LOCALMESOS_SCENARIO_TASK"

// launch accepts an offer for a task, if there is one with room on the host.
func (f *framework) launch(ctx context.Context, name, host string, s *launchStep) (string, error) {
	f.mu.Lock()
	var offer *mesos.Offer
	for _, o := range f.offers {
		if (host == "" || o.Hostname == host) && scalarOf(o, "cpus") >= s.cpus && scalarOf(o, "mem") >= s.mem {
			offer = &o
			break
		}
	}
	if offer == nil {
		n := len(f.offers)
		f.mu.Unlock()
		return fmt.Sprintf("there is no offer with room for task %s; the framework holds %d", name, n), nil
	}
	delete(f.offers, offer.ID.Value)
	f.tasks[name] = &task{agent: offer.AgentID}
	f.mu.Unlock()

	mark := f.r.mark(name)
	command := "echo started >>" + quote(f.r.startsFile(name)) + "; " + s.command
	info := mesos.TaskInfo{Name: name, TaskID: mesos.TaskID{Value: name}, AgentID: offer.AgentID,
		Resources: []mesos.Resource{scalar("cpus", s.cpus), scalar("mem", s.mem)},
		Command:   &mesos.CommandInfo{Value: &command, Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: startVariable, Value: &mark}}}}}
	none := 0.0
	err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{
		OfferIDs: []mesos.OfferID{offer.ID}, Filters: &mesos.Filters{RefuseSeconds: &none},
		Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: []mesos.TaskInfo{info}}}}}})
	if err != nil {
		return fmt.Sprintf("task %s cannot be launched: %v", name, err), nil
	}
	return "", nil
}

// quote is a text for the shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func scalar(name string, v float64) mesos.Resource {
	kind := mesos.SCALAR
	return mesos.Resource{Name: name, Type: &kind, Scalar: &mesos.Value_Scalar{Value: v}}
}

func scalarOf(o mesos.Offer, name string) (sum float64) {
	for _, r := range o.Resources {
		if r.Name == name {
			sum += r.GetScalar().GetValue()
		}
	}
	return sum
}

func (f *framework) kill(ctx context.Context, name string) string {
	err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: name}}})
	if err != nil {
		return fmt.Sprintf("task %s cannot be killed: %v", name, err)
	}
	return ""
}

// reconcile asks for the state of all tasks that are not at their end.
func (f *framework) reconcile(ctx context.Context) string {
	call := &scheduler.Call_Reconcile{}
	f.mu.Lock()
	for name, t := range f.tasks {
		if !taskstate.Terminal(t.state()) {
			x := scheduler.Call_Reconcile_Task{TaskID: mesos.TaskID{Value: name}}
			if t.agent.Value != "" {
				x.AgentID = &mesos.AgentID{Value: t.agent.Value}
			}
			call.Tasks = append(call.Tasks, x)
		}
	}
	f.mu.Unlock()
	if len(call.Tasks) == 0 {
		return ""
	}
	if err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: call}); err != nil {
		return "the state of the tasks cannot be asked for: " + err.Error()
	}
	return ""
}

// state is the last that the framework was told, TASK_STAGING before.
func (t *task) state() mesos.TaskState {
	if n := len(t.updates); n > 0 {
		return t.updates[n-1].GetState()
	}
	return mesos.TASK_STAGING
}

// history is the states of the updates that were to be acknowledged, each update once.
func (t *task) history() (out []string) {
	seen := map[string]bool{}
	for _, u := range t.updates {
		if id := string(u.UUID); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, u.GetState().String())
		}
	}
	return out
}
