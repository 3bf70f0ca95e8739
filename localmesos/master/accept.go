package master

import (
	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/resource"
	"tandem/localmesos/link"
)

// acceptance is what the operations of one ACCEPT have to work with.
type acceptance struct {
	framework *framework
	agent     *agent
	role      string
	// left is what of the offers is not used yet, without allocation info.
	left resource.List
}

// accept handles ACCEPT. Offers that are no good lose the tasks; what the
// operations leave is refused with the filters of the call.
func (m *Master) accept(f *framework, c *scheduler.Call_Accept) {
	offers, err := m.acceptedOffers(f, c.OfferIDs)
	if err != nil {
		for _, o := range offers {
			m.forgetOffer(o)
			m.release(f, o.agent, o.role, o.resources)
		}
		m.loseOperations(f, c.Operations, err.Error())
		return
	}
	acc := acceptance{framework: f, agent: offers[0].agent, role: offers[0].role}
	for _, o := range offers {
		m.forgetOffer(o)
		acc.left = acc.left.Add(o.resources...)
	}
	// newTask and addExecutor take from what is free.
	m.release(f, acc.agent, acc.role, acc.left)
	for _, op := range c.Operations {
		if err := validateOperation(op); err != nil {
			m.refuseInvalid(f, op, err)
			continue
		}
		switch op.Type {
		case mesos.Offer_Operation_LAUNCH:
			if op.ID != nil {
				m.refuseTasks(f, op, "The `id` field cannot be set on LAUNCH operations")
			} else {
				for _, t := range op.Launch.TaskInfos {
					m.launch(&acc, t)
				}
			}
		case mesos.Offer_Operation_LAUNCH_GROUP:
			if op.ID != nil {
				m.refuseTasks(f, op, "The `id` field cannot be set on LAUNCH_GROUP operations")
			} else {
				m.launchGroup(&acc, op.LaunchGroup)
			}
		case mesos.Offer_Operation_UNKNOWN:
		default:
			m.refuseOperation(f, op, unsupported(acc.agent, op))
		}
	}
	m.take(f, acc.agent, acc.role, acc.left)
	m.refuse(f, acc.agent, acc.role, acc.left, c.Filters)
}

// acceptedOffers finds the offers of a call. With an error it returns those that exist.
func (m *Master) acceptedOffers(f *framework, ids []mesos.OfferID) ([]*offer, error) {
	var out []*offer
	var bad error
	if len(ids) == 0 {
		bad = mesosError("No offers specified")
	}
	seen := map[string]bool{}
	for _, id := range ids {
		o := f.offers[id.Value]
		switch {
		case o == nil:
			bad = firstError(bad, "Offer "+id.Value+" is no longer valid")
			continue
		case seen[id.Value]:
			bad = firstError(bad, "Duplicate offer "+id.Value+" in offer list")
			continue
		case len(out) > 0 && out[0].agent != o.agent:
			bad = firstError(bad, "Aggregated offers must belong to one single agent. Offer "+id.Value+" uses agent "+o.agent.id+" and agent "+out[0].agent.id)
		case len(out) > 0 && out[0].role != o.role:
			bad = firstError(bad, "Aggregated offers must be allocated to the same role. Offer "+id.Value+" uses role '"+o.role+"' but another is using role '"+out[0].role+"'")
		}
		seen[id.Value] = true
		out = append(out, o)
	}
	return out, bad
}

func firstError(err error, text string) error {
	if err != nil {
		return err
	}
	return mesosError(text)
}

// loseOperations answers for tasks and other operations whose offers are no good.
func (m *Master) loseOperations(f *framework, operations []mesos.Offer_Operation, why string) {
	state := mesos.TASK_LOST
	if f.has(mesos.FrameworkInfo_Capability_PARTITION_AWARE) {
		state = mesos.TASK_DROPPED
	}
	for _, op := range operations {
		switch op.Type {
		case mesos.Offer_Operation_UNKNOWN:
		case mesos.Offer_Operation_LAUNCH, mesos.Offer_Operation_LAUNCH_GROUP:
			for _, t := range tasksOf(op) {
				m.tellTask(f, t, state, mesos.REASON_INVALID_OFFERS, "Task launched with invalid offers: "+why)
			}
		default:
			m.refuseOperation(f, op, "Operation attempted with invalid offers: "+why)
		}
	}
}

// refuseInvalid answers for an operation that is wrong as a whole.
func (m *Master) refuseInvalid(f *framework, op mesos.Offer_Operation, err error) {
	switch op.Type {
	case mesos.Offer_Operation_LAUNCH, mesos.Offer_Operation_LAUNCH_GROUP:
		m.refuseTasks(f, op, err.Error())
	default:
		m.refuseOperation(f, op, "Operation attempted with invalid resources: "+err.Error())
	}
}

// refuseTasks answers for all tasks of a launch.
func (m *Master) refuseTasks(f *framework, op mesos.Offer_Operation, why string) {
	reason := mesos.REASON_TASK_INVALID
	if op.Type == mesos.Offer_Operation_LAUNCH_GROUP {
		reason = mesos.REASON_TASK_GROUP_INVALID
	}
	for _, t := range tasksOf(op) {
		m.tellTask(f, t, mesos.TASK_ERROR, reason, why)
	}
}

func tasksOf(op mesos.Offer_Operation) []mesos.TaskInfo {
	switch op.Type {
	case mesos.Offer_Operation_LAUNCH:
		return op.GetLaunch().GetTaskInfos()
	case mesos.Offer_Operation_LAUNCH_GROUP:
		if op.LaunchGroup != nil {
			return op.LaunchGroup.TaskGroup.Tasks
		}
	default:
	}
	return nil
}

// tellTask sends the master's verdict on a task that was not launched.
func (m *Master) tellTask(f *framework, t mesos.TaskInfo, state mesos.TaskState, reason mesos.TaskStatus_Reason, message string) {
	s := sourceMaster(t.TaskID.Value, state, reason, message)
	agentID := t.AgentID
	s.AgentID = &agentID
	m.tell(f, s)
}

// launch validates a task and gives it to the agent.
func (m *Master) launch(acc *acceptance, t mesos.TaskInfo) {
	acc.complete(&t)
	if err := m.validateTask(acc, t); err != nil {
		m.tellTask(acc.framework, t, mesos.TASK_ERROR, mesos.REASON_TASK_INVALID, err.Error())
		return
	}
	run := link.Run{Framework: acc.framework.info}
	executorID := ""
	if t.Executor != nil {
		executorID = t.Executor.ExecutorID.Value
		run.Executor = *t.Executor
		m.useExecutor(acc, *t.Executor)
	} else {
		run.Executor, run.Generated = commandExecutor(acc.framework.id, t), true
	}
	x := m.newTask(acc.framework, acc.agent, t, executorID)
	acc.left = acc.left.Sub(x.resources...)
	m.publishTaskAdded(x)
	run.Tasks = []mesos.TaskInfo{t}
	acc.agent.send(link.Event{Type: link.EventRun, Run: &run})
}

// launchGroup validates a group and gives it to the agent; one bad task spoils all.
func (m *Master) launchGroup(acc *acceptance, g *mesos.Offer_Operation_LaunchGroup) {
	x := g.Executor
	acc.allocate(x.Resources)
	tasks := append([]mesos.TaskInfo(nil), g.TaskGroup.Tasks...)
	for i := range tasks {
		acc.complete(&tasks[i])
	}
	if err := m.validateGroup(acc, x, tasks); err != nil {
		for _, t := range tasks {
			m.tellTask(acc.framework, t, mesos.TASK_ERROR, mesos.REASON_TASK_GROUP_INVALID, err.Error())
		}
		return
	}
	if len(tasks) == 0 {
		return
	}
	m.useExecutor(acc, x)
	for i := range tasks {
		tasks[i].Executor = &x
		t := m.newTask(acc.framework, acc.agent, tasks[i], x.ExecutorID.Value)
		acc.left = acc.left.Sub(t.resources...)
		m.publishTaskAdded(t)
	}
	acc.agent.send(link.Event{Type: link.EventRun, Run: &link.Run{Framework: acc.framework.info, Executor: x, Tasks: tasks, Group: true}})
}

// useExecutor charges an executor that is not there yet.
func (m *Master) useExecutor(acc *acceptance, info mesos.ExecutorInfo) {
	if acc.agent.executors[executorKey{acc.framework.id, info.ExecutorID.Value}] == nil {
		acc.left = acc.left.Sub(m.addExecutor(acc.agent, acc.framework, info).resources...)
	}
}

// complete fills in what the master adds to a task: the executor's framework
// id and the role that resources are allocated to.
func (acc *acceptance) complete(t *mesos.TaskInfo) {
	acc.allocate(t.Resources)
	if t.Executor != nil {
		x := *t.Executor
		acc.allocate(x.Resources)
		if x.FrameworkID == nil {
			x.FrameworkID = &mesos.FrameworkID{Value: acc.framework.id}
		}
		t.Executor = &x
	}
}

func (acc *acceptance) allocate(resources []mesos.Resource) {
	for i := range resources {
		resources[i] = resource.Upgrade(resources[i])
		if resources[i].AllocationInfo == nil {
			resources[i].AllocationInfo = &mesos.Resource_AllocationInfo{Role: &acc.role}
		}
	}
}

// commandExecutor is the executor of a task that has none of its own. Its
// resources are the agent's business: the master does not count them.
func commandExecutor(frameworkID string, t mesos.TaskInfo) mesos.ExecutorInfo {
	name := "Command Executor (Task: " + t.TaskID.Value + ")"
	source := t.TaskID.Value
	return mesos.ExecutorInfo{
		Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: t.TaskID.Value}, FrameworkID: &mesos.FrameworkID{Value: frameworkID},
		Name: &name, Source: &source, Command: t.Command,
	}
}
