package main

import (
	"bytes"
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

// agent is the least that an executor needs of a Mesos agent, with a clock: it
// knows to the microsecond when an event went out and when an update came in.
// It does not stand for an agent's own work.
type agent struct {
	server   *http.Server
	address  string
	received chan received

	mu      sync.Mutex
	streams map[string]chan []byte
	waiting map[string]chan struct{}
}

// received is an update, with the time at which it was read.
type received struct {
	status mesos.TaskStatus
	at     time.Time
}

func newAgent() (*agent, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return nil, err
	}
	a := &agent{address: l.Addr().String(), received: make(chan received, 100), streams: map[string]chan []byte{}, waiting: map[string]chan struct{}{}}
	a.server = &http.Server{Handler: http.HandlerFunc(a.serve), ReadHeaderTimeout: 10 * time.Second}
	go a.server.Serve(l) //nolint:errcheck // ends with close
	return a, nil
}

func (a *agent) close() { a.server.Close() }

// expect returns a channel that is closed when the executor has subscribed.
func (a *agent) expect(id string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	ch := make(chan struct{})
	a.waiting[id] = ch
	return ch
}

func (a *agent) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	at := time.Now()
	var call executor.Call
	if err == nil {
		err = call.Unmarshal(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := call.ExecutorID.Value
	switch call.Type {
	case executor.Call_SUBSCRIBE:
		a.subscribe(w, r, id)
	case executor.Call_UPDATE:
		w.WriteHeader(http.StatusAccepted)
		s := call.Update.Status
		a.received <- received{s, at}
		a.send(id, &executor.Event{Type: executor.Event_ACKNOWLEDGED, Acknowledged: &executor.Event_Acknowledged{TaskID: s.TaskID, UUID: s.UUID}})
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (a *agent) subscribe(w http.ResponseWriter, r *http.Request, id string) {
	stream := make(chan []byte, 100)
	a.mu.Lock()
	a.streams[id] = stream
	waiting := a.waiting[id]
	delete(a.waiting, id)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-protobuf")
	a.send(id, &executor.Event{Type: executor.Event_SUBSCRIBED, Subscribed: &executor.Event_Subscribed{
		ExecutorInfo:  mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: id}},
		FrameworkInfo: mesos.FrameworkInfo{User: "root", Name: "bench"},
		AgentInfo:     mesos.AgentInfo{Hostname: "127.0.0.1", ID: &mesos.AgentID{Value: "bench"}},
	}})
	if waiting != nil {
		defer func() { a.mu.Lock(); delete(a.streams, id); a.mu.Unlock() }()
	}
	rc := http.NewResponseController(w)
	for {
		select {
		case record := <-stream:
			if _, err := w.Write(record); err != nil || rc.Flush() != nil {
				return
			}
			if waiting != nil {
				close(waiting)
				waiting = nil
			}
		case <-r.Context().Done():
			return
		}
	}
}

// send puts an event on the executor's stream.
func (a *agent) send(id string, e *executor.Event) {
	b, err := e.Marshal()
	if err != nil {
		panic(fmt.Sprintf("event %s: %v", e.Type, err))
	}
	var record bytes.Buffer
	record.WriteString(strconv.Itoa(len(b)))
	record.WriteByte('\n')
	record.Write(b)
	a.mu.Lock()
	stream := a.streams[id]
	a.mu.Unlock()
	if stream != nil {
		stream <- record.Bytes()
	}
}
