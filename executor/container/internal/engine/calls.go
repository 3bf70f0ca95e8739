package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Create makes a container and returns its id.
func (c *Client) Create(ctx context.Context, name string, s *Spec) (string, error) {
	var out struct {
		ID string `json:"Id"`
	}
	err := c.do(ctx, request{op: "create container " + name, method: http.MethodPost, path: "/containers/create",
		query: url.Values{"name": {name}}, body: s, timeout: c.slow}, &out)
	return out.ID, err
}

// Start starts a container; one that runs already is no error.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.do(ctx, request{op: "start container " + short(id), method: http.MethodPost,
		path: "/containers/" + id + "/start", timeout: c.slow}, nil)
}

// Inspect describes a container, by id or name.
func (c *Client) Inspect(ctx context.Context, id string) (*Container, error) {
	var out Container
	err := c.do(ctx, request{op: "inspect container " + short(id), method: http.MethodGet,
		path: "/containers/" + id + "/json", timeout: c.quick}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Wait returns when the container does not run (any more), or with an
// UnreachableError after the time most: the connection may be one at whose other
// end nobody is left.
func (c *Client) Wait(ctx context.Context, id string, most time.Duration) (exitCode int, err error) {
	var out struct {
		StatusCode int
		Error      *struct{ Message string }
	}
	err = c.do(ctx, request{op: "wait for container " + short(id), method: http.MethodPost,
		path: "/containers/" + id + "/wait", query: url.Values{"condition": {"not-running"}}, timeout: most}, &out)
	if err == nil && out.Error != nil && out.Error.Message != "" {
		err = fmt.Errorf("wait for container %s: %s", short(id), out.Error.Message)
	}
	return out.StatusCode, err
}

// Kill sends a signal, by name or number.
func (c *Client) Kill(ctx context.Context, id, signal string) error {
	return c.do(ctx, request{op: "signal " + signal + " to container " + short(id), method: http.MethodPost,
		path: "/containers/" + id + "/kill", query: url.Values{"signal": {signal}}, timeout: c.quick}, nil)
}

// Update changes the resources of a container; what is 0 stays as it is.
func (c *Client) Update(ctx context.Context, id string, r Resources) error {
	return c.do(ctx, request{op: "update container " + short(id), method: http.MethodPost,
		path: "/containers/" + id + "/update", body: r, timeout: c.quick}, nil)
}

// Remove kills a container if it runs, and deletes it with its anonymous volumes.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.do(ctx, request{op: "remove container " + short(id), method: http.MethodDelete,
		path: "/containers/" + id, query: url.Values{"force": {"1"}, "v": {"1"}}, timeout: c.slow}, nil)
}

// List returns the containers that carry all these labels, running or not.
func (c *Client) List(ctx context.Context, labels map[string]string) ([]Summary, error) {
	var want []string
	for k, v := range labels {
		want = append(want, k+"="+v)
	}
	filter, err := json.Marshal(map[string][]string{"label": want})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var out []Summary
	err = c.do(ctx, request{op: "list containers", method: http.MethodGet, path: "/containers/json",
		query: url.Values{"all": {"1"}, "filters": {string(filter)}}, timeout: c.quick}, &out)
	return out, err
}

// Logs returns a container's output as the engine's stream of frames, each
// beginning with a time stamp, from since on (all when it is zero); with follow
// it goes on until the container ends.
func (c *Client) Logs(ctx context.Context, id string, since time.Time, follow bool) (io.ReadCloser, error) {
	q := url.Values{"stdout": {"1"}, "stderr": {"1"}, "timestamps": {"1"}}
	if follow {
		q.Set("follow", "1")
	}
	if !since.IsZero() {
		q.Set("since", stamp(since))
	}
	resp, err := c.stream(ctx, request{op: "logs of container " + short(id), method: http.MethodGet,
		path: "/containers/" + id + "/logs", query: q})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// LastLog returns the last entry of a container's log, framed and without time stamp.
func (c *Client) LastLog(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.stream(ctx, request{op: "logs of container " + short(id), method: http.MethodGet,
		path: "/containers/" + id + "/logs", query: url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {"1"}}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Attach returns a container's output from now on, framed as that of Logs but
// without time stamps. The container waits for a reader that falls behind. The
// context is for the attaching only: the stream lives until it is closed.
func (c *Client) Attach(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.stream(ctx, request{op: "attach to container " + short(id), method: http.MethodPost,
		path: "/containers/" + id + "/attach", query: url.Values{"stream": {"1"}, "stdout": {"1"}, "stderr": {"1"}},
		header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"tcp"}}})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, &Error{Op: "attach to container " + short(id), Status: resp.StatusCode, Message: "the connection was not handed over"}
	}
	return resp.Body, nil
}

// GetArchive returns a file of the container as a tar stream, for the caller to close.
func (c *Client) GetArchive(ctx context.Context, id, path string) (io.ReadCloser, error) {
	resp, err := c.stream(ctx, request{op: "read " + path + " in container " + short(id), method: http.MethodGet,
		path: "/containers/" + id + "/archive", query: url.Values{"path": {path}}})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Image describes an image on this machine.
func (c *Client) Image(ctx context.Context, ref string) (*Image, error) {
	var out Image
	err := c.do(ctx, request{op: "inspect image " + ref, method: http.MethodGet,
		path: "/images/" + ref + "/json", timeout: c.quick}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Commit makes an image of a container's files, without pausing it, and returns
// its id. What env and labels name is set in the image's configuration; all else is
// the container's.
func (c *Client) Commit(ctx context.Context, containerID, name string, env []string, labels map[string]string) (string, error) {
	repo, tag := name, ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repo, tag = name[:i], name[i+1:]
	}
	var out struct {
		ID string `json:"Id"`
	}
	err := c.do(ctx, request{op: "commit container " + short(containerID), method: http.MethodPost, path: "/commit",
		query: url.Values{"container": {containerID}, "repo": {repo}, "tag": {tag}, "pause": {"0"}},
		body: struct {
			Env    []string          `json:",omitempty"`
			Labels map[string]string `json:",omitempty"`
		}{env, labels}, timeout: c.slow}, &out)
	return out.ID, err
}

// Import makes an image of one layer, a tar archive.
func (c *Client) Import(ctx context.Context, name string, layer io.Reader) error {
	repo, tag, _ := strings.Cut(name, ":")
	return c.do(ctx, request{op: "import image " + name, method: http.MethodPost, path: "/images/create",
		query: url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}}, body: layer, timeout: c.slow}, nil)
}

// Pull fetches an image; tag may be a digest. auth is the value of the header
// X-Registry-Auth, or empty. line is called for each line of progress. The pull
// is given up when the engine says nothing for the time idle.
func (c *Client) Pull(ctx context.Context, name, tag, auth string, idle time.Duration, line func(Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := fmt.Errorf("no progress for %v: %w", idle, context.DeadlineExceeded)
	watchdog := time.AfterFunc(idle, func() { cancel(silent) })
	defer watchdog.Stop()

	r := request{op: "pull " + name, method: http.MethodPost, path: "/images/create",
		query: url.Values{"fromImage": {name}, "tag": {tag}}}
	if auth != "" {
		r.header = http.Header{"X-Registry-Auth": {auth}}
	}
	failed := func(err error) error {
		if errors.Is(context.Cause(ctx), silent) {
			err = silent
		}
		return &UnreachableError{Op: r.op, Host: c.host, Err: err}
	}
	resp, err := c.open(ctx, r)
	if IsUnreachable(err) {
		return failed(err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		var p Progress
		err := lines.Decode(&p)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return failed(err)
		case p.Error != "":
			return &Error{Op: r.op, Status: http.StatusInternalServerError, Message: p.Error}
		}
		watchdog.Reset(idle)
		line(p)
	}
}

// PortKey is a port as the engine writes it, such as 80/tcp.
func PortKey(port int, protocol string) string {
	return strconv.Itoa(port) + "/" + protocol
}

// short abbreviates an id for messages; names stay whole.
func short(id string) string {
	if len(id) == 64 {
		return id[:12]
	}
	return id
}
