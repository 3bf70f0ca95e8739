package master

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
	"go.uber.org/goleak"

	"tandem/localmesos/internal/wire"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(runChild(dir))
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience bounds every wait; nothing waits that long unless it fails.
const patience = 30 * time.Second

// startMaster runs a master with short intervals.
func startMaster(t *testing.T, change func(*Flags)) *Master {
	t.Helper()
	flags := Flags{Registry: RegistryInMemory, AllocationInterval: 20 * time.Millisecond, AgentPingTimeout: time.Minute}
	if change != nil {
		change(&flags)
	}
	m, err := New(flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkBooks(t, m)
		m.Close()
	})
	return m
}

// records reads a stream in the background.
type records[E any] struct {
	mu     sync.Mutex
	events []E
	wake   chan struct{}
	ended  bool
	cancel context.CancelFunc
	status int
	header http.Header
	body   string
}

func open[E any](t *testing.T, url string, header map[string]string, body []byte, decode func([]byte) E) *records[E] {
	t.Helper()
	r, err := tryOpen(t, url, header, body, decode)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tryOpen returns the error of a server that is not there, or not any more.
func tryOpen[E any](t *testing.T, url string, header map[string]string, body []byte, decode func([]byte) E) (*records[E], error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &records[E]{cancel: cancel, wake: make(chan struct{})}
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	// A transport of its own: cancelling must break the connection.
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.status, r.header = resp.StatusCode, resp.Header
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		r.body = string(b)
		return r, nil
	}
	go func() {
		defer resp.Body.Close()
		in := wire.NewRecordReader(resp.Body)
		for {
			b, err := in.Next()
			r.mu.Lock()
			if err != nil {
				r.ended = true
			} else {
				r.events = append(r.events, decode(b))
			}
			close(r.wake)
			r.wake = make(chan struct{})
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return r, nil
}

// tryPost sends a body of JSON and returns the error of a server that does not answer.
func tryPost(t *testing.T, url, body string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// next removes and returns the first event that is wanted; earlier ones stay.
func (r *records[E]) next(t *testing.T, what string, want func(E) bool) E {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		i := slices.IndexFunc(r.events, want)
		wake, ended := r.wake, r.ended
		if i >= 0 {
			e := r.events[i]
			r.events = slices.Delete(r.events, i, i+1)
			r.mu.Unlock()
			return e
		}
		seen := fmt.Sprintf("%+v", r.events)
		r.mu.Unlock()
		if ended {
			t.Fatalf("%s did not come before the stream ended; there were %s", what, seen)
		}
		select {
		case <-wake:
		case <-deadline:
			t.Fatalf("%s did not come; there were %s", what, seen)
		}
	}
}

// none fails if an event is there or comes within d.
func (r *records[E]) none(t *testing.T, what string, d time.Duration, bad func(E) bool) {
	t.Helper()
	deadline := time.After(d)
	for {
		r.mu.Lock()
		i := slices.IndexFunc(r.events, bad)
		wake := r.wake
		r.mu.Unlock()
		if i >= 0 {
			t.Fatalf("%s came", what)
		}
		select {
		case <-wake:
		case <-deadline:
			return
		}
	}
}

func (r *records[E]) waitEnd(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		ended, wake := r.ended, r.wake
		r.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-wake:
		case <-deadline:
			t.Fatal("the stream did not end")
		}
	}
}

// client is a framework.
type client struct {
	*records[scheduler.Event]
	m    *Master
	id   string
	info string
	mt   wire.MediaType
}

const multiRole = `"capabilities":[{"type":"MULTI_ROLE"}],"roles":["*"]`

// subscribe makes a framework whose FrameworkInfo has these further fields.
func subscribe(t *testing.T, m *Master, id, fields string) *client {
	t.Helper()
	c := trySubscribe(t, m, id, fields)
	e := c.next(t, "SUBSCRIBED", ofType(scheduler.Event_SUBSCRIBED))
	c.id = e.Subscribed.FrameworkID.Value
	return c
}

func trySubscribe(t *testing.T, m *Master, id, fields string) *client {
	t.Helper()
	c := &client{m: m, info: `"user":"root","name":"test",` + fields, mt: wire.JSON}
	body := `{"type":"SUBSCRIBE","subscribe":{"framework_info":{` + c.info + `}}}`
	if id != "" {
		body = `{"type":"SUBSCRIBE","framework_id":{"value":"` + id + `"},"subscribe":{"framework_info":{` + c.info + `,"id":{"value":"` + id + `"}}}}`
	}
	c.records = open(t, m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": "application/json", "Accept": "application/json"}, []byte(body), decodeEvent(t))
	if c.status != http.StatusOK {
		t.Fatalf("SUBSCRIBE: %d %s", c.status, c.body)
	}
	return c
}

func decodeEvent(t *testing.T) func([]byte) scheduler.Event {
	return func(b []byte) scheduler.Event {
		var e scheduler.Event
		if _, err := wire.UnmarshalJSON(b, &e); err != nil {
			t.Errorf("event %s: %v", b, err)
		}
		return e
	}
}

func ofType(types ...scheduler.Event_Type) func(scheduler.Event) bool {
	return func(e scheduler.Event) bool { return slices.Contains(types, e.Type) }
}

// call sends a call: its type, and the rest of the object.
func (c *client) call(t *testing.T, kind, rest string) (int, string) {
	t.Helper()
	body := `{"type":"` + kind + `","framework_id":{"value":"` + c.id + `"}`
	if rest != "" {
		body += "," + rest
	}
	return post(t, c.m.URL()+"/api/v1/scheduler", map[string]string{"Content-Type": "application/json", "Mesos-Stream-Id": c.header.Get("Mesos-Stream-Id")}, body+"}")
}

// must sends a call that is to be accepted.
func (c *client) must(t *testing.T, kind, rest string) {
	t.Helper()
	if status, body := c.call(t, kind, rest); status != http.StatusAccepted {
		t.Fatalf("%s: %d %s", kind, status, body)
	}
}

func post(t *testing.T, url string, header map[string]string, body string) (int, string) {
	t.Helper()
	return request(t, http.MethodPost, url, header, body)
}

func request(t *testing.T, method, url string, header map[string]string, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// offer waits for an offer.
func (c *client) offer(t *testing.T) mesos.Offer {
	t.Helper()
	return c.next(t, "OFFERS", ofType(scheduler.Event_OFFERS)).Offers.Offers[0]
}

// update waits for the next update of a task.
func (c *client) update(t *testing.T, task string) mesos.TaskStatus {
	t.Helper()
	e := c.next(t, "UPDATE of "+task, func(e scheduler.Event) bool {
		return e.Type == scheduler.Event_UPDATE && e.Update.Status.TaskID.Value == task
	})
	return e.Update.Status
}

// describe writes what matters of a status in one line.
func describe(s mesos.TaskStatus) string {
	parts := []string{s.GetState().String(), s.GetSource().String()}
	if s.Reason != nil {
		parts = append(parts, s.Reason.String())
	}
	if s.Message != nil {
		parts = append(parts, *s.Message)
	}
	for name, there := range map[string]bool{"executor": s.ExecutorID != nil, "uuid": s.UUID != nil, "unreachable": s.UnreachableTime != nil} {
		if there {
			parts = append(parts, "+"+name)
		}
	}
	slices.Sort(parts[2:])
	return strings.Join(parts, " ")
}

const (
	someResources = `[{"name":"cpus","type":"SCALAR","scalar":{"value":0.1}},{"name":"mem","type":"SCALAR","scalar":{"value":32}}]`
	groupResource = `[{"name":"cpus","type":"SCALAR","scalar":{"value":0.1}},{"name":"mem","type":"SCALAR","scalar":{"value":32}},{"name":"disk","type":"SCALAR","scalar":{"value":10}}]`
)

// taskJSON is a task; extra begins with a comma when it is not empty.
func taskJSON(id, agent, extra string) string {
	return `{"name":"` + id + `","task_id":{"value":"` + id + `"},"agent_id":{"value":"` + agent + `"},"resources":` + someResources + extra + `}`
}

func executorJSON(id string) string {
	return `,"executor":{"executor_id":{"value":"` + id + `"},"command":{"value":"true"},"resources":` + someResources + `}`
}

// launch accepts an offer with one LAUNCH.
func (c *client) launch(t *testing.T, o mesos.Offer, tasks ...string) {
	t.Helper()
	c.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[{"type":"LAUNCH","launch":{"task_infos":[`+strings.Join(tasks, ",")+`]}}]}`)
}

// launchOnly takes an offer, launches and wants no more offers: they are for
// the other frameworks of the test.
func (c *client) launchOnly(t *testing.T, tasks ...string) {
	t.Helper()
	o := c.offer(t)
	c.must(t, "SUPPRESS", "")
	c.launch(t, o, tasks...)
}

func (c *client) launchGroup(t *testing.T, o mesos.Offer, executor string, tasks ...string) {
	t.Helper()
	c.must(t, "ACCEPT", `"accept":{"offer_ids":[{"value":"`+o.ID.Value+`"}],"filters":{"refuse_seconds":0},"operations":[{"type":"LAUNCH_GROUP","launch_group":{"executor":`+executor+`,"task_group":{"tasks":[`+strings.Join(tasks, ",")+`]}}}]}`)
}

// advance puts the master's clock forward.
func advance(m *Master, d time.Duration) { m.loop.do(func() { m.loop.skew += d }) }

// metric is one number of /metrics/snapshot.
func metric(t *testing.T, m *Master, name string) (v float64) {
	t.Helper()
	m.loop.do(func() {
		value, ok := m.metrics()[name]
		if !ok {
			t.Errorf("there is no metric %s", name)
		}
		v = float64(value)
	})
	return v
}
