package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Event is what the engine remembers of a container. An engine remembers the
// last few hundred only, and none of those before it was started.
type Event struct {
	// Action is "start", "kill", "die", "stop", "destroy" and so on.
	Action string
	// Actor holds more: the signal of a kill as a number, the exit code of an end.
	Actor struct{ Attributes map[string]string }
}

// Events returns what the engine remembers of a container between two moments,
// in its order.
func (c *Client) Events(ctx context.Context, id string, since, until time.Time) ([]Event, error) {
	filter, err := json.Marshal(map[string][]string{"type": {"container"}, "container": {id}})
	if err != nil {
		return nil, fmt.Errorf("events of container %s: %w", short(id), err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.quick)
	defer cancel()
	r := request{op: "events of container " + short(id), method: http.MethodGet, path: "/events",
		query: url.Values{"since": {stamp(since)}, "until": {stamp(until)}, "filters": {string(filter)}}}
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out []Event
	for lines := json.NewDecoder(resp.Body); ; {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, &UnreachableError{Op: r.op, Host: c.host, Err: err}
		}
		out = append(out, e)
	}
}

// Info is what an engine tells of itself.
type Info struct {
	// LiveRestoreEnabled tells that containers go on while the engine is not there.
	// Without it an engine that is stopped ends them all.
	LiveRestoreEnabled bool
}

// Info asks the engine about itself.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	var out Info
	err := c.do(ctx, request{op: "ask the engine about itself", method: http.MethodGet, path: "/info", timeout: c.quick}, &out)
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// stamp is a moment as the engine takes it: seconds and nanoseconds.
func stamp(t time.Time) string {
	return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
}
