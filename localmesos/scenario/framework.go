package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/user"
	"strings"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/internal/wire"
)

// framework is a small framework: it subscribes again whenever its stream ends,
// acknowledges every update, asks for the state of its tasks when it is back, and
// holds all offers until a step needs one.
type framework struct {
	r    *runner
	step *frameworkStep
	http *http.Client

	mu        sync.Mutex
	id        string
	stream    string // empty while not subscribed
	times     int    // of subscriptions
	offers    map[string]mesos.Offer
	rescinded int
	failures  int
	tasks     map[string]*task
	last      string // the last thing that went wrong
}

// task is what the framework was told of a task.
type task struct {
	agent   mesos.AgentID
	updates []mesos.TaskStatus
}

func newFramework(r *runner, s *frameworkStep) *framework {
	return &framework{r: r, step: s, offers: map[string]mesos.Offer{}, tasks: map[string]*task{},
		http: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
}

// Times of the framework.
const (
	callTimeout = 10 * time.Second
	retryMin    = 50 * time.Millisecond
	retryMax    = time.Second
)

// run keeps the framework subscribed until ctx ends.
func (f *framework) run(ctx context.Context) {
	defer f.http.CloseIdleConnections()
	pause := retryMin
	for ctx.Err() == nil {
		began := time.Now()
		err := f.session(ctx)
		f.mu.Lock()
		f.stream, f.offers = "", map[string]mesos.Offer{}
		f.last = fmt.Sprint(err)
		f.mu.Unlock()
		f.r.log.Info("the framework is not subscribed", "framework", f.step.name, "error", err)
		if time.Since(began) > retryMax {
			pause = retryMin
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, retryMax)
	}
}

func (f *framework) info() mesos.FrameworkInfo {
	failover := f.step.failover.Seconds()
	info := mesos.FrameworkInfo{User: userName(), Name: f.step.name, Roles: []string{"*"}, Checkpoint: &f.step.checkpoint, FailoverTimeout: &failover,
		Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}
	if f.step.partitionAware {
		info.Capabilities = append(info.Capabilities, mesos.FrameworkInfo_Capability{Type: mesos.FrameworkInfo_Capability_PARTITION_AWARE})
	}
	if f.id != "" {
		info.ID = &mesos.FrameworkID{Value: f.id}
	}
	return info
}

// userName is who the tasks run as: the one who runs the scenario.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// session subscribes and takes events until the stream ends.
func (f *framework) session(ctx context.Context) error {
	f.mu.Lock()
	info := f.info()
	f.mu.Unlock()
	resp, err := f.post(ctx, &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, FrameworkID: info.ID, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &info}}, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	stream := resp.Header.Get("Mesos-Stream-Id")
	records := wire.NewRecordReader(resp.Body)
	for {
		b, err := records.Next()
		if err != nil {
			return err
		}
		var e scheduler.Event
		if _, err := wire.Unmarshal(wire.Protobuf, b, &e); err != nil {
			return err
		}
		if err := f.event(ctx, &e, stream); err != nil {
			return err
		}
	}
}

// event takes an event; only the session's goroutine calls it.
func (f *framework) event(ctx context.Context, e *scheduler.Event, stream string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Type {
	case scheduler.Event_SUBSCRIBED:
		f.id, f.stream = e.Subscribed.FrameworkID.Value, stream
		if f.times++; f.times > 1 {
			f.unlocked(func() { f.reconcile(ctx) })
		}
	case scheduler.Event_OFFERS:
		for _, o := range e.Offers.Offers {
			f.offers[o.ID.Value] = o
		}
	case scheduler.Event_RESCIND:
		delete(f.offers, e.Rescind.OfferID.Value)
		f.rescinded++
	case scheduler.Event_FAILURE:
		f.failures++
	case scheduler.Event_UPDATE:
		s := e.Update.Status
		t := f.tasks[s.TaskID.Value]
		if t == nil {
			t = &task{}
			f.tasks[s.TaskID.Value] = t
		}
		t.updates = append(t.updates, s)
		if len(s.UUID) > 0 {
			f.unlocked(func() {
				// If it does not arrive, the update comes again.
				_ = f.call(ctx, &scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE,
					Acknowledge: &scheduler.Call_Acknowledge{AgentID: *s.AgentID, TaskID: s.TaskID, UUID: s.UUID}})
			})
		}
	case scheduler.Event_ERROR:
		return fmt.Errorf("the master says: %s", e.Error.Message)
	default:
	}
	return nil
}

// unlocked does something that takes time while the lock is held.
func (f *framework) unlocked(do func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	do()
}

func (f *framework) post(ctx context.Context, c *scheduler.Call, stream string) (*http.Response, error) {
	b, err := wire.Marshal(wire.Protobuf, c)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.r.cluster.MasterURL()+"/api/v1/scheduler", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(wire.Protobuf))
	req.Header.Set("Accept", string(wire.Protobuf))
	if stream != "" {
		req.Header.Set("Mesos-Stream-Id", stream)
	}
	return f.http.Do(req)
}

func refusal(resp *http.Response) error {
	const enough = 500
	text, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // what there is of it
	return fmt.Errorf("the master answered %s: %s", resp.Status, strings.TrimSpace(string(text)))
}

// call makes a call other than SUBSCRIBE.
func (f *framework) call(ctx context.Context, c *scheduler.Call) error {
	f.mu.Lock()
	stream := f.stream
	c.FrameworkID = &mesos.FrameworkID{Value: f.id}
	f.mu.Unlock()
	if stream == "" {
		return errors.New("the framework is not subscribed")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := f.post(ctx, c, stream)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return refusal(resp)
	}
	return nil
}
