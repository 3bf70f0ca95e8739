package master

import (
	"encoding/json"
	"errors"
	"net/http"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// serveAgentSubscribe is the agents' long-lived request.
func (m *Master) serveAgentSubscribe(w http.ResponseWriter, r *http.Request) {
	var sub link.Subscribe
	if !decodeLink(w, r, &sub) {
		return
	}
	m.identifyAgent(r.Context(), &sub.AgentInfo, "")
	var s agentSubscription
	var err error
	if !m.loop.do(func() { s, err = m.registerAgent(sub, r.RemoteAddr) }) {
		wire.Text(w, http.StatusServiceUnavailable, "the master is ending")
		return
	}
	var refused mesosError
	switch {
	case errors.As(err, &refused):
		wire.Text(w, http.StatusBadRequest, err.Error())
		return
	case err != nil:
		wire.Text(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer m.loop.do(func() { m.agentStreamEnded(s.agentID, s.streamID) })
	s.stream.Serve(r.Context(), w, map[string]string{link.StreamHeader: s.streamID})
}

// serveAgentCall takes one message of an agent.
func (m *Master) serveAgentCall(w http.ResponseWriter, r *http.Request) {
	var call link.Call
	if !decodeLink(w, r, &call) {
		return
	}
	current := false
	streamID := r.Header.Get(link.StreamHeader)
	m.identifyAgent(r.Context(), nil, streamID)
	ok := m.loop.do(func() {
		for _, a := range m.agents {
			if a.streamID == streamID && streamID != "" {
				current = true
				m.handleAgentCall(a, call)
				return
			}
		}
	})
	switch {
	case !ok:
		wire.Text(w, http.StatusServiceUnavailable, "the master is ending")
	case !current:
		wire.Text(w, http.StatusConflict, "the stream is not the agent's current one: subscribe again")
	default:
		wire.Accepted(w)
	}
}

func decodeLink(w http.ResponseWriter, r *http.Request, v any) bool {
	if e := wire.Method(r); e != nil {
		e.Write(w)
		return false
	}
	// A web page can make a browser send any text here, but not of this type.
	if mt, e := wire.RequestType(r.Header); e != nil || mt != wire.JSON {
		wire.Text(w, http.StatusUnsupportedMediaType, "expecting 'Content-Type' of application/json")
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxBody)).Decode(v); err != nil {
		wire.Text(w, http.StatusBadRequest, "the message cannot be decoded: "+err.Error())
		return false
	}
	return true
}

func (m *Master) handleAgentCall(a *agent, c link.Call) {
	switch c.Type {
	case link.CallUpdate:
		if c.Update != nil {
			m.statusUpdate(a, *c.Update)
		}
	case link.CallExited:
		if c.Exited != nil {
			m.executorExited(a, *c.Exited)
		}
	case link.CallMessage:
		if c.Message != nil {
			m.executorMessage(a, *c.Message)
		}
	case link.CallPong:
		if c.PongFor != nil && *c.PongFor == a.pings {
			a.ponged = true
		}
	case link.CallUnregister:
		m.count("messages_unregister_slave")
		m.count("slave_removals/reason_unregistered")
		m.removeAgent(a, "the agent unregistered")
	default:
		m.log.Warn("unknown message of an agent", "agent", a.id, "type", c.Type)
	}
}

// executorExited frees an executor's resources and tells its framework.
func (m *Master) executorExited(a *agent, e link.ExitedExecutor) {
	m.count("messages_exited_executor")
	f := m.frameworks[e.FrameworkID.Value]
	if f == nil {
		return
	}
	x := a.executors[executorKey{f.id, e.ExecutorID}]
	if x == nil {
		return
	}
	m.removeExecutor(a, f, x)
	f.send(&scheduler.Event{Type: scheduler.Event_FAILURE, Failure: &scheduler.Event_Failure{
		AgentID: &mesos.AgentID{Value: a.id}, ExecutorID: &mesos.ExecutorID{Value: e.ExecutorID}, Status: &e.Status,
	}})
}

// executorMessage passes an executor's message to its framework.
func (m *Master) executorMessage(a *agent, c link.FrameworkMessage) {
	f := m.frameworks[c.FrameworkID.Value]
	m.count("messages_executor_to_framework")
	m.countValid(f != nil, "valid_executor_to_framework_messages")
	if f == nil {
		return
	}
	data := c.Data
	if data == nil {
		data = []byte{}
	}
	f.send(&scheduler.Event{Type: scheduler.Event_MESSAGE, Message: &scheduler.Event_Message{
		AgentID: mesos.AgentID{Value: a.id}, ExecutorID: mesos.ExecutorID{Value: c.ExecutorID}, Data: data,
	}})
}
