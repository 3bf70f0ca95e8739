package master

import (
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// refuseOperation answers for an operation that the master does not carry out.
// Apache Mesos tells it to frameworks that gave the operation an id, and others
// find it in the master's log only; here both are told, for a reservation that
// fails silently looks like one that works.
func (m *Master) refuseOperation(f *framework, op mesos.Offer_Operation, why string) {
	m.countRefused(op.Type)
	m.log.Warn("operation is refused", "framework", f.id, "operation", op.Type.String(), "id", op.ID.GetValue(), "why", why)
	m.tellOperation(f, mesos.OperationStatus{OperationID: op.ID, State: mesos.OPERATION_ERROR, Message: &why})
}

func (m *Master) tellOperation(f *framework, s mesos.OperationStatus) {
	f.send(&scheduler.Event{Type: scheduler.Event_UPDATE_OPERATION_STATUS, UpdateOperationStatus: &scheduler.Event_UpdateOperationStatus{Status: s}})
}

// unsupported says why an operation on an agent is refused.
func unsupported(a *agent, op mesos.Offer_Operation) string {
	why := "it keeps no volumes and no disks of resource providers"
	if op.Type == mesos.Offer_Operation_RESERVE || op.Type == mesos.Offer_Operation_UNRESERVE {
		why = "it keeps no dynamic reservations; reserve statically, with --resources='cpus(role):1' of the agent"
	}
	return "Not supported on agent " + a.id + " (" + a.info.Hostname + ") because its master does not carry out " + op.Type.String() + ": " + why
}

// countRefused counts an operation that is refused.
func (m *Master) countRefused(kind mesos.Offer_Operation_Type) {
	name := strings.ToLower(kind.String())
	m.count("operations/" + name + "/error")
	m.count("operations/error")
}

// reconcileOperations handles RECONCILE_OPERATIONS. There are no operations, so
// there is nothing to tell implicitly, and all that a framework asks for are unknown.
func (m *Master) reconcileOperations(f *framework, operations []scheduler.Call_ReconcileOperations_Operation) {
	for _, op := range operations {
		state, message := mesos.OPERATION_UNKNOWN, "Reconciliation: Operation is unknown"
		if id := op.AgentID.GetValue(); op.AgentID == nil {
			message += " and no 'agent_id' was provided"
		} else if _, waiting := m.recovered[id]; waiting {
			state, message = mesos.OPERATION_RECOVERING, "Reconciliation: Agent is recovered but has not re-registered"
		} else if _, lost := m.unreachable[id]; lost {
			state, message = mesos.OPERATION_UNREACHABLE, "Reconciliation: Agent is unreachable"
		} else if m.agents[id] == nil {
			message = "Reconciliation: Both operation and agent are unknown"
		}
		id := op.OperationID
		m.tellOperation(f, mesos.OperationStatus{OperationID: &id, State: state, Message: &message, AgentID: op.AgentID, ResourceProviderID: op.ResourceProviderID})
	}
}
