package master

import (
	"net/http"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// answerTime is more than the answer to a call takes to be on its way.
const answerTime = 20 * time.Millisecond

// streamHeader names the subscription that a call belongs to.
const streamHeader = "Mesos-Stream-Id"

// serveScheduler is /api/v1/scheduler. The order of the checks is that of
// Mesos: principal, method, types, form, call, Accept, framework, connection, stream.
func (m *Master) serveScheduler(w http.ResponseWriter, r *http.Request) {
	principal, ok := m.authenticate(w, r)
	if !ok {
		return
	}
	var call scheduler.Call
	present, e := wire.ReadCall(w, r, &call)
	if e == nil {
		e = validateCall(&call, present, principal)
	}
	if e != nil {
		e.Write(w)
		return
	}
	m.identifyScheduler(r.Context(), &call)
	var accept wire.MediaType
	if call.Type == scheduler.Call_SUBSCRIBE || call.Type == scheduler.Call_RECONCILE_OPERATIONS {
		// Of the others no answer has a body, and what they accept does not matter.
		if accept, e = wire.ResponseType(r.Header); e != nil {
			e.Write(w)
			return
		}
	}
	if call.Type == scheduler.Call_SUBSCRIBE {
		m.serveSubscribe(w, r, &call, accept)
		return
	}
	var held *wire.Stream
	if !m.loop.do(func() {
		if e = m.handleCall(&call, principal, r.Header.Values(streamHeader)); e == nil && call.Type == scheduler.Call_ACKNOWLEDGE {
			// The next update is two short trips away and must not overtake the answer.
			held = m.frameworks[call.FrameworkID.Value].stream
			held.Pause(answerTime)
		}
	}) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	if e != nil {
		e.Write(w)
		return
	}
	if call.Type == scheduler.Call_UPDATE_FRAMEWORK {
		// The one call that has an effect before it is answered.
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	}
	wire.Accepted(w)
	if held != nil {
		_ = http.NewResponseController(w).Flush()
		held.Resume()
	}
}

func (m *Master) serveSubscribe(w http.ResponseWriter, r *http.Request, call *scheduler.Call, accept wire.MediaType) {
	if len(r.Header.Values(streamHeader)) > 0 {
		wire.Text(w, http.StatusBadRequest, "Subscribe calls should not include the 'Mesos-Stream-Id' header")
		return
	}
	var s subscription
	if !m.loop.do(func() { s = m.subscribe(call, accept) }) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	defer m.loop.do(func() { m.streamEnded(s.frameworkID, s.streamID) })
	m.identifyFramework(r.Context(), s.frameworkID)
	s.stream.Serve(r.Context(), w, map[string]string{streamHeader: s.streamID})
}

// validateCall checks that a call has what its type needs.
func validateCall(c *scheduler.Call, present wire.Present, principal *string) *wire.Error {
	bad := func(text string) *wire.Error {
		return wire.Errorf(http.StatusBadRequest, "Failed to validate scheduler::Call: %s", text)
	}
	if !present["type"] {
		return bad("Expecting 'type' to be present")
	}
	if c.Type == scheduler.Call_SUBSCRIBE {
		switch {
		case c.Subscribe == nil:
			return bad("Expecting 'subscribe' to be present")
		case c.FrameworkID.GetValue() != c.Subscribe.FrameworkInfo.GetID().GetValue():
			return bad("'framework_id' differs from 'subscribe.framework_info.id'")
		case c.Subscribe.FrameworkInfo.Principal == nil:
			// Who calls is who it is.
			c.Subscribe.FrameworkInfo.Principal = principal
		}
		if err := checkPrincipal(principal, *c.Subscribe.FrameworkInfo); err != nil {
			return bad(err.Error())
		}
		return nil
	}
	if c.FrameworkID == nil {
		return bad("Expecting 'framework_id' to be present")
	}
	if field := needs[c.Type]; field != "" && !present[field] {
		return bad("Expecting '" + field + "' to be present")
	}
	switch {
	case c.Type == scheduler.Call_ACKNOWLEDGE && len(c.Acknowledge.UUID) != 16:
		return bad("Not a valid UUID")
	case c.Type == scheduler.Call_ACKNOWLEDGE_OPERATION_STATUS && len(c.AcknowledgeOperationStatus.UUID) != 16:
		return bad("Not a valid UUID")
	case c.Type == scheduler.Call_ACKNOWLEDGE_OPERATION_STATUS && c.AcknowledgeOperationStatus.AgentID == nil:
		return bad("Expecting 'agent_id' to be present")
	case c.Type == scheduler.Call_UPDATE_FRAMEWORK && c.UpdateFramework.FrameworkInfo.GetID().GetValue() != c.FrameworkID.Value:
		return bad("'framework_id' differs from 'update_framework.framework_info.id'")
	}
	return nil
}

// needs names the field that a type of call must have. REVIVE and SUPPRESS need none.
var needs = map[scheduler.Call_Type]string{
	scheduler.Call_ACCEPT:                       "accept",
	scheduler.Call_DECLINE:                      "decline",
	scheduler.Call_ACCEPT_INVERSE_OFFERS:        "accept_inverse_offers",
	scheduler.Call_DECLINE_INVERSE_OFFERS:       "decline_inverse_offers",
	scheduler.Call_KILL:                         "kill",
	scheduler.Call_SHUTDOWN:                     "shutdown",
	scheduler.Call_ACKNOWLEDGE:                  "acknowledge",
	scheduler.Call_ACKNOWLEDGE_OPERATION_STATUS: "acknowledge_operation_status",
	scheduler.Call_RECONCILE:                    "reconcile",
	scheduler.Call_RECONCILE_OPERATIONS:         "reconcile_operations",
	scheduler.Call_MESSAGE:                      "message",
	scheduler.Call_REQUEST:                      "request",
	scheduler.Call_UPDATE_FRAMEWORK:             "update_framework",
}

// handleCall passes a call on, after the checks that need the master's state.
func (m *Master) handleCall(c *scheduler.Call, principal *string, streams []string) *wire.Error {
	f := m.frameworks[c.FrameworkID.Value]
	switch {
	case f == nil:
		return wire.Errorf(http.StatusBadRequest, "Framework cannot be found")
	case checkPrincipal(principal, f.info) != nil:
		return wire.Errorf(http.StatusBadRequest, "%v", checkPrincipal(principal, f.info))
	case f.state != frameworkConnected:
		return wire.Errorf(http.StatusForbidden, "Framework is not subscribed")
	case len(streams) == 0:
		return wire.Errorf(http.StatusBadRequest, "All non-subscribe calls should include the '%s' header", streamHeader)
	case streams[0] != f.streamID:
		return wire.Errorf(http.StatusBadRequest, "The stream ID '%s' included in this request didn't match the stream ID currently associated with framework ID %s", streams[0], f.id)
	}
	if name := callCounters[c.Type]; name != "" {
		m.count(name)
	}
	switch c.Type {
	case scheduler.Call_TEARDOWN:
		m.removeFramework(f)
	case scheduler.Call_ACCEPT:
		m.accept(f, c.Accept)
	case scheduler.Call_DECLINE:
		m.decline(f, c.Decline)
	case scheduler.Call_REVIVE:
		m.revive(f, c.Revive.GetRoles())
	case scheduler.Call_SUPPRESS:
		m.suppress(f, c.Suppress.GetRoles())
	case scheduler.Call_KILL:
		m.kill(f, c.Kill)
	case scheduler.Call_SHUTDOWN:
		m.shutdownExecutor(f, c.Shutdown)
	case scheduler.Call_ACKNOWLEDGE:
		m.acknowledge(f, c.Acknowledge)
	case scheduler.Call_RECONCILE:
		m.reconcile(f, c.Reconcile.Tasks)
	case scheduler.Call_MESSAGE:
		m.message(f, c.Message)
	case scheduler.Call_UPDATE_FRAMEWORK:
		return m.updateFrameworkCall(f, c.UpdateFramework)
	case scheduler.Call_RECONCILE_OPERATIONS:
		m.reconcileOperations(f, c.ReconcileOperations.Operations)
	case scheduler.Call_ACKNOWLEDGE_OPERATION_STATUS:
		// No update of an operation has a uuid, and so none can be acknowledged.
		m.count("invalid_operation_status_update_acknowledgements")
	case scheduler.Call_REQUEST, scheduler.Call_ACCEPT_INVERSE_OFFERS, scheduler.Call_DECLINE_INVERSE_OFFERS:
		// Taken and without effect: Mesos's allocator, too, makes nothing of requests, and there is no maintenance.
	default:
		return wire.Errorf(http.StatusNotImplemented, "501 Not Implemented.")
	}
	return nil
}

// kill handles KILL; of an unknown task the framework is told as by RECONCILE.
func (m *Master) kill(f *framework, c *scheduler.Call_Kill) {
	t := f.tasks[c.TaskID.Value]
	if t == nil {
		m.reconcileOne(f, c.TaskID.Value, c.AgentID)
		return
	}
	if c.AgentID != nil && c.AgentID.Value != t.agentID {
		m.log.Info("kill of a task with another agent's id is passed over", "framework", f.id, "task", c.TaskID.Value, "agent", c.AgentID.Value)
		return
	}
	t.killed = true
	t.agent.send(link.Event{Type: link.EventKill, Kill: &link.Kill{
		FrameworkID: mesos.FrameworkID{Value: f.id}, TaskID: c.TaskID.Value, KillPolicy: c.KillPolicy,
	}})
}

// shutdownExecutor handles SHUTDOWN.
func (m *Master) shutdownExecutor(f *framework, c *scheduler.Call_Shutdown) {
	if a := m.agents[c.AgentID.Value]; a != nil {
		a.send(link.Event{Type: link.EventShutdownExecutor, ShutdownExecutor: &link.ShutdownExecutor{
			FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: c.ExecutorID.Value,
		}})
	}
}

// message handles MESSAGE. Delivery is not promised.
func (m *Master) message(f *framework, c *scheduler.Call_Message) {
	a := m.agents[c.AgentID.Value]
	m.countValid(a != nil, "valid_framework_to_executor_messages")
	if a != nil {
		a.send(link.Event{Type: link.EventMessage, Message: &link.FrameworkMessage{
			FrameworkID: mesos.FrameworkID{Value: f.id}, ExecutorID: c.ExecutorID.Value, Data: c.Data,
		}})
	}
}
