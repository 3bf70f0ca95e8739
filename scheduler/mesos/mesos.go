// Package mesos is the scheduler's session with the leading Mesos master over
// the v1 scheduler API: it subscribes, and does so again whenever the connection
// is lost, hands the master's events to a Handler in their order, and sends
// calls in theirs. It is for the scheduler's controller. It must never decide
// anything about tasks: it keeps no state beyond the connection.
//
// Source: docs/scheduler-http-api.md of Apache Mesos, and what a recorded
// master does where that says otherwise.
package mesos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

// ErrFailedOver ends a session: another scheduler has subscribed with the same
// framework id, and going on would take the framework back and forth.
var ErrFailedOver = errors.New("another scheduler has subscribed with this framework id; it is in charge now")

// Config says how to reach the masters and as whom to subscribe.
type Config struct {
	// Masters are base URLs, see ParseMasters. Any of them may be the leader or know it.
	Masters []*url.URL
	// Framework is what to subscribe as, without an id.
	Framework mesos.FrameworkInfo
	// Principal and Secret are sent by HTTP basic authentication when Principal is not empty.
	Principal, Secret string
	// TLS is used for https masters and agents; nil means the system's certificates.
	TLS *tls.Config
	// CallTimeout bounds each call, and the wait for SUBSCRIBED; default 10 s.
	CallTimeout time.Duration
	// MissedHeartbeats is how many intervals without any event end a connection; default 3.
	MissedHeartbeats int
	// MinBackoff and MaxBackoff bound the waits between attempts to
	// subscribe; default 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	Logger                 *slog.Logger
}

// Handler receives events, one at a time, from a goroutine of the session.
type Handler interface {
	// FrameworkID returns the stored id to subscribe with; empty for a new framework.
	FrameworkID() string
	// Handle takes an event. It returns once the event's effect is certain: for
	// Subscribed and Removed after the framework id is stored, since the next
	// step of the session depends on it. An error ends the session.
	Handle(ctx context.Context, e Event) error
}

// Event is what happens to the session: one of the types below.
type Event interface{ event() }

// Subscribed opens a connection. Everything that belonged to the one before is
// void, offers above all.
type Subscribed struct {
	FrameworkID string
	// Master is the base URL of the leader that answered.
	Master *url.URL
	// MasterID changes when another master leads, or the same one was restarted.
	MasterID  string
	Heartbeat time.Duration
}

// Disconnected ends a connection that had been subscribed.
type Disconnected struct{ Reason error }

// Removed says that the master has removed the framework for good, by TEARDOWN
// or because its failover timeout passed. All its tasks are gone, and it must
// subscribe as a new one.
type Removed struct{ Message string }

// Offered brings offers.
type Offered struct{ Offers []mesos.Offer }

// Rescinded takes an offer back.
type Rescinded struct{ OfferID string }

// Updated is a task's status. One with a UUID wants to be acknowledged.
type Updated struct{ Status mesos.TaskStatus }

// Failure tells of an agent that was lost, or, with an ExecutorID, of an
// executor that ended.
type Failure struct {
	AgentID, ExecutorID string
	// Status is the raw wait status of the executor, -1 when it never started.
	Status int
}

// Messaged brings what an executor says to its framework. Mesos may lose it.
type Messaged struct {
	AgentID, ExecutorID string
	Data                []byte
}

// Refused says that the master answered a call by an error, so that it had no
// effect. Calls whose outcome is unknown end the connection instead.
type Refused struct {
	Call *scheduler.Call
	Err  error
}

func (Subscribed) event()   {}
func (Disconnected) event() {}
func (Removed) event()      {}
func (Offered) event()      {}
func (Rescinded) event()    {}
func (Updated) event()      {}
func (Failure) event()      {}
func (Messaged) event()     {}
func (Refused) event()      {}

// ParseMasters reads a comma-separated list of masters: host:port or
// http(s)://host:port; 5050 where no port is given.
func ParseMasters(list string) ([]*url.URL, error) {
	var out []*url.URL
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if strings.HasPrefix(part, "zk://") {
			return nil, fmt.Errorf("master %q: zk:// is not supported yet; list the masters as host:port,host:port", part)
		}
		raw := part
		if !strings.Contains(raw, "://") {
			raw = "http://" + raw
		}
		u, err := url.Parse(raw)
		if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("master %q is not an address; use host:port or http(s)://host:port", part)
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "5050")
		}
		u.Path = ""
		out = append(out, u)
	}
	if len(out) == 0 {
		return nil, errors.New("no master is given; use --master host:port")
	}
	return out, nil
}

func (c Config) withDefaults() Config {
	if c.CallTimeout <= 0 {
		c.CallTimeout = 10 * time.Second
	}
	if c.MissedHeartbeats <= 0 {
		c.MissedHeartbeats = 3
	}
	if c.MinBackoff <= 0 {
		c.MinBackoff = 100 * time.Millisecond
	}
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
