// Package engine speaks the dozen calls of the Docker Engine API that the
// container runtime makes, over the engine's unix socket.
//
// It is small on purpose. An executor runs once per taskgroup, and the official
// client brings tracing and transports that nobody here uses: measured with Go
// 1.26, 0.8 MB of private memory and 0.7 MB of binary before the first call.
// Version 1.41 (Docker 20.10) is spoken; with an engine that refuses it, the
// newest that both sides know. Every call has a deadline of its own. The package
// must never retry what may have been done: only its caller knows what may be done twice.
package engine

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
	"sync/atomic"
	"time"

	"tandem/internal/failpoint/calls"
)

// DefaultHost is where a Docker Engine listens unless told otherwise.
const DefaultHost = "unix:///var/run/docker.sock"

// The versions of the API: oldest is what engines from 20.10 on speak, newest
// the last one whose meaning of our calls is known.
const (
	oldest = 41
	newest = 51
)

// The deadlines of the calls. Creating and starting wait for storage and network
// set-up on a busy machine; looking and signalling should be quick, and so should
// the beginning of a stream. A stream itself lives as long as its caller wants.
const (
	slow  = 90 * time.Second
	quick = 15 * time.Second
)

// Client talks to one engine. It may be used by several goroutines.
type Client struct {
	host string
	path string
	http *http.Client
	// slow and quick are the deadlines; tests have shorter ones.
	slow, quick time.Duration
	// minor is the agreed version 1.<minor>; 0 before the first answer.
	minor atomic.Int32
}

// New returns a client for host, such as unix:///var/run/docker.sock. It does not connect.
func New(host string) (*Client, error) {
	if host == "" {
		host = DefaultHost
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("docker host %q: only the socket of an engine on this machine can be used; give it as unix:///path/to/docker.sock", host)
	}
	c := &Client{host: host, path: path, slow: slow, quick: quick}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c.http = &http.Client{Transport: calls.Transport("engine", &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2,
		// A task may run for months: nothing is kept open for it in between.
		IdleConnTimeout: 10 * time.Second,
	})}
	return c, nil
}

// Host returns the address that the client was made for.
func (c *Client) Host() string { return c.host }

// SocketPath returns the path of the engine's socket.
func (c *Client) SocketPath() string { return c.path }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer of the engine other than success.
type Error struct {
	// Op says what was asked for.
	Op string
	// Status is the HTTP status.
	Status int
	// Message is the engine's own text.
	Message string
}

// Error renders "op: message".
func (e *Error) Error() string { return e.Op + ": " + e.Message }

// UnreachableError says that there was no answer: no engine, a broken
// connection, or a deadline that passed. What was asked for may have happened.
type UnreachableError struct {
	Op, Host string
	Err      error
}

// Error names the engine's address and the remedy.
func (e *UnreachableError) Error() string {
	var op *net.OpError
	if errors.As(e.Err, &op) && op.Op == "dial" {
		return fmt.Sprintf("docker host %s: cannot connect: %v; start a Docker Engine (20.10 or later) or run process tasks only", e.Host, op.Err)
	}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		return fmt.Sprintf("docker host %s: %s: no answer in time; see whether the Docker Engine hangs (docker info)", e.Host, e.Op)
	}
	return fmt.Sprintf("docker host %s: %s: %v", e.Host, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// IsNotFound reports whether the engine does not know what was named.
func IsNotFound(err error) bool { return status(err) == http.StatusNotFound }

// IsConflict reports whether a name is taken or the state forbids the call.
func IsConflict(err error) bool { return status(err) == http.StatusConflict }

// IsUnreachable reports whether it is unknown what the engine made of the call.
func IsUnreachable(err error) bool {
	var u *UnreachableError
	return errors.As(err, &u)
}

func status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// request is one call.
type request struct {
	op, method, path string
	query            url.Values
	// body is encoded as JSON unless it is an io.Reader, which is sent as a tar stream.
	body   any
	header http.Header
	// timeout bounds the call up to the whole answer; 0 leaves that to the context.
	timeout time.Duration
}

// do makes a call and decodes its answer into out, unless out is nil.
func (c *Client) do(ctx context.Context, r request, out any) error {
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		// Read to the end, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return &UnreachableError{Op: r.op, Host: c.host, Err: err}
	}
	return nil
}

// open makes a call and returns its answer, whose body the caller closes. The
// first one is made in the oldest version, which nearly every engine speaks, so
// that a launch does not wait for the question which one it is to be.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	v := c.minor.Load()
	if _, once := r.body.(io.Reader); v == 0 && once {
		var err error
		if v, err = c.version(ctx); err != nil {
			return nil, err
		}
	}
	resp, err := c.send(ctx, r, prefix(max(v, oldest)))
	switch status(err) {
	case 0:
		if err == nil {
			c.minor.CompareAndSwap(0, oldest)
		}
		return resp, err
	case http.StatusBadRequest, http.StatusNotFound:
		// So says also an engine that does not speak this version, and what is none.
	default:
		return nil, err
	}
	if v != 0 {
		return nil, err
	}
	// Nothing was done, so it may be asked for again.
	agreed, verr := c.version(ctx)
	if verr != nil {
		return nil, verr
	}
	if agreed == oldest || status(err) == http.StatusNotFound {
		return nil, err
	}
	return c.send(ctx, r, prefix(agreed))
}

func prefix(minor int32) string { return "/v1." + strconv.Itoa(int(minor)) }

// stream is open for an answer that goes on as long as its reader wants: only its
// beginning has a deadline. After a connection was handed over the context means
// nothing for it any more.
func (c *Client) stream(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.quick, func() { cancel(context.DeadlineExceeded) })
	resp, err := c.open(ctx, r)
	late.Stop()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		err = &UnreachableError{Op: r.op, Host: c.host, Err: context.DeadlineExceeded}
		fallthrough
	case err != nil:
		cancel(nil)
		return nil, err
	case resp.StatusCode == http.StatusSwitchingProtocols:
		cancel(nil)
	default:
		resp.Body = &cancelled{resp.Body, func() { cancel(nil) }}
	}
	return resp, nil
}

// cancelled ends a stream's context when the stream is closed.
type cancelled struct {
	io.ReadCloser
	cancel func()
}

func (s *cancelled) Close() error {
	defer s.cancel()
	return s.ReadCloser.Close()
}

func (c *Client) send(ctx context.Context, r request, prefix string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "docker", Path: prefix + r.path, RawQuery: r.query.Encode()}
	contentType := ""
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case io.Reader:
		body, contentType = b, "application/x-tar"
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.op, err)
		}
		body, contentType = bytes.NewReader(raw), "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.op, err)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without it, the made-up URL would be in every message
		}
		return nil, &UnreachableError{Op: r.op, Host: c.host, Err: err}
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotModified {
		defer resp.Body.Close()
		return nil, &Error{Op: r.op, Status: resp.StatusCode, Message: message(resp)}
	}
	return resp, nil
}

// message reads the engine's {"message": "..."}; anything else is shown as it is.
func message(resp *http.Response) string {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<10))
	var m struct{ Message string }
	if err := json.Unmarshal(b, &m); err == nil && m.Message != "" {
		return strings.TrimSpace(m.Message)
	}
	if text := strings.TrimSpace(string(b)); text != "" {
		return text
	}
	return resp.Status
}

// version agrees on a version with the engine once. Two first calls at the same
// time may both ask; they get the same answer.
func (c *Client) version(ctx context.Context) (int32, error) {
	if v := c.minor.Load(); v != 0 {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.quick)
	defer cancel()
	resp, err := c.send(ctx, request{op: "ping", method: http.MethodGet, path: "/_ping"}, "")
	if code := status(err); code >= 400 && code < 500 {
		return 0, fmt.Errorf("docker host %s: what answers is no Docker Engine (%w); check the address", c.host, err)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<10)
	said := resp.Header.Get("Api-Version")
	minor, err := strconv.Atoi(strings.TrimPrefix(said, "1."))
	if err != nil || !strings.HasPrefix(said, "1.") {
		return 0, fmt.Errorf("docker host %s: what answers is no Docker Engine (Api-Version %q); check the address", c.host, said)
	}
	if minor < oldest {
		return 0, fmt.Errorf("docker host %s: the engine's API %s is too old; install Docker 20.10 (API 1.%d) or later", c.host, said, oldest)
	}
	v := int32(min(minor, newest))
	c.minor.Store(v)
	return v, nil
}

// Ping says whether an engine answers that is recent enough.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.version(ctx)
	return err
}
