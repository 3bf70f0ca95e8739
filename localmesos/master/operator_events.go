package master

import (
	"net/http"
	"slices"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	apimaster "github.com/mesos/mesos-go/api/v1/lib/master"

	"tandem/localmesos/internal/wire"
)

// subscriber is a tool that follows the master by the operator API's SUBSCRIBE
// (docs/operator-http-api.md of Apache Mesos).
type subscriber struct {
	stream    *wire.Stream
	heartbeat *timer
	// greeted tells that the state was sent; early is what happened before.
	greeted bool
	early   [][]byte
}

// A subscriber that is further behind than this is disconnected. Its state is
// one SUBSCRIBE away, so it need not be kept as long as a framework's.
const (
	maxSubscriberEvents = 20_000
	maxSubscriberBytes  = 64 << 20
)

// serveEvents is the operator API's SUBSCRIBE: a stream of events that begins with the state.
func (m *Master) serveEvents(w http.ResponseWriter, r *http.Request, mt wire.MediaType) {
	s := &subscriber{stream: wire.NewStream(mt)}
	s.stream.Limit(maxSubscriberEvents, maxSubscriberBytes)
	var state *apimaster.Response_GetState
	if !m.loop.do(func() { state = m.addSubscriber(s) }) {
		wire.Text(w, http.StatusServiceUnavailable, "Service Unavailable")
		return
	}
	defer m.loop.do(func() { m.dropSubscriber(s) })
	// The state of a large cluster takes long to encode; meanwhile the loop goes on.
	interval := m.flags.HeartbeatInterval.Seconds()
	hello := m.encodeEvent(mt, &apimaster.Event{Type: apimaster.Event_SUBSCRIBED, Subscribed: &apimaster.Event_Subscribed{
		GetState: state, HeartbeatIntervalSeconds: &interval,
	}})
	m.loop.do(func() { m.greetSubscriber(s, hello) })
	s.stream.Serve(r.Context(), w, nil)
}

// addSubscriber returns the state from which on the subscriber is told of all
// that happens. Of too many subscribers the oldest has to go.
func (m *Master) addSubscriber(s *subscriber) *apimaster.Response_GetState {
	if len(m.subscribers) >= m.flags.MaxOperatorEventStreamSubscribers {
		m.log.Info("the oldest operator event stream is closed: there are as many as may be", "max_operator_event_stream_subscribers", m.flags.MaxOperatorEventStreamSubscribers)
		m.dropSubscriber(m.subscribers[0])
	}
	m.subscribers = append(m.subscribers, s)
	return m.getState()
}

// greetSubscriber sends the state, a first heartbeat, and what has happened since.
func (m *Master) greetSubscriber(s *subscriber, hello []byte) {
	if !slices.Contains(m.subscribers, s) {
		return // it had to go
	}
	s.greeted = true
	s.send(hello)
	m.beatSubscriber(s)
	for _, event := range s.early {
		s.send(event)
	}
	s.early = nil
}

// dropSubscriber ends a subscriber's stream; one that is gone already is no error.
func (m *Master) dropSubscriber(s *subscriber) {
	m.loop.cancel(s.heartbeat)
	s.stream.Close()
	m.subscribers = slices.DeleteFunc(m.subscribers, func(o *subscriber) bool { return o == s })
}

// beatSubscriber sends a heartbeat now and plans the next.
func (m *Master) beatSubscriber(s *subscriber) {
	s.send(m.encodeEvent(s.stream.MediaType(), &apimaster.Event{Type: apimaster.Event_HEARTBEAT}))
	s.heartbeat = m.loop.after(m.flags.HeartbeatInterval, func() { m.beatSubscriber(s) })
}

// send queues an encoded event; it returns false for one who does not keep up and is disconnected.
func (s *subscriber) send(event []byte) bool {
	if event == nil {
		return true
	}
	if !s.greeted {
		s.early = append(s.early, event)
		return len(s.early) < maxSubscriberEvents
	}
	return s.stream.SendRecord(event)
}

// publish tells all subscribers. An event is made only if there are any, and
// encoded once for each media type.
func (m *Master) publish(event func() *apimaster.Event) {
	if len(m.subscribers) == 0 {
		return
	}
	e := event()
	encoded := map[wire.MediaType][]byte{}
	for _, s := range slices.Clone(m.subscribers) {
		mt := s.stream.MediaType()
		if encoded[mt] == nil {
			encoded[mt] = m.encodeEvent(mt, e)
		}
		if !s.send(encoded[mt]) {
			m.log.Warn("an operator event stream is closed: its reader does not keep up", "max_events", maxSubscriberEvents, "max_bytes", maxSubscriberBytes)
			m.dropSubscriber(s)
		}
	}
}

// encodeEvent returns nil when an event cannot be encoded, because of a message
// of a framework without a required field: it must not end the stream.
func (m *Master) encodeEvent(mt wire.MediaType, e *apimaster.Event) []byte {
	var b []byte
	var err error
	if mt == wire.JSON {
		b, err = operatorJSON(e)
	} else {
		b, err = wire.Marshal(mt, e)
	}
	if err != nil {
		m.log.Error("an event for operators cannot be encoded and is dropped", "type", e.Type.String(), "error", err)
		return nil
	}
	return b
}

func (m *Master) publishTaskAdded(t *task) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_TASK_ADDED, TaskAdded: &apimaster.Event_TaskAdded{Task: t.message()}}
	})
}

// publishTaskUpdated tells of a task's new state; the status is the update's, which may be behind the state.
func (m *Master) publishTaskUpdated(t *task, s mesos.TaskStatus) {
	m.publish(func() *apimaster.Event {
		state := t.state
		return &apimaster.Event{Type: apimaster.Event_TASK_UPDATED, TaskUpdated: &apimaster.Event_TaskUpdated{
			FrameworkID: mesos.FrameworkID{Value: t.framework.id}, Status: s, State: &state,
		}}
	})
}

func (m *Master) publishAgentAdded(a *agent) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_AGENT_ADDED, AgentAdded: &apimaster.Event_AgentAdded{Agent: a.message()}}
	})
}

// publishAgentRemoved tells of an agent that left. Of one that is unreachable or
// gone Apache Mesos 1.12 tells by its tasks only.
func (m *Master) publishAgentRemoved(a *agent) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_AGENT_REMOVED, AgentRemoved: &apimaster.Event_AgentRemoved{AgentID: mesos.AgentID{Value: a.id}}}
	})
}

func (m *Master) publishFrameworkAdded(f *framework) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_FRAMEWORK_ADDED, FrameworkAdded: &apimaster.Event_FrameworkAdded{Framework: f.brief()}}
	})
}

func (m *Master) publishFrameworkUpdated(f *framework) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_FRAMEWORK_UPDATED, FrameworkUpdated: &apimaster.Event_FrameworkUpdated{Framework: f.brief()}}
	})
}

func (m *Master) publishFrameworkRemoved(f *framework) {
	m.publish(func() *apimaster.Event {
		return &apimaster.Event{Type: apimaster.Event_FRAMEWORK_REMOVED, FrameworkRemoved: &apimaster.Event_FrameworkRemoved{FrameworkInfo: f.info}}
	})
}

// brief is a framework in an event, without what it holds.
func (f *framework) brief() apimaster.Response_GetFrameworks_Framework {
	x := f.message()
	if x.UnregisteredTime == nil {
		x.UnregisteredTime = &mesos.TimeInfo{}
	}
	return x
}
