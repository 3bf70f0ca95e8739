package mesos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/internal/recordio"
)

// steady is how long a connection must last for the next attempts to begin with the shortest wait.
const steady = time.Second

// Session is a framework's connection to the leading master.
type Session struct {
	cfg     Config
	handler Handler
	http    *transport

	mu  sync.Mutex
	out *sender // nil while there is no connection
}

// New returns a session; Run makes it work.
func New(cfg Config, handler Handler) *Session {
	cfg = cfg.withDefaults()
	return &Session{cfg: cfg, handler: handler, http: newTransport(cfg.TLS, cfg.Principal, cfg.Secret)}
}

// Send queues a call and returns at once; the session fills in the framework
// id. Calls are sent one after the other in the order of Send, except
// acknowledgements, which have an order of their own. Without a connection the
// call is dropped and Send returns false: what was lost with a connection is
// found out by reconciliation, not by sending again.
func (s *Session) Send(call *scheduler.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return false
	}
	s.out.push(call)
	return true
}

// Run keeps the session up until ctx ends (nil), the handler fails or the framework was taken over.
func (s *Session) Run(ctx context.Context) error {
	defer s.http.client.CloseIdleConnections()
	var leader *url.URL
	backoff := s.cfg.MinBackoff
	for attempt := 0; ; attempt++ {
		base := leader
		if base == nil {
			base = s.cfg.Masters[attempt%len(s.cfg.Masters)]
		}
		c := &connection{session: s}
		err := c.run(ctx, base)
		leader = nil
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrFailedOver), errors.Is(err, errHandler):
			return err
		case c.subscribed:
			// The master that led is the likeliest one; its successor is found by redirects.
			leader = c.leader
			if time.Since(c.since) >= steady {
				// One that ends as soon as it begins does not count: that would be a storm.
				backoff = s.cfg.MinBackoff
			}
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		s.cfg.Logger.Warn("no connection to the master", "master", base.Host, "error", err, "next attempt in", wait)
		backoff = min(2*backoff, s.cfg.MaxBackoff)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (s *Session) setSender(out *sender) {
	s.mu.Lock()
	s.out = out
	s.mu.Unlock()
}

// errHandler marks errors of the handler, which end the session.
var errHandler = errors.New("event could not be handled")

// connection is one subscription, from SUBSCRIBE to the end of its stream.
type connection struct {
	session    *Session
	leader     *url.URL
	subscribed bool
	since      time.Time
	heartbeat  time.Duration
}

// run returns when the connection has ended; nothing of it runs any more then.
func (c *connection) run(parent context.Context, base *url.URL) error {
	s := c.session
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	// Until SUBSCRIBED is there, the wait is bounded like a call's.
	watchdog := time.AfterFunc(s.cfg.CallTimeout, func() {
		cancel(fmt.Errorf("no SUBSCRIBED within %v", s.cfg.CallTimeout))
	})
	defer watchdog.Stop()

	info := s.cfg.Framework
	call := &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &info}}
	if id := s.handler.FrameworkID(); id != "" {
		// The id must be in both places or in neither.
		info.ID = &mesos.FrameworkID{Value: id}
		call.FrameworkID = info.ID
	}
	resp, leader, err := s.http.subscribe(ctx, base, call)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer resp.Body.Close()
	c.leader = leader

	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel(nil)
	defer s.setSender(nil)

	events := make(chan scheduler.Event)
	readErr := make(chan error, 1)
	workers.Go(func() {
		readErr <- readEvents(ctx, resp, events)
	})
	// Results of calls come from the senders' goroutines, and are handled in
	// this one: the handler hears of one thing at a time.
	refused := make(chan Refused)
	err = c.loop(parent, ctx, &loopInputs{
		events: events, readErr: readErr, refused: refused, watchdog: watchdog,
		startSender: func(frameworkID *mesos.FrameworkID) {
			out := &sender{
				transport: s.http, base: leader, stream: resp.Header.Get(streamHeader), framework: frameworkID,
				timeout: s.cfg.CallTimeout, refused: refused, fail: cancel, log: s.cfg.Logger,
			}
			out.start(ctx, &workers)
			s.setSender(out)
		},
	})
	if c.subscribed && !errors.Is(err, errHandler) && parent.Err() == nil {
		s.setSender(nil)
		if e := c.handle(parent, Disconnected{Reason: err}); e != nil {
			return e
		}
	}
	return err
}

type loopInputs struct {
	events      <-chan scheduler.Event
	readErr     <-chan error
	refused     <-chan Refused
	watchdog    *time.Timer
	startSender func(*mesos.FrameworkID)
}

func (c *connection) loop(parent, ctx context.Context, in *loopInputs) error {
	for {
		select {
		case e := <-in.events:
			if err := c.event(parent, &e, in); err != nil {
				return err
			}
			if c.subscribed {
				in.watchdog.Reset(c.heartbeat * time.Duration(c.session.cfg.MissedHeartbeats))
			}
		case r := <-in.refused:
			if err := c.handle(parent, r); err != nil {
				return err
			}
		case err := <-in.readErr:
			return causeOf(ctx, fmt.Errorf("the master ended the stream: %w", err))
		case <-ctx.Done():
			return causeOf(ctx, ctx.Err())
		}
	}
}

func (c *connection) handle(ctx context.Context, e Event) error {
	if err := c.session.handler.Handle(ctx, e); err != nil {
		return fmt.Errorf("%w: %w", errHandler, err)
	}
	return nil
}

// event handles one event of the stream.
func (c *connection) event(ctx context.Context, e *scheduler.Event, in *loopInputs) error {
	switch e.GetType() {
	case scheduler.Event_SUBSCRIBED:
		sub := e.GetSubscribed()
		if sub == nil || sub.FrameworkID == nil {
			return errors.New("SUBSCRIBED has no framework id")
		}
		c.subscribed, c.since = true, time.Now()
		if c.heartbeat = time.Duration(sub.GetHeartbeatIntervalSeconds() * float64(time.Second)); c.heartbeat <= 0 {
			c.heartbeat = 15 * time.Second
		}
		// The handler stores a new id before anything can be sent with it.
		ready := Subscribed{FrameworkID: sub.FrameworkID.Value, Master: c.leader, MasterID: sub.GetMasterInfo().GetID(), Heartbeat: c.heartbeat}
		in.startSender(sub.FrameworkID)
		return c.handle(ctx, ready)
	case scheduler.Event_OFFERS:
		return c.handle(ctx, Offered{Offers: e.GetOffers().GetOffers()})
	case scheduler.Event_RESCIND:
		return c.handle(ctx, Rescinded{OfferID: e.GetRescind().GetOfferID().Value})
	case scheduler.Event_UPDATE:
		return c.handle(ctx, Updated{Status: e.GetUpdate().GetStatus()})
	case scheduler.Event_FAILURE:
		f := e.GetFailure()
		return c.handle(ctx, Failure{AgentID: f.GetAgentID().GetValue(), ExecutorID: f.GetExecutorID().GetValue(), Status: int(f.GetStatus())})
	case scheduler.Event_MESSAGE:
		m := e.GetMessage()
		return c.handle(ctx, Messaged{AgentID: m.GetAgentID().Value, ExecutorID: m.GetExecutorID().Value, Data: m.GetData()})
	case scheduler.Event_ERROR:
		return c.errorEvent(ctx, e.GetError().GetMessage())
	default:
		// HEARTBEAT is noticed by its arrival; inverse offers and operation
		// updates have no meaning for this framework.
		return nil
	}
}

// errorEvent handles ERROR, after which the master closes the stream.
func (c *connection) errorEvent(ctx context.Context, message string) error {
	switch {
	case strings.Contains(message, "has been removed"):
		if err := c.handle(ctx, Removed{Message: message}); err != nil {
			return err
		}
	case strings.Contains(message, "failed over"):
		return ErrFailedOver
	}
	return fmt.Errorf("the master refuses the framework: %s", message)
}

// maxRecord is the largest event accepted, in bytes. An OFFERS event of a
// cluster with ten thousand agents has some 20 MiB.
const maxRecord = 256 << 20

// readEvents decodes the stream until it ends.
func readEvents(ctx context.Context, resp *http.Response, events chan<- scheduler.Event) error {
	r := recordio.NewReader(bufio.NewReaderSize(resp.Body, 64<<10), maxRecord)
	for {
		record, err := r.Next()
		if err != nil {
			return err
		}
		var e scheduler.Event
		if err := e.Unmarshal(record); err != nil {
			return fmt.Errorf("event of %d bytes: %w", len(record), err)
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// causeOf prefers the reason for which the connection was given up to the error that came of it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
