package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"tandem/executor/container/internal/engine"
)

// The streams of the engine's framing.
const (
	streamStdout = 1
	streamStderr = 2
	streamSystem = 3
)

// copier writes what a container prints to its sandbox. It remembers where it
// is, so that it can go on after the engine went away and came back.
type copier struct {
	out, err       *logFile
	stdout, stderr position
	tail           *tail
}

// position is a place in one of the two streams. Each has its own, because the
// engine stamps and stores the two independently: between them, time stamps may
// go backwards.
type position struct {
	// last is the newest time stamp, same how many frames with it were written.
	last time.Time
	same int
	// replay is true while a new connection repeats what is known, seen counts
	// the repeated frames with the time stamp last.
	replay bool
	seen   int
	// partial is how much was written of a frame in which a connection broke.
	partial int64
	// got is what came by the attached stream, skip how much of it the logs call
	// will repeat.
	got  received
	skip int64
}

// overlap is how far back a new connection begins: more than the time between
// stamping a line in one stream and storing it after one of the other.
const overlap = 2 * time.Second

func (p *position) reconnect() {
	p.replay, p.seen = !p.last.IsZero(), 0
}

// fresh tells whether a frame with this time stamp was not written before, and moves on.
func (p *position) fresh(at time.Time) bool {
	if p.replay {
		if at.Equal(p.last) {
			p.seen++
		}
		if at.Before(p.last) || at.Equal(p.last) && p.seen <= p.same {
			return false
		}
		p.replay = false
	}
	if at.Equal(p.last) {
		p.same++
	} else {
		p.last, p.same = at, 1
	}
	return true
}

// broken takes a frame back of which only n more bytes were written.
func (p *position) broken(n int64) {
	p.same--
	p.partial += n
}

// since is where a new connection has to begin; zero means at the beginning.
func (c *copier) since() time.Time {
	last := c.stdout.last
	if c.stderr.last.After(last) {
		last = c.stderr.last
	}
	if last.IsZero() {
		return last
	}
	return last.Add(-overlap)
}

// copyOutput follows a container's output to its end. It closes n.copied. attached
// is the stream that was opened before the start; nil when there is none.
//
// The end of that stream is that of the output, or of the connection. Which of
// the two it was, the end of the engine's own log tells once the exit is settled.
//
// A stream of the logs call that follows may end before the last lines: engines notice the end of
// a container and the end of its output independently. So once the exit is
// settled, by when the engine has written all it will, the rest is read from
// where the stream ended. following ends soon after that, and ctx when nobody
// waits any more.
func (r *Runtime) copyOutput(ctx, following context.Context, c *copier, id string, n *run, attached io.ReadCloser) {
	defer close(n.copied)
	defer c.close()
	if attached != nil {
		c.readAttached(ctx, attached)
		if r.outputComplete(ctx, c, id, n) {
			return
		}
		r.log.Warn("the stream of a container's output broke, it is read on from the engine's log", "container", id)
	}
	for {
		rest := over(n.settled)
		var err error
		if rest {
			err = c.read(ctx, r.engine, id, false)
		} else {
			err = c.read(following, r.engine, id, true)
		}
		if ctx.Err() != nil || engine.IsNotFound(err) || rest && err == nil {
			return
		}
		// An end just before the news of the exit, an engine that restarts, or one
		// that is silent: look again soon.
		pause := 500 * time.Millisecond
		if rest {
			pause = 100 * time.Millisecond
		}
		select {
		case <-orNever(n.settled, rest):
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// orNever returns c, or a channel that is never closed.
func orNever(c <-chan struct{}, never bool) <-chan struct{} {
	if never {
		return nil
	}
	return c
}

func (c *copier) open(sandbox string, o *Options) error {
	var outErr, errErr error
	c.out, outErr = openLog(sandbox, "stdout", o.LogSize, o.LogFiles)
	c.err, errErr = openLog(sandbox, "stderr", o.LogSize, o.LogFiles)
	return errors.Join(outErr, errErr)
}

func (c *copier) close() {
	c.out.Close()
	c.err.Close()
}

// read copies one connection's worth; nil means that the stream ended cleanly.
func (c *copier) read(ctx context.Context, e *engine.Client, id string, follow bool) error {
	body, err := e.Logs(ctx, id, c.since(), follow)
	if err != nil {
		return err
	}
	defer body.Close()
	c.stdout.reconnect()
	c.stderr.reconnect()
	// Small: one such buffer is held for as long as the container runs.
	br := bufio.NewReaderSize(body, 4<<10)
	for {
		if err := c.frame(br); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// frame copies one message: 8 bytes of header (stream, 3 zeros, length), then
// the time stamp, a space, and what was written. io.EOF is a clean end.
func (c *copier) frame(br *bufio.Reader) error {
	var header [8]byte
	if _, err := io.ReadFull(br, header[:]); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint32(header[4:]))
	payload := io.LimitedReader{R: br, N: size}
	if header[0] == streamSystem {
		text, _ := io.ReadAll(io.LimitReader(&payload, 4<<10))
		return fmt.Errorf("the engine's log stream: %s", text)
	}
	stamp, err := br.ReadSlice(' ')
	if err != nil || int64(len(stamp)) > size {
		return errors.New("the engine's log stream: a line without time stamp")
	}
	payload.N -= int64(len(stamp))
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSuffix(string(stamp), " "))
	if err != nil {
		return fmt.Errorf("the engine's log stream: %w", err)
	}
	pos := &c.stdout
	if header[0] == streamStderr {
		pos = &c.stderr
	}
	if !pos.fresh(at) {
		_, err := io.CopyN(io.Discard, br, payload.N)
		return whole(err)
	}
	if n := min(pos.skip, payload.N); n > 0 {
		_, err := io.CopyN(io.Discard, &payload, n)
		pos.skip -= n
		if err != nil {
			pos.skip += n
			pos.broken(0)
			return whole(err)
		}
	}
	if n := min(pos.partial, payload.N); n > 0 {
		if _, err := io.CopyN(io.Discard, &payload, n); err != nil {
			pos.broken(0)
			return whole(err)
		}
	}
	rest := payload.N
	n, err := io.Copy(c.writer(header[0]), &payload)
	if err == nil && n < rest {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		pos.broken(n)
		return err
	}
	pos.partial = 0
	return nil
}

// whole makes an end within a frame an error: it is no clean end.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// writer writes to a log file and the tail. A full disk must not stop the
// reading, or the container would block on its own output. What cannot be written is lost,
// and what comes once there is room again is not.
func (c *copier) writer(stream byte) io.Writer {
	f := c.out
	if stream == streamStderr {
		f = c.err
	}
	return writerFunc(func(p []byte) (int, error) {
		c.tail.write(p)
		if f != nil {
			_, _ = f.Write(p) // see above
		}
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// tail keeps the end of what was written.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 16 << 10

func (t *tail) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
}

// last returns at most maxBytes bytes, from the beginning of a line where that is possible.
func (t *tail) last(maxBytes int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(maxBytes, tailSize)
	if n <= 0 {
		return ""
	}
	if len(t.buf) <= n {
		return string(t.buf)
	}
	cut := t.buf[len(t.buf)-n:]
	if t.buf[len(t.buf)-n-1] != '\n' {
		if _, rest, ok := strings.Cut(string(cut), "\n"); ok && rest != "" {
			return rest
		}
	}
	return string(cut)
}
