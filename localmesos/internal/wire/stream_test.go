package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

func TestStreamDeliversAndEnds(t *testing.T) {
	t.Parallel()
	s := NewStream(JSON)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(r.Context(), w, map[string]string{"Mesos-Stream-Id": "id"})
	}))
	defer server.Close()
	s.Send(&scheduler.Event{Type: scheduler.Event_HEARTBEAT})
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Mesos-Stream-Id") != "id" || resp.Header.Get("Content-Type") != string(JSON) {
		t.Errorf("header: %v", resp.Header)
	}
	records := NewRecordReader(resp.Body)
	got, err := records.Next()
	if err != nil || string(got) != `{"type":"HEARTBEAT"}` {
		t.Fatalf("%s %v", got, err)
	}
	s.Send(&scheduler.Event{Type: scheduler.Event_HEARTBEAT})
	s.Close()
	if s.Send(&scheduler.Event{Type: scheduler.Event_HEARTBEAT}) {
		t.Error("a closed stream took an event")
	}
	if _, err := records.Next(); err != nil {
		t.Errorf("what was queued before Close did not come: %v", err)
	}
	if _, err := records.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v", err)
	}
	select {
	case <-s.Done():
	case <-time.After(30 * time.Second):
		t.Error("Done is not closed")
	}
}

func TestStreamPauses(t *testing.T) {
	t.Parallel()
	s := NewStream(JSON)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Serve(r.Context(), w, nil) }))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	records := NewRecordReader(resp.Body)
	next := func(begin func()) time.Duration {
		began := time.Now()
		begin()
		s.SendRecord([]byte("x"))
		if _, err := records.Next(); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	const most = 50 * time.Millisecond
	if d := next(func() { s.Pause(most) }); d < most {
		t.Errorf("came after %v, paused for %v", d, most)
	}
	if d := next(func() { s.Pause(time.Minute); s.Resume() }); d > 10*time.Second {
		t.Errorf("came after %v, though the pause was ended", d)
	}
	s.Pause(time.Minute)
	s.Close()
	s.Resume()
	if _, err := records.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v", err)
	}
}

func TestStreamDropsSlowReader(t *testing.T) {
	t.Parallel()
	s := NewStream(JSON)
	record := make([]byte, 1<<20)
	n := 0
	for s.SendRecord(record) {
		if n++; n > MaxQueuedBytes/len(record) {
			t.Fatal("the queue has no bound")
		}
	}
	w := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.Serve(ctx, w, nil)
	if ctx.Err() != nil || w.Body.Len() != 0 {
		t.Errorf("the stream was not ended: %v, %d bytes", ctx.Err(), w.Body.Len())
	}
}

// TestStreamDisconnectsStuckReader: a client that keeps its connection open and
// reads nothing is gone after the timeout, however little it makes wait.
func TestStreamDisconnectsStuckReader(t *testing.T) {
	t.Parallel()
	s := NewStream(JSON)
	s.writeTimeout = 100 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Serve(r.Context(), w, nil) }))
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// More than the kernel buffers for a connection, less than the queue takes.
	record := make([]byte, 1<<20)
	for range 64 {
		if !s.SendRecord(record) {
			break
		}
	}
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the stream goes on")
	}
	if s.SendRecord(record) {
		t.Error("an event is taken for a client that is gone")
	}
}
