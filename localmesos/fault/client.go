package fault

import (
	"bytes"
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

// Client brings faults to one master or agent.
type Client struct {
	base string
	http *http.Client
}

// ErrUnreachable is wrapped by errors about a master or agent that does not answer.
var ErrUnreachable = errors.New("cannot be reached")

// ErrDisabled is wrapped by errors about a master or agent that takes no faults.
var ErrDisabled = errors.New("takes no faults")

// ErrInvalid is wrapped by errors about faults that make no sense.
var ErrInvalid = errors.New("invalid")

// requestTimeout bounds each request.
const requestTimeout = 10 * time.Second

// NewClient returns a client for the master or agent at an address, which is
// host:port or a http URL.
func NewClient(address string) (*Client, error) {
	text := address
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" {
		return nil, fmt.Errorf("address %q: %w: give host:port or a http URL with a port", address, ErrInvalid)
	}
	return &Client{base: "http://" + u.Host, http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// Add puts a fault in force. When it is a Kill, Restart, Lose or Reboot, that
// happens a moment after the answer.
func (c *Client) Add(ctx context.Context, f Fault) (Fault, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return f, err
	}
	var out Fault
	return out, c.do(ctx, http.MethodPost, Path, body, &out)
}

// Status returns the faults in force and the past ones.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	return out, c.do(ctx, http.MethodGet, Path, nil, &out)
}

// Clear ends one fault.
func (c *Client) Clear(ctx context.Context, id int) error {
	return c.do(ctx, http.MethodDelete, Path+"/"+strconv.Itoa(id), nil, &Cleared{})
}

// ClearKind ends all faults of a kind, or all when it is empty, and returns how many there were.
func (c *Client) ClearKind(ctx context.Context, k Kind) (int, error) {
	var out Cleared
	path := Path
	if k != "" {
		path += "?kind=" + url.QueryEscape(string(k))
	}
	err := c.do(ctx, http.MethodDelete, path, nil, &out)
	return out.Cleared, err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s %w: %w; does it run, and there?", c.base, ErrUnreachable, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("%s %w: %w", c.base, ErrUnreachable, err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, out); err != nil {
			return fmt.Errorf("the answer of %s cannot be read: %w; is it an embedded Mesos master or agent?", c.base, err)
		}
		return nil
	}
	var f failure
	if json.Unmarshal(b, &f) != nil || f.Error == "" {
		return fmt.Errorf("%s %w (it answered %s); start it with --enable-faults", c.base, ErrDisabled, resp.Status)
	}
	kind := ErrInvalid
	switch resp.StatusCode {
	case http.StatusConflict, http.StatusForbidden:
		kind = ErrRefused
	case http.StatusNotFound:
		kind = ErrUnknown
	}
	return &refusal{text: f.Error, kind: kind}
}

// refusal is what the other side says, with the kind of error that it is.
type refusal struct {
	text string
	kind error
}

// Error returns the other side's words.
func (r *refusal) Error() string { return r.text }

// Unwrap returns the kind.
func (r *refusal) Unwrap() error { return r.kind }
