// Package client is the Go client of the scheduler's HTTP API. The command line
// is built on it. It must never hold logic beyond asking and decoding.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tandem/api"
	"tandem/internal/execstream"
	"tandem/scheduler/wire"
)

// DefaultServer is where a scheduler listens unless it is told otherwise.
const DefaultServer = "http://127.0.0.1:7070"

// Client asks one scheduler. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
	// sessions makes connections that are handed over.
	sessions *http.Client
}

// Error is an answer of the scheduler that is not 2xx.
type Error struct {
	Status int
	wire.Problem
}

func (e *Error) Error() string { return e.Message }

// UnreachableError says that no scheduler answers.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string {
	reason := e.Err.Error()
	var op *net.OpError
	if errors.As(e.Err, &op) {
		reason = op.Err.Error()
		if i := strings.LastIndex(reason, ": "); i >= 0 {
			reason = reason[i+2:]
		}
	}
	return fmt.Sprintf("scheduler %s: %s; start one with \"tandem local\" or set --server/TANDEM_SERVER", e.Server, reason)
}

// Unwrap returns the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

// New returns a client of the scheduler at server, a base URL; empty means DefaultServer.
func New(server string) (*Client, error) {
	if server == "" {
		server = DefaultServer
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(strings.TrimSuffix(server, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("server %q is no address; use http://host:port", server)
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, ResponseHeaderTimeout: 60 * time.Second, MaxIdleConnsPerHost: 4,
	}
	sessions := transport.Clone()
	sessions.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := transport.DialContext(ctx, network, address)
		if err == nil {
			execstream.Abrupt(conn)
		}
		return conn, err
	}
	return &Client{base: base, http: &http.Client{Transport: transport}, sessions: &http.Client{Transport: sessions}}, nil
}

// Server is the address that is asked.
func (c *Client) Server() string { return c.base.String() }

// Apply declares documents, all or none.
func (c *Client) Apply(ctx context.Context, req wire.ApplyRequest) (*wire.ApplyResponse, error) {
	return do[wire.ApplyResponse](ctx, c, http.MethodPost, "/v1/apply", nil, req)
}

// Objects lists the objects of a kind; an empty namespace means all.
func (c *Client) Objects(ctx context.Context, kind api.Kind, namespace string) ([]wire.Object, error) {
	return list[wire.Object](ctx, c, "/v1/objects/"+url.PathEscape(string(kind)), namespace)
}

// Object returns one object.
func (c *Client) Object(ctx context.Context, ref api.Ref) (*wire.Object, error) {
	return do[wire.Object](ctx, c, http.MethodGet, path(ref), nil, nil)
}

// Delete removes an object; a workload goes when nothing of it runs any more.
func (c *Client) Delete(ctx context.Context, ref api.Ref) error {
	_, err := do[api.Ref](ctx, c, http.MethodDelete, path(ref), nil, nil)
	return err
}

// Scale sets the number of instances of a workload.
func (c *Client) Scale(ctx context.Context, ref api.Ref, replicas int) error {
	_, err := do[api.Ref](ctx, c, http.MethodPost, path(ref)+"/scale", nil, wire.ScaleRequest{Replicas: replicas})
	return err
}

// Restart replaces every taskgroup of a workload, one at a time.
func (c *Client) Restart(ctx context.Context, ref api.Ref) error {
	_, err := do[api.Ref](ctx, c, http.MethodPost, path(ref)+"/restart", nil, nil)
	return err
}

// RestartTaskgroup replaces one taskgroup, named by its id or its name.
func (c *Client) RestartTaskgroup(ctx context.Context, namespace, name string) error {
	_, err := do[struct{}](ctx, c, http.MethodPost, "/v1/taskgroups/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/restart", nil, nil)
	return err
}

// Message sends a message to the executor of a taskgroup, named by its id or its
// name, and waits for what came of it, 20 seconds at most, 50 for a reload, a
// restart and a commit. That the executor
// refuses it is an Error with the code conflict, that it does not answer one
// with the code timeout. The scheduler chooses the message's id.
func (c *Client) Message(ctx context.Context, namespace, taskgroup string, m *api.Message) (*api.MessageResult, error) {
	return do[api.MessageResult](ctx, c, http.MethodPost, "/v1/taskgroups/"+url.PathEscape(namespace)+"/"+url.PathEscape(taskgroup)+"/messages", nil, m)
}

// Events lists what happened to an object lately, oldest first.
func (c *Client) Events(ctx context.Context, ref api.Ref) ([]wire.Event, error) {
	return list[wire.Event](ctx, c, path(ref)+"/events", "")
}

// Taskgroups lists taskgroups; an empty namespace means all.
func (c *Client) Taskgroups(ctx context.Context, namespace string) ([]wire.Taskgroup, error) {
	return list[wire.Taskgroup](ctx, c, "/v1/taskgroups", namespace)
}

// Agents lists the agents that the scheduler knows.
func (c *Client) Agents(ctx context.Context) ([]wire.Agent, error) {
	return list[wire.Agent](ctx, c, "/v1/agents", "")
}

// LogOptions choose a part of a task's output.
type LogOptions struct {
	// Stream is stdout (also when empty), stderr, or a file of a process's logPath:
	// log for the one written to last, log/NAME for that of a name.
	Stream string
	Follow bool
	// Tail is the number of lines from the end; negative means all.
	Tail int
}

// Logs reads the output of a task; task is its name or id, or "-" for the only
// one. The caller closes it.
func (c *Client) Logs(ctx context.Context, taskgroup, task string, o LogOptions) (io.ReadCloser, error) {
	q := url.Values{"tail": {strconv.Itoa(o.Tail)}, "stream": {o.Stream}}
	if o.Follow {
		q.Set("follow", "1")
	}
	resp, err := c.send(ctx, http.MethodGet, taskPath(taskgroup, task)+"/logs", q, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// LogFiles lists the files that the logPath of a running process names, the one
// written to last first; there are none without a logPath.
func (c *Client) LogFiles(ctx context.Context, taskgroup, task string) ([]api.LogFile, error) {
	return list[api.LogFile](ctx, c, taskPath(taskgroup, task)+"/logfiles", "")
}

func taskPath(taskgroup, task string) string {
	return "/v1/taskgroups/" + url.PathEscape(taskgroup) + "/tasks/" + url.PathEscape(task)
}

func path(ref api.Ref) string {
	return "/v1/objects/" + url.PathEscape(string(ref.Kind)) + "/" + url.PathEscape(ref.Namespace) + "/" + url.PathEscape(ref.Name)
}

func list[T any](ctx context.Context, c *Client, path, namespace string) ([]T, error) {
	q := url.Values{}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	out, err := do[[]T](ctx, c, http.MethodGet, path, q, nil)
	if err != nil {
		return nil, err
	}
	return *out, nil
}

func do[T any](ctx context.Context, c *Client, method, path string, q url.Values, body any) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := c.send(ctx, method, path, q, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(T)
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return nil, fmt.Errorf("scheduler %s: %s %s: answer is no JSON: %w", c.base, method, path, err)
	}
	return out, nil
}

// send returns a 2xx answer, or that to an Upgrade, or an error.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, body any, header ...string) (*http.Response, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		reader = bytes.NewReader(b)
	}
	target := c.base.String() + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", target, err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	by := c.http
	if req.Header.Get("Upgrade") != "" {
		by = c.sessions
	}
	resp, err := by.Do(req)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ctx.Err()
		}
		return nil, &UnreachableError{Server: c.base.String(), Err: err}
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("scheduler %s: %w", c.base, err)
	}
	e := &Error{Status: resp.StatusCode}
	if json.Unmarshal(text, &e.Problem) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("scheduler %s: %s %s: %s %s", c.base, method, path, resp.Status, strings.TrimSpace(string(text)))
	}
	return nil, e
}
