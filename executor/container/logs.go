package container

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/executor/container/internal/engine"
)

// The streams of the engine's framing.
const (
	streamStdout = 1
	streamStderr = 2
	streamSystem = 3
)

// copier writes what a container prints to its sandbox. It remembers where it
// is by the time stamp of the last line, so that it can go on after the
// engine went away and came back.
type copier struct {
	out, err *os.File
	tail     *tail
	// last is the newest time stamp seen, same how many frames carried it.
	last time.Time
	same int
	// skip is how many frames with the time stamp last were written before this connection.
	skip int
	// partial is how much was written of the frame after those, when a connection broke within it.
	partial int64
	// failed holds the first write error; output is read on and dropped after it.
	failed error
}

// copyOutput follows a container's output to its end. It closes n.copied.
//
// A stream that follows may end before the last lines: engines notice the end of
// a container and the end of its output independently. So once the exit is
// settled, by when the engine has written all it will, the rest is read from
// where the stream ended. following ends soon after that, and ctx when nobody
// waits any more.
func (r *Runtime) copyOutput(ctx, following context.Context, c *copier, id string, n *run) {
	defer close(n.copied)
	defer c.close()
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

func (c *copier) open(sandbox string) error {
	var err error
	if c.out, err = openLog(sandbox, "stdout"); err != nil {
		return err
	}
	c.err, err = openLog(sandbox, "stderr")
	return err
}

// openLog opens a log file. A symbolic link in its place would make a root
// process write wherever a task wants, so there is none followed.
func openLog(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	return f, nil
}

func (c *copier) close() {
	for _, f := range []*os.File{c.out, c.err} {
		if f != nil {
			f.Close()
		}
	}
}

// read copies one connection's worth; nil means that the stream ended cleanly.
func (c *copier) read(ctx context.Context, e *engine.Client, id string, follow bool) error {
	body, err := e.Logs(ctx, id, c.last, follow)
	if err != nil {
		return err
	}
	defer body.Close()
	c.skip, c.same = max(c.skip, c.same), 0
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
	if !c.fresh(at) {
		_, err := io.CopyN(io.Discard, br, payload.N)
		return whole(err)
	}
	if c.partial > 0 {
		_, err := io.CopyN(io.Discard, &payload, min(c.partial, payload.N))
		if err != nil {
			c.same-- // still not written whole
			return whole(err)
		}
	}
	rest := payload.N
	n, err := io.Copy(c.writer(header[0]), &payload)
	if err == nil && n < rest {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		c.same--
		c.partial += n
		return err
	}
	c.partial = 0
	return nil
}

// whole makes an end within a frame an error: it is no clean end.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fresh tells whether a frame with this time stamp was not written before.
// Several frames may carry the same one, so those are counted.
func (c *copier) fresh(at time.Time) bool {
	switch {
	case at.Before(c.last):
		return false
	case at.Equal(c.last):
		c.same++
		return c.same > c.skip
	}
	c.last, c.same, c.skip = at, 1, 0
	return true
}

// writer writes to a log file and the tail. A full disk must not stop the
// reading, or the container would block on its own output.
func (c *copier) writer(stream byte) io.Writer {
	f := c.out
	if stream == streamStderr {
		f = c.err
	}
	return writerFunc(func(p []byte) (int, error) {
		c.tail.write(p)
		if c.failed == nil {
			_, c.failed = f.Write(p)
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
