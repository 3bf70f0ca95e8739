// Package agentlink is an executor's connection to its Mesos agent: the v1
// executor HTTP API, protobuf both ways, over TCP, TLS or a unix socket.
//
// It opens the SUBSCRIBE stream, reads its events and sends calls on another
// connection, and nothing else: when to subscribe again and what to send again
// is the executor's business. It never logs or shows the bearer token. See
// docs/executor-http-api.md of Apache Mesos.
package agentlink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/internal/failpoint"
	"tandem/internal/recordio"
)

// Limits of one exchange. A stream that is open has no limit of its own: the
// agent is on the same machine, and a dead peer closes or resets the connection.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 10 * time.Second
	// maxBody bounds what is read of an answer that should be a short text.
	maxBody = 4 << 10
)

const mediaType = "application/x-protobuf"

// Config says where the agent is and who we are.
type Config struct {
	// Endpoint is the agent's host:port (MESOS_AGENT_ENDPOINT).
	Endpoint string
	// DomainSocket is the path of the agent's unix socket; it is used instead of Endpoint when set.
	DomainSocket string
	// TLS is nil for plain HTTP. It does not matter for a unix socket.
	TLS *tls.Config
	// Token goes with every call; empty means none.
	Token Token
	// FrameworkID and ExecutorID go into every call.
	FrameworkID, ExecutorID string
	// Dial replaces the dialer, for tests; may be nil.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Client speaks to one agent. It is safe for concurrent use.
type Client struct {
	cfg       Config
	url       string
	http      *http.Client
	transport *http.Transport
	// token is what Config.Token or SetToken said last.
	token atomic.Pointer[Token]
}

// New returns a client; nothing is connected yet.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg, url: "http://" + cfg.Endpoint + "/api/v1/executor"}
	c.token.Store(&cfg.Token)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	c.transport = &http.Transport{
		// An executor talks to its own agent only, never through a proxy of the environment.
		Proxy:               nil,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        1,
		IdleConnTimeout:     5 * time.Minute,
		DisableCompression:  true,
		// A large buffer per connection would count in every executor of the agent.
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
	}
	switch {
	case cfg.Dial != nil:
		c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return cfg.Dial(ctx) }
	case cfg.DomainSocket != "":
		c.url = "http://localhost/api/v1/executor"
		c.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", cfg.DomainSocket)
		}
	case cfg.TLS != nil:
		c.url = "https://" + cfg.Endpoint + "/api/v1/executor"
		c.transport.TLSClientConfig = cfg.TLS
	}
	c.http = &http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		// The token must not follow a redirect to anywhere.
		return http.ErrUseLastResponse
	}}
	return c
}

// SetToken replaces the token for all calls that begin from now on.
func (c *Client) SetToken(t Token) { c.token.Store(&t) }

// Close ends idle connections. Open streams end with their context.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Subscribe opens the stream of events; the two lists are what the agent has
// not acknowledged yet, in the order in which it happened. The stream lives
// until ctx ends, the agent ends it, or Close.
func (c *Client) Subscribe(ctx context.Context, tasks []mesos.TaskInfo, updates []executor.Call_Update) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	// The limit is for the answer's header only; it must not end the stream later.
	limit := time.AfterFunc(callTimeout, cancel)
	resp, err := c.post(ctx, &executor.Call{
		Type:      executor.Call_SUBSCRIBE,
		Subscribe: &executor.Call_Subscribe{UnacknowledgedTasks: tasks, UnacknowledgedUpdates: updates},
	})
	if err != nil {
		expired := !limit.Stop()
		cancel()
		if expired {
			err = fmt.Errorf("no answer within %s: %w", callTimeout, err)
		}
		return nil, fmt.Errorf("subscribe with the agent: %w", advise(err))
	}
	if !limit.Stop() {
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("subscribe with the agent: no answer within %s", callTimeout)
	}
	if resp.StatusCode != http.StatusOK {
		err := c.statusError("SUBSCRIBE", resp)
		cancel()
		return nil, err
	}
	if ct := resp.Header.Get("Content-Type"); ct != mediaType {
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("subscribe with the agent: the stream is %q, not %q; is %s an agent?", ct, mediaType, c.cfg.Endpoint)
	}
	return &Stream{body: resp.Body, records: recordio.NewReader(resp.Body, maxRecord), cancel: cancel}, nil
}

// Update sends a status update; nil means that the agent has taken it (202),
// not that it is acknowledged.
func (c *Client) Update(ctx context.Context, status mesos.TaskStatus) error {
	return c.send(ctx, "UPDATE", &executor.Call{Type: executor.Call_UPDATE, Update: &executor.Call_Update{Status: status}})
}

// Message sends data to the framework; it may be lost.
func (c *Client) Message(ctx context.Context, data []byte) error {
	return c.send(ctx, "MESSAGE", &executor.Call{Type: executor.Call_MESSAGE, Message: &executor.Call_Message{Data: data}})
}

// Heartbeat tells the agent that the executor is there, which keeps what is between
// them from taking the connection for idle.
func (c *Client) Heartbeat(ctx context.Context) error {
	return c.send(ctx, "HEARTBEAT", &executor.Call{Type: executor.Call_HEARTBEAT})
}

func (c *Client) send(ctx context.Context, name string, call *executor.Call) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.post(ctx, call)
	if err != nil {
		return fmt.Errorf("send %s to the agent: %w", name, advise(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return c.statusError(name, resp)
	}
	// Reading to the end lets the connection be used again.
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("send %s to the agent: %w", name, err)
	}
	return nil
}

// post sends one call; the caller closes the answer's body.
func (c *Client) post(ctx context.Context, call *executor.Call) (*http.Response, error) {
	call.ExecutorID = mesos.ExecutorID{Value: c.cfg.ExecutorID}
	call.FrameworkID = mesos.FrameworkID{Value: c.cfg.FrameworkID}
	body, err := call.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", call.Type, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	if token := *c.token.Load(); token != "" {
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	if err := failpoint.Inject("agent/", call.Type.String()); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Inject("agent/", call.Type.String(), "/answered"); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// maxRecord is far above any event: a task group with all its specifications.
const maxRecord = 64 << 20

// Stream is one subscription.
type Stream struct {
	body    io.ReadCloser
	records *recordio.Reader
	cancel  context.CancelFunc
}

// Next waits for the next event. io.EOF means that the agent ended the stream.
// An event of a type that this code does not know has type UNKNOWN.
func (s *Stream) Next() (*executor.Event, error) {
	record, err := s.records.Next()
	if errors.Is(err, recordio.ErrMalformed) {
		return nil, fmt.Errorf("events from the agent: %w", err)
	}
	if err != nil {
		return nil, err
	}
	event := new(executor.Event)
	if err := event.Unmarshal(record); err != nil {
		return nil, fmt.Errorf("decode an event of %d bytes from the agent: %w", len(record), err)
	}
	return event, nil
}

// Close ends the stream; a waiting Next returns with an error.
func (s *Stream) Close() {
	s.cancel()
	s.body.Close()
}
