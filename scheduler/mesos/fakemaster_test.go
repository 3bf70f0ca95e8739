package mesos

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// fakeMaster is a master that does what the test says.
type fakeMaster struct {
	server *httptest.Server
	// subscribes carries each SUBSCRIBE, calls every other call.
	subscribes chan *fakeStream
	calls      chan *scheduler.Call

	mu sync.Mutex
	// answer, when set, may answer a request itself by returning true.
	answer  func(w http.ResponseWriter, r *http.Request, c *scheduler.Call) bool
	current *fakeStream
	streams int
}

// fakeStream is an open subscription.
type fakeStream struct {
	call    *scheduler.Call
	request *http.Request
	id      string
	events  chan *scheduler.Event
	raw     chan []byte
	end     chan struct{}
	gone    chan struct{}
}

func newFakeMaster(t testing.TB) *fakeMaster {
	m := &fakeMaster{subscribes: make(chan *fakeStream, 16), calls: make(chan *scheduler.Call, 1024)}
	m.server = httptest.NewServer(m)
	t.Cleanup(func() { m.server.CloseClientConnections(); m.server.Close() })
	return m
}

func (m *fakeMaster) url() *url.URL {
	u, _ := url.Parse(m.server.URL)
	return u
}

func (m *fakeMaster) setAnswer(f func(w http.ResponseWriter, r *http.Request, c *scheduler.Call) bool) {
	m.mu.Lock()
	m.answer = f
	m.mu.Unlock()
}

func (m *fakeMaster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c := &scheduler.Call{}
	if r.URL.Path != schedulerPath || r.Header.Get("Content-Type") != mediaType || c.Unmarshal(body) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	answer := m.answer
	m.mu.Unlock()
	if answer != nil && answer(w, r, c) {
		return
	}
	if c.Type == scheduler.Call_SUBSCRIBE {
		m.stream(w, r, c)
		return
	}
	m.mu.Lock()
	ok := m.current != nil && m.current.id == r.Header.Get(streamHeader)
	m.mu.Unlock()
	if !ok {
		http.Error(w, "The stream ID included in this request didn't match the stream ID currently associated with framework ID", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	m.calls <- c
}

func (m *fakeMaster) stream(w http.ResponseWriter, r *http.Request, c *scheduler.Call) {
	m.mu.Lock()
	m.streams++
	s := &fakeStream{call: c, request: r, id: fmt.Sprintf("stream-%d", m.streams),
		events: make(chan *scheduler.Event), raw: make(chan []byte), end: make(chan struct{}), gone: make(chan struct{})}
	m.current = s
	m.mu.Unlock()
	defer close(s.gone)
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set(streamHeader, s.id)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	m.subscribes <- s
	for {
		select {
		case e := <-s.events:
			b, err := e.Marshal()
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(w, "%d\n", len(b))
			w.Write(b)
		case b := <-s.raw:
			w.Write(b)
		case <-s.end:
			return
		case <-r.Context().Done():
			return
		}
		w.(http.Flusher).Flush()
	}
}

func (s *fakeStream) send(t testing.TB, e *scheduler.Event) {
	t.Helper()
	select {
	case s.events <- e:
	case <-s.gone:
		t.Fatal("the stream is closed")
	case <-time.After(30 * time.Second):
		t.Fatal("the event was not taken")
	}
}

func (s *fakeStream) subscribed(t testing.TB, framework string, heartbeat float64) {
	t.Helper()
	s.send(t, &scheduler.Event{Type: scheduler.Event_SUBSCRIBED, Subscribed: &scheduler.Event_Subscribed{
		FrameworkID: &mesos.FrameworkID{Value: framework}, HeartbeatIntervalSeconds: &heartbeat,
		MasterInfo: &mesos.MasterInfo{ID: "master-1", Port: new(uint32)},
	}})
}

func errorEvent(message string) *scheduler.Event {
	return &scheduler.Event{Type: scheduler.Event_ERROR, Error: &scheduler.Event_Error{Message: message}}
}

// recorder is a Handler that keeps what it gets.
type recorder struct {
	events chan Event
	mu     sync.Mutex
	id     string
}

func (r *recorder) FrameworkID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

func (r *recorder) Handle(_ context.Context, e Event) error {
	r.mu.Lock()
	switch e := e.(type) {
	case Subscribed:
		r.id = e.FrameworkID
	case Removed:
		r.id = ""
	}
	r.mu.Unlock()
	r.events <- e
	return nil
}

func next[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s in time", what)
		panic("unreachable")
	}
}

func nextEvent[T Event](t testing.TB, r *recorder) T {
	t.Helper()
	e := next(t, r.events, fmt.Sprintf("%T", *new(T)))
	v, ok := e.(T)
	if !ok {
		t.Fatalf("got %T %+v, want %T", e, e, *new(T))
	}
	return v
}

// start runs a session against the masters until the test ends, and returns the channel with its result.
func start(t testing.TB, cfg Config, masters ...*fakeMaster) (*Session, *recorder, <-chan error) {
	t.Helper()
	for _, m := range masters {
		cfg.Masters = append(cfg.Masters, m.url())
	}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg.MinBackoff, cfg.MaxBackoff = time.Millisecond, 10*time.Millisecond
	rec := &recorder{events: make(chan Event, 1024)}
	s := New(cfg, rec)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		result <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("the session does not end")
		}
	})
	return s, rec, result
}
