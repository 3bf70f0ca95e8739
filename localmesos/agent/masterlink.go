package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/version"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// masterLink is the loop's view of the connection to the master.
type masterLink struct {
	// out takes the agent's messages while the agent is registered; nil otherwise.
	out *outbox
	// early keeps the ends of executors between the recovery and the first
	// registration: the master is to hear of them.
	early     []*link.Call
	recovered bool
	// held are updates that wait until their executor has been answered; hold
	// makes forward put them there.
	hold bool
	held []*link.Call
}

// Pauses between attempts to reach the master.
const (
	connectMin = 50 * time.Millisecond
	connectMax = time.Second
)

// comeBackPause lies between a lost master's first sign of life and the agent's
// registration there. Apache Mesos's agents come about as late; frameworks get
// used to the gap here, too.
const comeBackPause = 500 * time.Millisecond

// callTimeout bounds one message to the master.
const callTimeout = 30 * time.Second

// connect keeps the agent registered until it ends.
func (a *Agent) connect() {
	base, err := a.flags.masterURL()
	if err != nil {
		a.end(err) // Validate let no such flag pass
		return
	}
	tlsConfig, err := ssl.Client(a.flags.SSL)
	if err != nil {
		a.end(err) // New let no such flag pass
		return
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2,
		DialContext: a.faults.DialContext, TLSClientConfig: tlsConfig}}
	defer client.CloseIdleConnections()
	pause := connectMin
	lost := false
	for last := ""; ; {
		began := a.clock.Now()
		var err error
		if lost {
			err = a.awaitMaster(client, base)
		}
		if err == nil {
			err = a.session(client, base)
			lost = a.wasRegistered()
		}
		if a.ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != last {
			a.log.Warn("not connected to the master", "master", base, "error", err)
			last = text
		}
		if a.clock.Now().Sub(began) > connectMax {
			pause, last = connectMin, ""
		}
		select {
		case <-time.After(pause):
		case <-a.ctx.Done():
			return
		}
		pause = min(2*pause, connectMax)
	}
}

// awaitMaster returns nil when a master answers and has had time to settle.
func (a *Agent) awaitMaster(client *http.Client, base string) error {
	ctx, stop := context.WithTimeout(a.ctx, callTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/health", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	select {
	case <-time.After(comeBackPause):
		return nil
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	}
}

// wasRegistered tells whether a master has accepted the agent since its start.
func (a *Agent) wasRegistered() bool {
	select {
	case <-a.registered:
		return true
	default:
		return false
	}
}

// session is one stream from the master: it registers, reads events until the
// stream breaks, and says why it did.
func (a *Agent) session(client *http.Client, base string) error {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	var body []byte
	var err error
	if !a.durably(ctx, func() { body, err = json.Marshal(a.subscription()) }) {
		return errClosed
	}
	if err != nil {
		return fmt.Errorf("encoding the registration: %w", err)
	}
	resp, err := post(ctx, client, base+link.Path+"/subscribe", body, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal("registering", resp)
	}
	out := newOutbox(func(body []byte) error {
		ctx, stop := context.WithTimeout(ctx, callTimeout)
		defer stop()
		resp, err := post(ctx, client, base+link.Path+"/call", body, resp.Header.Get(link.StreamHeader))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return refusal("sending a message", resp)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}, cancel)
	var sender sync.WaitGroup
	sender.Go(func() { out.run(ctx) })
	err = a.readEvents(ctx, cancel, resp.Body, out)
	cancel(err)
	sender.Wait()
	// The next session must not begin before the loop knows that this one is over.
	a.loop.do(a.ctx, func() { a.disconnected(out) })
	return err
}

func (a *Agent) readEvents(ctx context.Context, cancel context.CancelCauseFunc, body io.Reader, out *outbox) error {
	records := wire.NewRecordReader(body)
	var silence *time.Timer
	timeout := time.Duration(0)
	for {
		b, err := records.Next()
		if err != nil {
			// What came before the end counts, above all the word to end: a master that
			// refuses this agent closes the stream right behind it.
			a.loop.do(ctx, func() {})
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("the stream from the master ended: %w", err)
		}
		ev := &link.Event{}
		if err := json.Unmarshal(b, ev); err != nil {
			return fmt.Errorf("an event of the master cannot be read: %w", err)
		}
		if ev.Registered != nil {
			timeout = time.Duration(ev.Registered.TotalPingTimeoutSeconds * float64(time.Second))
		}
		if ev.Type == link.EventPing && timeout > 0 {
			if silence == nil {
				silence = time.AfterFunc(timeout, func() { cancel(fmt.Errorf("no ping of the master for %s", timeout)) })
				defer silence.Stop()
			}
			silence.Reset(timeout)
		}
		// Also when the stream has ended meanwhile: its last word may be to shut down.
		// The loop hears of the end after all that came before it.
		a.loop.post(func() { a.event(ev, out) })
	}
}

func post(ctx context.Context, client *http.Client, url string, body []byte, stream string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(wire.JSON))
	req.Header.Set("User-Agent", version.UserAgent("tandem-agent"))
	if stream != "" {
		req.Header.Set(link.StreamHeader, stream)
	}
	return client.Do(req)
}

// refusal is an answer other than the good one.
func refusal(what string, resp *http.Response) error {
	const enough = 1000
	text, _ := io.ReadAll(io.LimitReader(resp.Body, enough))
	return fmt.Errorf("%s: the master answered %s: %s", what, resp.Status, bytes.TrimSpace(text))
}

// outbox sends messages in order beside the loop, those that wait together.
type outbox struct {
	send   func([]byte) error
	fail   context.CancelCauseFunc
	mu     sync.Mutex
	queue  [][]byte
	wake   chan struct{}
	closed bool
	idle   *sync.Cond
	busy   bool
}

func newOutbox(send func([]byte) error, fail context.CancelCauseFunc) *outbox {
	o := &outbox{send: send, fail: fail, wake: make(chan struct{}, 1)}
	o.idle = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) put(c *link.Call) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.queue = append(o.queue, b)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// run sends until ctx ends. What could not be sent is dropped: updates come
// again, and the registration tells the rest.
func (o *outbox) run(ctx context.Context) {
	defer func() {
		o.mu.Lock()
		o.closed = true
		o.idle.Broadcast()
		o.mu.Unlock()
	}()
	for {
		o.mu.Lock()
		n := min(len(o.queue), link.MaxCalls)
		b := bytes.Join(o.queue[:n], []byte{'\n'})
		o.queue, o.busy = o.queue[n:], n > 0
		if n == 0 {
			o.idle.Broadcast()
		}
		o.mu.Unlock()
		if n == 0 {
			select {
			case <-o.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		if err := o.send(b); err != nil {
			o.fail(err)
			return
		}
	}
}

// flush waits until all is sent, or the connection is over.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && (o.busy || len(o.queue) > 0) {
		o.idle.Wait()
	}
}

// tell sends a message to the master. Without a registration it is dropped,
// except for ends of executors before the first one.
func (a *Agent) tell(c *link.Call) {
	a.flushHeld()
	a.put(c)
}

// flushHeld sends the updates that were held back.
func (a *Agent) flushHeld() {
	held := a.master.held
	a.master.held = nil
	for _, c := range held {
		a.put(c)
	}
}

func (a *Agent) put(c *link.Call) {
	switch {
	case a.master.out != nil:
		to := a.master.out
		for range a.copiesOf(c) {
			a.out(func() {
				if err := to.put(c); err != nil {
					a.log.Error("a message cannot be encoded", "type", c.Type, "error", err)
				}
			})
		}
	case c.Type == link.CallExited && a.master.recovered:
		a.master.early = append(a.master.early, c)
	default:
		a.log.Debug("a message is dropped: not registered", "type", c.Type)
	}
}

// unregister tells the master that this agent will not come back, if it can.
func (a *Agent) unregister() {
	var out *outbox
	a.durably(a.ctx, func() {
		if out = a.master.out; out != nil {
			a.tell(&link.Call{Type: link.CallUnregister, Unregist: &mesos.AgentID{Value: a.id()}})
		}
	})
	if out != nil {
		out.flush()
	}
}

// errMasterSaidSo is the cause of an end that the master wanted.
var errMasterSaidSo = errors.New("the master shut the agent down")
