// Package client calls the process daemon of the same agent. It is what the
// executor links, so it stays small. It must never take a daemon that is away for
// a task that is gone.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"tandem/internal/failpoint/calls"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/protocol"
)

// DefaultSocket is where the daemon listens when nobody says otherwise.
const DefaultSocket = "/run/tandem/processd.sock"

// ErrUnavailable is wrapped by the error of a call that got no answer: the
// daemon is not running, is being restarted, or broke off.
var ErrUnavailable = errors.New("the process daemon does not answer")

// Client calls one daemon. Its methods may be called at the same time.
type Client struct {
	socket string
	http   *http.Client
	lost   atomic.Uint64
}

// New returns a client; it does not connect yet.
func New(socket string) *Client {
	if socket == "" {
		socket = DefaultSocket
	}
	c := &Client{socket: socket, http: unixhttp.Client(socket)}
	if t, ok := c.http.Transport.(*http.Transport); ok {
		dial := t.DialContext
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &counted{conn, &c.lost}, nil
		}
	}
	c.http.Transport = calls.Transport("daemon", c.http.Transport)
	return c
}

// counted is a connection whose end is counted.
type counted struct {
	net.Conn
	ended *atomic.Uint64
}

// Close is called once the other side has closed it, too.
func (c *counted) Close() error {
	c.ended.Add(1)
	return c.Conn.Close()
}

// Lost counts the connections that have ended. As long as it is what it was before a
// call, the daemon that answered that call is there: a daemon's connections end with
// it, and when it is replaced.
func (c *Client) Lost() uint64 { return c.lost.Load() }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// IsCode tells whether the daemon answered with this code of an error.
func IsCode(err error, code string) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Code == code
}

// maxAnswer bounds an answer, in bytes: all tasks of an agent are far less.
const maxAnswer = 64 << 20

// callTimeout bounds a call that the daemon answers at once.
const callTimeout = 30 * time.Second

// Info describes the daemon.
func (c *Client) Info(ctx context.Context) (protocol.Info, error) {
	var out protocol.Info
	return out, c.call(ctx, callTimeout, http.MethodGet, "/v1/info", nil, &out)
}

// Create records a task and begins to prepare it.
func (c *Client) Create(ctx context.Context, spec *protocol.Spec) (protocol.Status, error) {
	return c.status(ctx, callTimeout, http.MethodPut, spec.ID, "", spec)
}

// Status returns what is known about a task.
func (c *Client) Status(ctx context.Context, id string) (protocol.Status, error) {
	return c.status(ctx, callTimeout, http.MethodGet, id, "", nil)
}

// Poll returns the status once its version is not after, or unchanged after at most wait.
func (c *Client) Poll(ctx context.Context, id string, after uint64, wait time.Duration) (protocol.Status, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "wait": {wait.String()}}
	return c.status(ctx, wait+callTimeout, http.MethodGet, id, "?"+q.Encode(), nil)
}

// List returns the tasks of an owner; all when it is empty.
func (c *Client) List(ctx context.Context, owner string) ([]protocol.Status, error) {
	var out []protocol.Status
	return out, c.call(ctx, callTimeout, http.MethodGet, "/v1/tasks?owner="+url.QueryEscape(owner), nil, &out)
}

// PutFiles puts files in place for a task that is ready.
func (c *Client) PutFiles(ctx context.Context, id string, files []protocol.File) error {
	return c.call(ctx, callTimeout, http.MethodPut, taskPath(id, "/files"), files, nil)
}

// Start starts a ready task and waits at most wait for the start to be settled.
func (c *Client) Start(ctx context.Context, id string, wait time.Duration) (protocol.Status, error) {
	return c.status(ctx, wait+callTimeout, http.MethodPost, id, "/start?wait="+wait.String(), nil)
}

// Stop asks for the end of a task and does not wait for it.
func (c *Client) Stop(ctx context.Context, id string, grace time.Duration) (protocol.Status, error) {
	return c.status(ctx, callTimeout, http.MethodPost, id, "/stop", protocol.StopRequest{Grace: grace})
}

// Restart asks for the end of what runs and a new start, and does not wait.
func (c *Client) Restart(ctx context.Context, id string, grace time.Duration) (protocol.Status, error) {
	return c.status(ctx, callTimeout, http.MethodPost, id, "/restart", protocol.RestartRequest{Grace: grace})
}

// Reload asks for a run of the reload command, and does not wait for its end; the
// status has the result.
func (c *Client) Reload(ctx context.Context, id string) (protocol.Status, error) {
	return c.status(ctx, callTimeout, http.MethodPost, id, "/reload", nil)
}

// Stats tells what a task uses.
func (c *Client) Stats(ctx context.Context, id string) (protocol.Stats, error) {
	var out protocol.Stats
	return out, c.call(ctx, callTimeout, http.MethodGet, taskPath(id, "/stats"), nil, &out)
}

// Version returns the version of the daemon and its API.
func (c *Client) Version(ctx context.Context) (protocol.About, error) {
	var out protocol.About
	return out, c.call(ctx, callTimeout, http.MethodGet, "/v1/version", nil, &out)
}

// Signal sends a signal to the main process.
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	return c.call(ctx, callTimeout, http.MethodPost, taskPath(id, "/signal"), protocol.SignalRequest{Signal: int(sig)}, nil)
}

// Exec runs a command beside a running task. started tells that it ran, also
// when an error says that the context ended before it did; it is killed then.
func (c *Client) Exec(ctx context.Context, id string, req protocol.ExecRequest) (res protocol.ExecResult, started bool, err error) {
	resp, err := c.send(ctx, http.MethodPost, taskPath(id, "/exec"), req)
	if err != nil {
		return res, false, err
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	for {
		var e protocol.ExecEvent
		switch err := events.Decode(&e); {
		case ctx.Err() != nil:
			return res, started, ctx.Err()
		case err != nil:
			return res, false, c.unavailable(err)
		case e.Error != nil:
			return res, false, e.Error
		case e.Result != nil:
			return *e.Result, true, nil
		}
		started = true
	}
}

// Delete forgets a task that does not run.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, callTimeout, http.MethodDelete, taskPath(id, ""), nil, nil)
}

// Tail returns the last lines, at most n bytes, that a task wrote.
func (c *Client) Tail(ctx context.Context, id string, n int) (string, error) {
	var out string
	return out, c.call(ctx, callTimeout, http.MethodGet, taskPath(id, "/tail")+"?bytes="+strconv.Itoa(n), nil, &out)
}

// Fetch brings content into the daemon's cache, for a task of the user, and returns
// the digests in the order of the URIs. It takes as long as it makes progress.
func (c *Client) Fetch(ctx context.Context, user string, uris []protocol.URI, progress func(string)) ([]string, error) {
	resp, err := c.send(ctx, http.MethodPost, "/v1/fetch", protocol.FetchRequest{User: user, URIs: uris})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var e protocol.FetchEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, c.unavailable(fmt.Errorf("answer to fetch: %w", err))
		}
		switch {
		case e.Error != "":
			return nil, errors.New(e.Error)
		case e.Done:
			return e.Digests, nil
		case progress != nil:
			progress(e.Progress)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, c.unavailable(errors.Join(io.ErrUnexpectedEOF, lines.Err()))
}

func taskPath(id, rest string) string {
	name := url.PathEscape(id)
	if id == "." || id == ".." {
		// As they are they would be taken out of the path.
		name = strings.ReplaceAll(id, ".", "%2E")
	}
	return "/v1/tasks/" + name + rest
}

// status asks for the status of a task. An answer about anything else is none of a daemon's.
func (c *Client) status(ctx context.Context, timeout time.Duration, method, id, path string, body any) (protocol.Status, error) {
	var out protocol.Status
	err := c.call(ctx, timeout, method, taskPath(id, path), body, &out)
	if err == nil && (out.ID != id || out.State == "") {
		err = c.unavailable(fmt.Errorf("what answers at this socket says nothing of task %q", id))
	}
	if err != nil {
		out = protocol.Status{ID: id}
	}
	return out, err
}

func (c *Client) call(ctx context.Context, timeout time.Duration, method, path string, body, into any) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.send(limited, method, path, body)
	if err == nil {
		defer resp.Body.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			err = c.unavailable(err)
		} else {
			return c.decode(b, path, into)
		}
	}
	if limited.Err() != nil && ctx.Err() == nil {
		// A daemon that is stopped is away, as one that is not there.
		return c.unavailable(fmt.Errorf("no answer within %s", timeout))
	}
	return err
}

// decode reads an answer. One that is not understood comes from something else than a daemon.
func (c *Client) decode(b []byte, path string, into any) error {
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(b)
	default:
		if err := json.Unmarshal(b, into); err != nil {
			return c.unavailable(fmt.Errorf("answer to %s: %w", path, err))
		}
	}
	return nil
}

// send returns the answer if it is 2xx, or that to an Upgrade, and otherwise the
// error in it. header holds names and values.
func (c *Client) send(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("process daemon: %w", err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://processd"+path, r)
	if err != nil {
		return nil, fmt.Errorf("process daemon: %w", err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if repeatable(method, path) {
		// So the transport sends it again when the daemon closed the idle connection that
		// it went out on, as it does when it is replaced. The header itself is not sent.
		req.Header["X-Idempotency-Key"] = nil
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, c.unavailable(err)
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil
	}
	defer resp.Body.Close()
	const most = 64 << 10
	b, err := io.ReadAll(io.LimitReader(resp.Body, most))
	e := new(protocol.Error)
	if err != nil || json.Unmarshal(b, e) != nil || e.Code == "" {
		if resp.StatusCode >= http.StatusInternalServerError {
			// Words of something that stands between, or in the daemon's place.
			return nil, c.unavailable(fmt.Errorf("it says %s: %s", resp.Status, clip(b)))
		}
		return nil, fmt.Errorf("process daemon at %s answered %s: %s", c.socket, resp.Status, clip(b))
	}
	if e.Code == protocol.CodeUnavailable {
		return nil, c.unavailable(e)
	}
	return nil, e
}

// clip returns the beginning of what was not understood.
func clip(b []byte) string {
	const most = 200
	return strings.ToValidUTF8(string(bytes.TrimSpace(b[:min(len(b), most)])), "?")
}

// repeatable tells whether a request that comes twice has the effect of one.
func repeatable(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return method != http.MethodPost || strings.HasSuffix(path, "/start") || strings.HasSuffix(path, "/stop")
}

func (c *Client) unavailable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w at %s: %w; it is for root and the members of its group", ErrUnavailable, c.socket, err)
	}
	return fmt.Errorf("%w at %s: %w; is tandem-processd running?", ErrUnavailable, c.socket, err)
}
