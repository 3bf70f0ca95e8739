package mesos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// sender sends the calls of one connection. Two lanes, each in order:
// acknowledgements, which may come by the thousand, and all the rest. In the
// latter the next call goes out only after the one before was answered: a
// RECONCILE that overtook its task's ACCEPT would be answered by "unknown".
type sender struct {
	transport *transport
	base      *url.URL
	stream    string
	framework *mesos.FrameworkID
	timeout   time.Duration
	refused   chan<- Refused
	// fail ends the connection.
	fail context.CancelCauseFunc
	log  *slog.Logger

	acks, calls lane
}

// lane is an unbounded queue with one reader.
type lane struct {
	mu    sync.Mutex
	queue []*scheduler.Call
	wake  chan struct{}
}

func (l *lane) push(c *scheduler.Call) {
	l.mu.Lock()
	l.queue = append(l.queue, c)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lane) take() []*scheduler.Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue
	l.queue = nil
	return q
}

func (s *sender) start(ctx context.Context, workers *sync.WaitGroup) {
	for _, l := range []*lane{&s.acks, &s.calls} {
		l.wake = make(chan struct{}, 1)
		workers.Go(func() { s.run(ctx, l) })
	}
}

func (s *sender) push(c *scheduler.Call) {
	if c.Type == scheduler.Call_ACKNOWLEDGE {
		s.acks.push(c)
		return
	}
	s.calls.push(c)
}

func (s *sender) run(ctx context.Context, l *lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for _, c := range l.take() {
			if ctx.Err() != nil || !s.send(ctx, c) {
				return
			}
		}
	}
}

// send returns false when the connection is of no use any more.
func (s *sender) send(ctx context.Context, call *scheduler.Call) bool {
	call.FrameworkID = s.framework
	callCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.transport.post(callCtx, s.base, s.stream, call, http.StatusAccepted)
	if err == nil {
		resp.Body.Close()
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	var status *statusError
	if !errors.As(err, &status) || status.code >= 500 || streamIsOver(status) {
		// It cannot be known whether the call had its effect. A new
		// subscription makes it certain: calls of the old stream are void then.
		s.fail(fmt.Errorf("%s: %w", call.Type, err))
		return false
	}
	s.log.Error("master refused a call", "call", call.Type.String(), "error", err)
	select {
	case s.refused <- Refused{Call: call, Err: err}:
		return true
	case <-ctx.Done():
		return false
	}
}

// streamIsOver tells whether an answer means that this stream is not the framework's any more.
func streamIsOver(e *statusError) bool {
	if e.code == http.StatusForbidden || e.code == http.StatusUnauthorized {
		return true
	}
	text := strings.ToLower(e.text)
	return e.code == http.StatusBadRequest && (strings.Contains(text, "stream") || strings.Contains(text, "framework cannot be found"))
}
