package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tandem/processdaemon/protocol"
)

// LogFiles returns the files that a task's logPath names, the one written to last first.
func (c *Client) LogFiles(ctx context.Context, id string) ([]protocol.LogFile, error) {
	var out []protocol.LogFile
	return out, c.call(ctx, callTimeout, http.MethodGet, taskPath(id, "/logfiles"), nil, &out)
}

// Logs copies output of a task to w: the last bytes of stdout or stderr, and with
// follow what is written until nothing of the task runs or the context ends. stream
// may be log/NAME, too, for a file of logPath, or log for the one written to last.
func (c *Client) Logs(ctx context.Context, id, stream string, bytes int, follow bool, w io.Writer) error {
	return c.logs(ctx, id, stream, url.Values{"bytes": {strconv.Itoa(bytes)}, "follow": {strconv.FormatBool(follow)}}, w)
}

// LogLines is Logs with the last lines in place of bytes; all when negative. A daemon
// that knows only bytes gives as many of those as lines are looked for in.
func (c *Client) LogLines(ctx context.Context, id, stream string, lines int, follow bool, w io.Writer) error {
	q := url.Values{"bytes": {strconv.Itoa(math.MaxInt)}, "follow": {strconv.FormatBool(follow)}}
	if lines >= 0 {
		q.Set("bytes", strconv.Itoa(4<<20))
		q.Set("lines", strconv.Itoa(lines))
	}
	return c.logs(ctx, id, stream, q, w)
}

func (c *Client) logs(ctx context.Context, id, stream string, q url.Values, w io.Writer) error {
	stream, file, _ := strings.Cut(stream, "/")
	q.Set("stream", stream)
	if file != "" {
		q.Set("file", file)
	}
	resp, err := c.send(ctx, http.MethodGet, taskPath(id, "/logs")+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.unavailable(err)
	}
	return nil
}

// Events tells the status of every task of an owner, of all when it is empty, and
// then each that changes, until the context ends or tell returns an error. began,
// which may be nil, is called once the daemon listens: no change after that is missed.
// When the daemon goes, it returns ErrUnavailable; call it again.
func (c *Client) Events(ctx context.Context, owner string, began func(), tell func(protocol.Status) error) error {
	resp, err := c.send(ctx, http.MethodGet, "/v1/events?owner="+url.QueryEscape(owner), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if began != nil {
		began()
	}
	body := &bounded{r: resp.Body}
	for dec := json.NewDecoder(body); ; {
		var s protocol.Status
		body.left = maxEvent
		if err := dec.Decode(&s); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return c.unavailable(fmt.Errorf("events: %w", err))
		}
		if err := tell(s); err != nil {
			return err
		}
	}
}

// maxEvent bounds one message of a stream, in bytes.
const maxEvent = 4 << 20

// bounded ends a message that does not end.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a message of more than %d bytes", maxEvent)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
