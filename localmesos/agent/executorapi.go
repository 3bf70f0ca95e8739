package agent

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// executorAPI is the v1 executor API.
func (a *Agent) executorAPI(w http.ResponseWriter, r *http.Request) {
	who, problem := a.tokens.authenticate(r.Header)
	if problem != "" {
		unauthorized(w, problem)
		return
	}
	call := &xexec.Call{}
	present, e := wire.ReadCall(w, r, call)
	if e == nil {
		e = validateCall(call, present)
	}
	var mt wire.MediaType
	if e == nil && call.Type == xexec.Call_SUBSCRIBE {
		mt, e = wire.ResponseType(r.Header)
	}
	if e != nil {
		e.Write(w)
		return
	}
	if call.Type == xexec.Call_HEARTBEAT {
		wire.Accepted(w)
		return
	}
	a.identifyExecutor(r.Context(), call.FrameworkID.Value, call.ExecutorID.Value)
	var stream *wire.Stream
	ok := a.durably(r.Context(), func() {
		a.master.hold = call.Type == xexec.Call_UPDATE
		stream, e = a.executorCall(call, mt, who)
		a.master.hold = false
		if r.Context().Err() != nil {
			a.flushHeld()
		}
	})
	// The executor has its answer before the framework has the update: whoever
	// sees the update may rely on it that the executor need not send it again.
	defer a.loop.post(a.flushHeld)
	switch {
	case !ok:
		// The agent ends, or the client is gone: as if nothing had been answered.
		panic(http.ErrAbortHandler)
	case e != nil:
		e.Write(w)
	case stream != nil:
		stream.Serve(a.ctx, w, nil)
		if a.ctx.Err() != nil {
			// A stream that the agent's end cuts must not look like one that it finished.
			panic(http.ErrAbortHandler)
		}
		a.loop.post(func() { a.streamEnded(call.FrameworkID.Value, call.ExecutorID.Value, stream) })
	default:
		wire.Accepted(w)
		_ = http.NewResponseController(w).Flush() // the client may be gone
	}
}

// validateCall checks what can be checked without knowing the executor.
func validateCall(c *xexec.Call, present wire.Present) *wire.Error {
	bad := func(format string, args ...any) *wire.Error {
		return wire.Errorf(http.StatusBadRequest, "Failed to validate Executor::Call: "+format, args...)
	}
	expect := func(field string) *wire.Error { return bad("Expecting '%s' to be present", field) }
	switch {
	case !present["type"]:
		return expect("type")
	case c.Type == xexec.Call_SUBSCRIBE && c.Subscribe == nil:
		return expect("subscribe")
	case c.Type == xexec.Call_MESSAGE && c.Message == nil:
		return expect("message")
	case c.Type != xexec.Call_UPDATE:
		return nil
	case c.Update == nil:
		return expect("update")
	}
	if text := validateStatus(c, &c.Update.Status); text != "" {
		return bad("%s", text)
	}
	return nil
}

// validateStatus says what is wrong with a status of an executor, or nothing.
func validateStatus(c *xexec.Call, s *mesos.TaskStatus) string {
	const uuidLength = 16
	switch {
	case s.UUID == nil:
		return "Expecting 'uuid' to be present"
	case len(s.UUID) != uuidLength:
		return "Not a valid UUID"
	case s.ExecutorID != nil && s.ExecutorID.Value != c.ExecutorID.Value:
		return fmt.Sprintf("ExecutorID in Call: %s does not match ExecutorID in TaskStatus: %s", c.ExecutorID.Value, s.ExecutorID.Value)
	case s.Source == nil || *s.Source != mesos.SOURCE_EXECUTOR:
		return fmt.Sprintf("Received Call from executor %s of framework %s with invalid source, expecting 'SOURCE_EXECUTOR'",
			c.ExecutorID.Value, c.FrameworkID.Value)
	case s.GetState() == mesos.TASK_STAGING:
		return fmt.Sprintf("Received TASK_STAGING from executor %s of framework %s which is not allowed",
			c.ExecutorID.Value, c.FrameworkID.Value)
	}
	return ""
}

// validateUnacknowledged says what is wrong with the updates that an executor
// brings along, or nothing. Apache Mesos looks at none of them and dies of a
// bad uuid.
func validateUnacknowledged(c *xexec.Call) string {
	for i := range c.Subscribe.UnacknowledgedUpdates {
		s := &c.Subscribe.UnacknowledgedUpdates[i].Status
		if text := validateStatus(c, s); text != "" {
			return fmt.Sprintf("Invalid unacknowledged update of task '%s': %s", s.TaskID.Value, text)
		}
	}
	return ""
}

// errRecovering is the answer to what must wait until executors had their time
// to come back: the agent cannot tell yet what is here.
var errRecovering = wire.Errorf(http.StatusServiceUnavailable, "Agent has not finished recovery")

// executorCall acts on a call. It returns the stream of a SUBSCRIBE.
func (a *Agent) executorCall(c *xexec.Call, mt wire.MediaType, who claims) (*wire.Stream, *wire.Error) {
	if c.Type != xexec.Call_SUBSCRIBE && !a.master.recovered {
		return nil, errRecovering
	}
	fw := a.frameworks[c.FrameworkID.Value]
	if fw == nil {
		return nil, wire.Errorf(http.StatusBadRequest, "Framework cannot be found")
	}
	e := fw.executors[c.ExecutorID.Value]
	if e == nil {
		return nil, wire.Errorf(http.StatusBadRequest, "Executor cannot be found")
	}
	if err := who.mayActFor(e); err != nil {
		return nil, wire.Errorf(http.StatusForbidden, "%s", err.Error())
	}
	if c.Type != xexec.Call_SUBSCRIBE && e.state == registering {
		return nil, wire.Errorf(http.StatusForbidden, "Executor is not subscribed")
	}
	switch c.Type {
	case xexec.Call_SUBSCRIBE:
		stream := wire.NewStream(mt)
		if text := validateUnacknowledged(c); text != "" {
			// Not an answer of its own: whoever may subscribe gets a stream, and the
			// executor's library hands an ERROR to the program.
			a.log.Warn("an executor is refused", "executor", e.key(), "error", text)
			stream.Send(&xexec.Event{Type: xexec.Event_ERROR, Error: &xexec.Event_Error{Message: text}})
			stream.Close()
			return stream, nil
		}
		a.subscribe(e, c.Subscribe, stream)
		return stream, nil
	case xexec.Call_UPDATE:
		if err := a.executorUpdate(e, c.Update.Status); err != nil {
			a.log.Error("an update could not be recorded", "executor", e.key(), "error", err)
			return nil, wire.Errorf(http.StatusInternalServerError, "Failed to handle status update: %v", err)
		}
		return nil, nil
	case xexec.Call_MESSAGE:
		a.tell(&link.Call{Type: link.CallMessage, Message: &link.FrameworkMessage{
			FrameworkID: c.FrameworkID, ExecutorID: c.ExecutorID.Value, Data: c.Message.Data}})
		return nil, nil
	default:
		return nil, wire.Errorf(http.StatusNotImplemented, "501 Not Implemented.")
	}
}

// subscribe takes an executor up, for the first time or again.
func (a *Agent) subscribe(e *executor, s *xexec.Call_Subscribe, stream *wire.Stream) {
	if e.fw.ending || !e.step(subscribes) {
		// It may be one that was asked to end before it was there.
		a.log.Info("an executor subscribes that is to end", "executor", e.key(), "state", e.state)
		a.out(func() { stream.Send(&xexec.Event{Type: xexec.Event_SHUTDOWN}) })
		if e.stream != nil {
			a.out(e.stream.Close)
		}
		e.stream = stream
		return
	}
	if e.stopWait != nil {
		e.stopWait()
		e.stopWait = nil
	}
	if e.stream != nil {
		a.log.Info("an executor subscribes again; its first stream ends", "executor", e.key())
		a.out(e.stream.Close)
	}
	e.stream, e.awaited = stream, false
	a.beat(e, stream)
	if !e.subscribed {
		e.subscribed = true
		if err := a.saveExecutor(e); err != nil {
			a.log.Error("an executor cannot be recorded", "executor", e.key(), "error", err)
		}
	}
	a.log.Info("an executor subscribed", "executor", e.key(), "container", e.run.Container)
	a.send(e, &xexec.Event{Type: xexec.Event_SUBSCRIBED, Subscribed: &xexec.Event_Subscribed{ExecutorInfo: e.info,
		FrameworkInfo: e.fw.info, AgentInfo: a.info, ContainerID: &mesos.ContainerID{Value: e.run.Container}}})
	for i := range s.UnacknowledgedUpdates {
		if err := a.executorUpdate(e, s.UnacknowledgedUpdates[i].Status); err != nil {
			a.log.Error("an update could not be recorded; the executor will send it again", "executor", e.key(), "error", err)
		}
	}
	a.settleUnknown(e, s.UnacknowledgedTasks)
	a.deliver(e)
	for _, t := range e.order {
		if t.kill != nil && t.live() {
			a.sendKill(e, t.kill)
		}
	}
	if !e.busy() && !e.everSentTask() {
		// All that it was started for has ended without it; it would wait for ever.
		a.log.Info("an executor that never got a task is shut down", "executor", e.key())
		a.shutdownExecutor(e)
	}
}

// heartbeatInterval lies between two HEARTBEAT events of an executor, as in
// Apache Mesos; the first comes that long after SUBSCRIBED. They only keep
// connections open that something in between would drop.
const heartbeatInterval = 30 * time.Minute

// beat sends heartbeats for as long as the stream is the executor's.
func (a *Agent) beat(e *executor, s *wire.Stream) {
	if e.stopBeat != nil {
		e.stopBeat()
	}
	e.stopBeat = a.after(heartbeatInterval, func() {
		if e.stream == s {
			a.send(e, &xexec.Event{Type: xexec.Event_HEARTBEAT})
			a.beat(e, s)
		}
	})
}

// settleUnknown deals with the tasks that the executor should have and does
// not know: those that got lost with its last connection come again; those that
// an earlier agent took, and did not hand over before it died, end.
func (a *Agent) settleUnknown(e *executor, known []mesos.TaskInfo) {
	for _, t := range e.order {
		inherited := t.inherited
		t.inherited = false
		if t.phase != launched || t.state != mesos.TASK_STAGING {
			continue
		}
		if slices.ContainsFunc(known, func(k mesos.TaskInfo) bool { return k.TaskID.Value == t.id() }) {
			continue
		}
		if !inherited {
			t.step(undelivered)
			continue
		}
		s := status{mesos.TASK_LOST, mesos.REASON_AGENT_RESTARTED, "Task launched during agent restart"}
		if e.fw.partitionAware() {
			s.state = mesos.TASK_DROPPED
		}
		a.agentUpdate(e.fw.id, e, e.id, t.id(), s)
	}
}

// send gives an executor an event, if it is connected.
func (a *Agent) send(e *executor, ev *xexec.Event) {
	stream := e.stream
	a.out(func() {
		if stream == nil || !stream.Send(ev) {
			a.log.Debug("an event is dropped: the executor is not connected", "executor", e.key(), "type", ev.Type)
		}
	})
}

// streamEnded forgets the stream of an executor that has gone away.
func (a *Agent) streamEnded(framework, id string, s *wire.Stream) {
	if fw := a.frameworks[framework]; fw != nil && fw.executors[id] != nil && fw.executors[id].stream == s {
		fw.executors[id].stream = nil
	}
}
