package fault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server has a stream at /stream/WHO that sends what is put into events, each
// as a line, and other answers elsewhere.
type server struct {
	*httptest.Server
	set    *Set
	events chan string
}

func serve(t *testing.T, o Options) *server {
	t.Helper()
	o.Role, o.Name = OnMaster, "master"
	s := &server{set: New(o), events: make(chan string, 10)}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, stream := strings.CutPrefix(r.URL.Path, "/stream/")
		if !stream {
			fmt.Fprint(w, "here")
			return
		}
		Identify(r.Context(), Subject{Framework: []string{who}})
		w.WriteHeader(http.StatusOK)
		control := http.NewResponseController(w)
		control.Flush()
		for {
			select {
			case e := <-s.events:
				if _, err := io.WriteString(w, e+"\n"); err != nil {
					return
				}
				control.Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	s.Server = httptest.NewUnstartedServer(s.set.Wrap(handler, func(r *http.Request) Part {
		if strings.HasPrefix(r.URL.Path, "/stream/") {
			return Scheduler
		}
		return Operator
	}))
	s.Config.ConnContext = s.set.ConnContext
	s.Start()
	t.Cleanup(func() { s.set.Close(); s.CloseClientConnections(); s.Close() })
	return s
}

func (s *server) open(t *testing.T, who string) (*bufio.Reader, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/stream/"+who, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body), nil
}

func (s *server) add(t *testing.T, f Fault) Fault {
	t.Helper()
	c, err := NewClient(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	f, err = c.Add(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCut(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{})
	a, err := s.open(t, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.open(t, "b")
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { // both are streams now
		s.set.mu.Lock()
		defer s.set.mu.Unlock()
		n := 0
		for x := range s.set.exchanges {
			if x.stream {
				n++
			}
		}
		return n == 2
	})
	if f := s.add(t, Fault{Kind: Cut, Part: Scheduler, Framework: "a"}); f.Hits != 1 || f.Ended == "" {
		t.Errorf("%+v", f)
	}
	if _, err := a.ReadString('\n'); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream ended in order: %v", err)
	}
	s.events <- "x"
	if line, err := b.ReadString('\n'); line != "x\n" {
		t.Errorf("%q, %v", line, err)
	}
	f := s.add(t, Fault{Kind: Cut, Part: Scheduler, Framework: "b", For: Duration(time.Minute)})
	if _, err := s.open(t, "b"); err == nil {
		t.Error("who is cut off has a stream")
	}
	if _, err := s.open(t, "a"); err != nil {
		t.Error(err)
	}
	if err := s.set.Clear(f.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.open(t, "b"); err != nil {
		t.Error(err)
	}
}

// TestDelay: events are late by the delay, not by its sum, and in order.
func TestDelay(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{})
	a, err := s.open(t, "a")
	if err != nil {
		t.Fatal(err)
	}
	const delay = 300 * time.Millisecond
	f := s.add(t, Fault{Kind: Delay, Part: Scheduler, By: Duration(delay)})
	began := time.Now()
	const events = 30
	for i := range events {
		s.events <- strconv.Itoa(i)
	}
	for i := range events {
		line, err := a.ReadString('\n')
		if err != nil || line != fmt.Sprintln(i) {
			t.Fatalf("%d: %q, %v", i, line, err)
		}
		if i == 0 && time.Since(began) < delay {
			t.Errorf("the first came after %s", time.Since(began))
		}
	}
	if took := time.Since(began); took >= events*delay {
		t.Errorf("all came after %s", took)
	}
	if err := s.set.Clear(f.ID); err != nil {
		t.Fatal(err)
	}
	s.events <- "last"
	if line, err := a.ReadString('\n'); line != "last\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func (s *server) get(t *testing.T, limit time.Duration) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

func TestUnavailableAndFreeze(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Freeze: func(<-chan struct{}) {}})
	s.add(t, Fault{Kind: Unavailable, Part: Scheduler})
	s.add(t, Fault{Kind: Unavailable, Part: Operator, Times: 1})
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
		if code, err := s.get(t, 30*time.Second); code != want {
			t.Errorf("%d, %v, want %d", code, err, want)
		}
	}
	s.add(t, Fault{Kind: Freeze})
	if code, err := s.get(t, 100*time.Millisecond); err == nil {
		t.Errorf("it is frozen and answered %d", code)
	}
	answered := make(chan int, 1)
	go func() {
		code, _ := s.get(t, 30*time.Second)
		answered <- code
	}()
	c, err := NewClient(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.ClearKind(t.Context(), Freeze); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if code := <-answered; code != http.StatusOK {
		t.Errorf("after the thaw: %d", code)
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	acted := make(chan Fault, 1)
	s := serve(t, Options{Process: func(f Fault) { acted <- f }, Rescind: func(Fault) (int, error) { return 0, ErrUnknown }})
	for _, c := range []struct {
		method, path, body string
		header             map[string]string
		want               int
	}{
		{"GET", "/faults", "", nil, 200},
		{"GET", "/faults", "", map[string]string{"Origin": "http://evil.example"}, 403},
		{"GET", "/faults/1", "", nil, 404},
		{"PUT", "/faults", "", nil, 405},
		{"POST", "/faults", `{"kind":"freeze"}`, nil, 415},
		{"POST", "/faults", `{"kind":"freeze"}`, map[string]string{"Content-Type": "text/plain"}, 415},
		{"POST", "/faults", `{"kind":"drop","taks":"t1"}`, map[string]string{"Content-Type": "application/json"}, 400},
		{"POST", "/faults", `{"kind":"drop","for":"soon"}`, map[string]string{"Content-Type": "application/json"}, 400},
		{"POST", "/faults", `{"kind":"lose"}`, map[string]string{"Content-Type": "application/json"}, 400},
		{"POST", "/faults", `{"kind":"rescind"}`, map[string]string{"Content-Type": "application/json"}, 404},
		{"POST", "/faults", strings.Repeat(" ", maxBody+1), map[string]string{"Content-Type": "application/json"}, 400},
		{"DELETE", "/faults/x", "", nil, 400},
		{"DELETE", "/faults/7", "", nil, 404},
		{"DELETE", "/faults?kind=explode", "", nil, 400},
		{"DELETE", "/faults?kind=freeze", "", nil, 200},
	} {
		req, err := http.NewRequest(c.method, s.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, resp.StatusCode, b, c.want)
		}
	}
	s.add(t, Fault{Kind: Kill})
	if f := <-acted; f.Kind != Kill {
		t.Errorf("%v", f)
	}
	far := httptest.NewRequest(http.MethodGet, "/faults", http.NoBody)
	far.RemoteAddr = "192.0.2.7:4711"
	w := httptest.NewRecorder()
	s.Config.Handler.ServeHTTP(w, far)
	if w.Code != http.StatusForbidden {
		t.Errorf("from another machine: %d", w.Code)
	}
}

func TestClientErrors(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "host", "https://127.0.0.1:1", "http://:x", "127.0.0.1"} {
		if _, err := NewClient(address); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	c, err := NewClient(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrDisabled) {
		t.Error(err)
	}
	plain.Close()
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	s := serve(t, Options{})
	if c, err = NewClient(s.URL); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Add(t.Context(), Fault{Kind: Kill}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if _, err := c.Add(t.Context(), Fault{Kind: Lose}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if err := c.Clear(t.Context(), 3); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	s := New(Options{Role: OnAgent, Name: "agent"})
	address := target.Listener.Addr().String()
	c, err := s.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Add(Fault{Kind: Cut, Part: Agent, For: Duration(time.Minute)})
	if err != nil || f.Hits != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("the connection is not cut")
	}
	if _, err := s.DialContext(t.Context(), "tcp", address); !errors.Is(err, errCut) {
		t.Error(err)
	}
	s.ClearAll()
	if c, err = s.DialContext(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if len(s.dialled.open) != 0 {
		t.Error("a closed connection is kept")
	}
}
