package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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

const (
	// restartTime is how long a daemon may be away while somebody follows an output.
	restartTime  = 30 * time.Second
	restartPause = 100 * time.Millisecond
)

// logs copies an output. One that is followed goes on at its place when the daemon is
// restarted or replaced meanwhile.
func (c *Client) logs(ctx context.Context, id, stream string, q url.Values, w io.Writer) error {
	stream, file, _ := strings.Cut(stream, "/")
	q.Set("stream", stream)
	if file != "" {
		q.Set("file", file)
	}
	out := &output{w: w, place: -1}
	// Without a name, the file of logPath may be another one the next time.
	if q.Get("follow") != "true" || stream == "log" && file == "" {
		_, err := c.copyLogs(ctx, id, q, out)
		return err
	}
	q.Set("places", "true")
	away := time.Now()
	for over := false; ; {
		n, err := c.copyLogs(ctx, id, q, out)
		if n > 0 {
			away = time.Now()
		}
		if out.place >= 0 {
			q.Set("from", strconv.FormatInt(out.place, 10))
		}
		switch {
		case out.err != nil:
			return out.err
		case err == nil && (over && n == 0 || out.place < 0 && n > 0):
			return nil // it is over, or the daemon knows no places
		case err != nil && (!errors.Is(err, ErrUnavailable) || out.place < 0 && n > 0 || time.Since(away) > restartTime):
			return err
		}
		// The answer ends with the task, with the daemon, and where output is gone.
		s, statusErr := c.Status(ctx, id)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case IsCode(statusErr, protocol.CodeNotFound):
			return nil
		case statusErr == nil:
			away = time.Now()
			over = s.State == protocol.StateEnded || s.State == protocol.StateDeleted
		}
		if err == nil && (n > 0 || over) {
			continue
		}
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// output counts the places of what it passes on.
type output struct {
	w     io.Writer
	place int64 // of what comes next; -1 when not known
	err   error // of w
}

// Write passes text on.
func (o *output) Write(text []byte) (int, error) {
	n, err := o.w.Write(text)
	if o.place >= 0 {
		o.place += int64(n)
	}
	o.err = err
	return n, err
}

// copyLogs copies what one answer has.
func (c *Client) copyLogs(ctx context.Context, id string, q url.Values, out *output) (int64, error) {
	resp, err := c.send(ctx, http.MethodGet, taskPath(id, "/logs")+"?"+q.Encode(), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if at, err := strconv.ParseInt(resp.Header.Get(protocol.PlaceHeader), 10, 64); err == nil {
		out.place = at
	}
	n, err := io.Copy(out, resp.Body)
	switch {
	case err == nil || out.err != nil:
		return n, out.err
	case ctx.Err() != nil:
		return n, ctx.Err()
	}
	return n, c.unavailable(err)
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
