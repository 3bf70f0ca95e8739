package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/internal/recordio"
)

// patience bounds every wait for one thing.
const patience = 60 * time.Second

// maxRecord bounds one event, in bytes.
const maxRecord = 64 << 20

// framework is a scheduler with as little work of its own as can be.
type framework struct {
	master string
	id     mesos.FrameworkID
	stream string
	client *http.Client
	cancel context.CancelFunc
	// offers are held; events takes all others, in order.
	offers chan []mesos.Offer
	events chan *scheduler.Event
	// ended holds why the stream ended, when it did.
	ended chan error
}

// newFramework subscribes; close ends it, and with it its tasks.
func newFramework(ctx context.Context, master string) (*framework, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &framework{master: master, cancel: cancel, client: newClient(), offers: make(chan []mesos.Offer, 10_000),
		events: make(chan *scheduler.Event, 100_000), ended: make(chan error, 1)}
	yes := true
	call := &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &mesos.FrameworkInfo{
		User: "root", Name: "bench", Roles: []string{"*"}, Checkpoint: &yes,
		Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}},
	}}}
	resp, err := f.post(ctx, call) //nolint:bodyclose // read closes it
	if err != nil {
		cancel()
		return nil, err
	}
	f.stream = resp.Header.Get("Mesos-Stream-Id")
	go f.read(ctx, resp.Body)
	select {
	case e := <-f.events:
		if e.Type != scheduler.Event_SUBSCRIBED {
			cancel()
			return nil, fmt.Errorf("the first event is %s", e.Type)
		}
		f.id = *e.Subscribed.FrameworkID
	case <-time.After(patience):
		cancel()
		return nil, errors.New("the master does not answer the subscription")
	}
	return f, nil
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
}

func (f *framework) close() {
	f.cancel()
	f.client.CloseIdleConnections()
}

func (f *framework) read(ctx context.Context, body io.ReadCloser) {
	defer body.Close()
	in := recordio.NewReader(body, maxRecord)
	for {
		b, err := in.Next()
		e := &scheduler.Event{}
		if err == nil {
			err = e.Unmarshal(b)
		}
		if err != nil {
			f.ended <- err
			return
		}
		switch e.Type {
		case scheduler.Event_HEARTBEAT:
			continue
		case scheduler.Event_OFFERS:
			select {
			case f.offers <- e.Offers.Offers:
			case <-ctx.Done():
			}
		default:
			select {
			case f.events <- e:
			case <-ctx.Done():
			}
		}
	}
}

// call sends a call and takes its answer.
func (f *framework) call(ctx context.Context, c *scheduler.Call) error {
	c.FrameworkID = &f.id
	resp, err := f.post(ctx, c)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func (f *framework) post(ctx context.Context, c *scheduler.Call) (*http.Response, error) {
	b, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	resp, err := send(ctx, f.client, f.master+"/api/v1/scheduler", b, http.Header{"Mesos-Stream-Id": {f.stream}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Type, err)
	}
	return resp, nil
}

// send posts a protobuf; an answer that is not 200 or 202 is an error. Empty
// headers are left out.
func send(ctx context.Context, client *http.Client, url string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Accept", "application/x-protobuf")
	for k, v := range header {
		if v[0] != "" {
			req.Header[k] = v
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // the status says enough without it
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp, nil
}

// offersOf collects offers until there are n.
func (f *framework) offersOf(n int) ([]mesos.Offer, error) {
	var out []mesos.Offer
	limit := time.After(patience)
	for len(out) < n {
		select {
		case o := <-f.offers:
			out = append(out, o...)
		case err := <-f.ended:
			return nil, fmt.Errorf("the stream ended: %w", err)
		case <-limit:
			return nil, fmt.Errorf("%d of %d offers after %s", len(out), n, patience)
		}
	}
	return out, nil
}

// acknowledgers is how many acknowledgements are under way at a time.
const acknowledgers = 8

// settle acknowledges updates until n of the wanted state have been, with the
// master's answer; every other terminal state is an error.
func (f *framework) settle(ctx context.Context, n int, want mesos.TaskState) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := make(chan mesos.TaskStatus, 1000)
	done := make(chan error, 1000)
	for range acknowledgers {
		go func() {
			for s := range work {
				err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE, Acknowledge: &scheduler.Call_Acknowledge{
					AgentID: *s.AgentID, TaskID: s.TaskID, UUID: s.UUID}})
				if err != nil || s.GetState() == want {
					select {
					case done <- err:
					case <-ctx.Done():
					}
				}
			}
		}()
	}
	defer close(work)
	limit := time.After(patience)
	for n > 0 {
		select {
		case e := <-f.events:
			if e.Type == scheduler.Event_ERROR {
				return errors.New(e.Error.Message)
			}
			if e.Type != scheduler.Event_UPDATE {
				continue
			}
			s := e.Update.Status
			switch s.GetState() {
			case want, mesos.TASK_STARTING, mesos.TASK_RUNNING, mesos.TASK_FINISHED:
			default:
				return fmt.Errorf("task %s is %s: %s", s.TaskID.Value, s.GetState(), s.GetMessage())
			}
			if len(s.UUID) > 0 {
				work <- s
			}
		case err := <-done:
			if err != nil {
				return err
			}
			n--
		case err := <-f.ended:
			return fmt.Errorf("the stream ended: %w", err)
		case <-limit:
			return fmt.Errorf("%d updates %s are missing after %s", n, want, patience)
		}
	}
	return nil
}

func scalar(name string, value float64) mesos.Resource {
	kind := mesos.SCALAR
	return mesos.Resource{Name: name, Type: &kind, Scalar: &mesos.Value_Scalar{Value: value}}
}
