package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

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

// serveAgentCall takes messages of an agent.
func (m *Master) serveAgentCall(w http.ResponseWriter, r *http.Request) {
	calls, ok := decodeCalls(w, r)
	if !ok {
		return
	}
	current := false
	streamID := r.Header.Get(link.StreamHeader)
	m.identifyAgent(r.Context(), nil, streamID)
	agentID, _, _ := strings.Cut(streamID, streamSeparator)
	ok = m.loop.do(func() {
		for _, c := range calls {
			a := m.agents[agentID]
			if current = a != nil && a.streamID == streamID; !current {
				return
			}
			m.handleAgentCall(a, c)
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

// decodeCalls reads the messages of a request; false tells that it has answered.
func decodeCalls(w http.ResponseWriter, r *http.Request) ([]link.Call, bool) {
	calls := []link.Call{{}}
	rest := decodeFirst(w, r, &calls[0])
	if rest == nil {
		return nil, false
	}
	for rest.More() {
		var c link.Call
		err := rest.Decode(&c)
		if err == nil && len(calls) == link.MaxCalls {
			err = fmt.Errorf("more than %d messages", link.MaxCalls)
		}
		if err != nil {
			wire.Text(w, http.StatusBadRequest, "the messages cannot be decoded: "+err.Error())
			return nil, false
		}
		calls = append(calls, c)
	}
	return calls, true
}

func decodeLink(w http.ResponseWriter, r *http.Request, v any) bool {
	return decodeFirst(w, r, v) != nil
}

// decodeFirst reads the first JSON value of a request and returns what reads the
// rest, or nil when it has answered already.
func decodeFirst(w http.ResponseWriter, r *http.Request, v any) *json.Decoder {
	if e := wire.Method(r); e != nil {
		e.Write(w)
		return nil
	}
	// A web page can make a browser send any text here, but not of this type.
	if mt, e := wire.RequestType(r.Header); e != nil || mt != wire.JSON {
		wire.Text(w, http.StatusUnsupportedMediaType, "expecting 'Content-Type' of application/json")
		return nil
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	if err := d.Decode(v); err != nil {
		wire.Text(w, http.StatusBadRequest, "the message cannot be decoded: "+err.Error())
		return nil
	}
	return d
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
