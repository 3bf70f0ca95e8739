package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"
)

// testAgent is an agent that does what a test says. It is an http.Handler, so
// that it can serve real sockets as well as pipes in a synctest bubble.
type testAgent struct {
	mu sync.Mutex
	// withhold keeps acknowledgements back.
	withhold bool
	// capable gives the framework the capability TASK_KILLING_STATE.
	capable bool
	// token is what SUBSCRIBED tells as the executor's; wantToken is the only
	// Authorization that is good for updates. Empty is none and any.
	token, wantToken string
	// first are events that a new stream begins with instead of SUBSCRIBED.
	first []*executor.Event
	// subscribeStatus and updateStatus are the answers while not 0; updateDelay comes before an answer.
	subscribeStatus, updateStatus int
	updateDelay                   time.Duration

	subscriptions []executor.Call_Subscribe
	subscribedAt  []time.Time
	attempts      int
	updates       []mesos.TaskStatus
	tokens        []string
	messages      []string
	heartbeats    int
	stream        chan []byte
	end           chan struct{}
}

func newTestAgent() *testAgent { return &testAgent{capable: true} }

func (a *testAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var call executor.Call
	if err == nil {
		err = call.Unmarshal(body)
	}
	if err != nil || r.URL.Path != "/api/v1/executor" {
		http.Error(w, fmt.Sprint("bad call: ", err), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
	refuse := call.Type == executor.Call_UPDATE && a.wantToken != "" && r.Header.Get("Authorization") != a.wantToken
	a.mu.Unlock()
	if refuse {
		http.Error(w, "401 Unauthorized.", http.StatusUnauthorized)
		return
	}
	switch call.Type {
	case executor.Call_SUBSCRIBE:
		a.subscribe(w, r, &call)
	case executor.Call_UPDATE:
		a.update(w, call.Update.Status)
	case executor.Call_MESSAGE:
		a.mu.Lock()
		a.messages = append(a.messages, string(call.Message.Data))
		a.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	case executor.Call_HEARTBEAT:
		a.mu.Lock()
		a.heartbeats++
		a.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// commandWith is the command of an ExecutorInfo that holds a token, if there is one.
func commandWith(token string) *mesos.CommandInfo {
	if token == "" {
		return nil
	}
	return &mesos.CommandInfo{Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{
		{Name: tokenVariable, Type: mesos.Environment_Variable_VALUE.Enum(), Value: &token},
	}}}
}

func (a *testAgent) subscribe(w http.ResponseWriter, r *http.Request, call *executor.Call) {
	a.mu.Lock()
	a.attempts++
	if status := a.subscribeStatus; status != 0 {
		a.mu.Unlock()
		http.Error(w, "Agent has not finished recovery", status)
		return
	}
	stream, end := make(chan []byte, 100), make(chan struct{})
	if a.end != nil {
		select {
		case <-a.end:
		default:
			close(a.end) // a second SUBSCRIBE ends the first stream
		}
	}
	a.stream, a.end = stream, end
	a.subscriptions = append(a.subscriptions, *call.Subscribe)
	a.subscribedAt = append(a.subscribedAt, time.Now())
	events := a.first
	if events == nil {
		info := mesos.FrameworkInfo{User: "root", Name: "test"}
		if a.capable {
			info.Capabilities = []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_TASK_KILLING_STATE}}
		}
		events = []*executor.Event{{Type: executor.Event_SUBSCRIBED, Subscribed: &executor.Event_Subscribed{
			ExecutorInfo:  mesos.ExecutorInfo{ExecutorID: call.ExecutorID, Command: commandWith(a.token)},
			FrameworkInfo: info,
			AgentInfo:     mesos.AgentInfo{Hostname: "here", ID: &mesos.AgentID{Value: "agent-1"}},
		}}}
	}
	for _, u := range call.Subscribe.UnacknowledgedUpdates {
		a.updates = append(a.updates, u.Status)
	}
	withhold := a.withhold
	a.mu.Unlock()

	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
	for _, e := range events {
		a.send(e)
	}
	if !withhold {
		for _, u := range call.Subscribe.UnacknowledgedUpdates {
			a.acknowledge(u.Status)
		}
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case record := <-stream:
			w.Write(record)
			w.(http.Flusher).Flush()
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (a *testAgent) update(w http.ResponseWriter, s mesos.TaskStatus) {
	a.mu.Lock()
	status, delay, withhold := a.updateStatus, a.updateDelay, a.withhold
	a.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if status != 0 {
		http.Error(w, "not now", status)
		return
	}
	a.mu.Lock()
	a.updates = append(a.updates, s)
	a.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
	if !withhold {
		a.acknowledge(s)
	}
}

func (a *testAgent) acknowledge(s mesos.TaskStatus) {
	a.send(&executor.Event{Type: executor.Event_ACKNOWLEDGED, Acknowledged: &executor.Event_Acknowledged{TaskID: s.TaskID, UUID: s.UUID}})
}

// send puts an event on the current stream.
func (a *testAgent) send(e *executor.Event) {
	b, err := e.Marshal()
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	stream := a.stream
	a.mu.Unlock()
	var record bytes.Buffer
	record.WriteString(strconv.Itoa(len(b)))
	record.WriteByte('\n')
	record.Write(b)
	stream <- record.Bytes()
}

func (a *testAgent) launch(tasks ...mesos.TaskInfo) {
	a.send(&executor.Event{Type: executor.Event_LAUNCH_GROUP, LaunchGroup: &executor.Event_LaunchGroup{TaskGroup: mesos.TaskGroupInfo{Tasks: tasks}}})
}

func (a *testAgent) kill(id string, grace time.Duration) {
	k := &executor.Event_Kill{TaskID: mesos.TaskID{Value: id}}
	if grace > 0 {
		k.KillPolicy = &mesos.KillPolicy{GracePeriod: &mesos.DurationInfo{Nanoseconds: grace.Nanoseconds()}}
	}
	a.send(&executor.Event{Type: executor.Event_KILL, Kill: k})
}

func (a *testAgent) shutdown() { a.send(&executor.Event{Type: executor.Event_SHUTDOWN}) }

// drop ends the current stream.
func (a *testAgent) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.end)
}

func (a *testAgent) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// of returns the updates of a task in the order of their arrival, each uuid once.
func (a *testAgent) of(id string) []mesos.TaskStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []mesos.TaskStatus
	seen := map[string]bool{}
	for _, s := range a.updates {
		if s.TaskID.Value == id && !seen[string(s.UUID)] {
			seen[string(s.UUID)] = true
			list = append(list, s)
		}
	}
	return list
}

// states returns the states of a task's updates; equal ones in a row count once.
func (a *testAgent) states(id string) []string {
	var list []string
	for _, s := range a.of(id) {
		name := s.GetState().String()
		if len(list) == 0 || list[len(list)-1] != name {
			list = append(list, name)
		}
	}
	return list
}

// last returns the latest update of a task.
func (a *testAgent) last(id string) mesos.TaskStatus {
	list := a.of(id)
	if len(list) == 0 {
		return mesos.TaskStatus{}
	}
	return list[len(list)-1]
}

// pipes is a listener without sockets: its connections are pipes, which
// synctest can tell to be idle.
type pipes struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
