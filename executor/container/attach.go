package container

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"tandem/executor/container/internal/engine"
)

// The output of a container is taken from a stream that is attached before it
// starts. When nobody reads, such a stream makes the container wait; the engine's
// log files, from which the logs call reads, do not: they turn over, and what a
// slow reader has not read by then is lost. The log files are what is gone back
// to when the stream breaks.

// attachPatience bounds the attaching; a launch does not wait longer for it.
const attachPatience = 2 * time.Second

// attach opens the stream of a container that has not started; nil where the
// engine does not give it, and then the logs call has to do.
func (r *Runtime) attach(ctx context.Context, id string) io.ReadCloser {
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	s, err := r.engine.Attach(ctx, id)
	if err != nil {
		r.log.Warn("output of a container is read from the engine's log files only", "container", id, "err", err)
		return nil
	}
	return s
}

// received is what came of one of the two streams by the attached connection.
type received struct {
	bytes, lines int64
	// end holds the last bytes, to compare with the end of the engine's log.
	end []byte
}

const endSize = 256

func (e *received) add(p []byte) {
	e.bytes += int64(len(p))
	e.lines += int64(bytes.Count(p, []byte{'\n'}))
	if e.end = append(e.end, p[max(0, len(p)-endSize):]...); len(e.end) > endSize {
		e.end = append(e.end[:0], e.end[len(e.end)-endSize:]...)
	}
}

// readAttached copies the attached stream to its end, and prepares for going on
// with the logs call, in case this was not the container's end.
func (c *copier) readAttached(ctx context.Context, s io.ReadCloser) {
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	defer s.Close()
	br := bufio.NewReaderSize(s, 4<<10)
	piece := make([]byte, 4<<10)
	var last time.Time
	for {
		var header [8]byte
		if _, err := io.ReadFull(br, header[:]); err != nil {
			break
		}
		pos := &c.stdout
		if header[0] == streamStderr {
			pos = &c.stderr
		}
		w := c.writer(header[0])
		left, broken := int64(binary.BigEndian.Uint32(header[4:])), false
		for left > 0 && !broken {
			n, err := br.Read(piece[:min(left, int64(len(piece)))])
			if n > 0 {
				pos.got.add(piece[:n])
				_, _ = w.Write(piece[:n]) // it keeps its errors to itself
				left -= int64(n)
			}
			broken = err != nil
		}
		last = time.Now()
		if broken {
			break
		}
	}
	c.goOn(last)
}

// goOn sets both positions to where the attached stream ended. As long as the
// engine still has everything, counting is exact. Later only the time is left to
// go by, and lines of the last moment may be missing or come twice.
func (c *copier) goOn(last time.Time) {
	const entry = 100 // what the engine's log adds to a line, generously
	total := c.stdout.got.bytes + c.stderr.got.bytes + entry*(c.stdout.got.lines+c.stderr.got.lines)
	for _, pos := range []*position{&c.stdout, &c.stderr} {
		if total < logSize {
			pos.skip = pos.got.bytes
		} else {
			pos.last, pos.same = last, 0
		}
	}
}

// outputComplete tells whether the attached stream ended because the container did.
func (r *Runtime) outputComplete(ctx context.Context, c *copier, id string, n *run) bool {
	// The end of the output and that of the first process are close together; how
	// the latter ended the engine may tell much later.
	select {
	case <-n.ended:
	case <-time.After(500 * time.Millisecond):
		return false
	case <-ctx.Done():
		return true
	}
	select {
	case <-n.settled:
	case <-ctx.Done():
		return true
	}
	all, err := c.complete(ctx, r.engine, id)
	return err == nil && all || engine.IsNotFound(err) || ctx.Err() != nil
}

// complete tells whether the last line of the engine's log has been received.
// One call is enough to find out, however much was written.
func (c *copier) complete(ctx context.Context, e *engine.Client, id string) (bool, error) {
	body, err := e.LastLog(ctx, id)
	if err != nil {
		return false, err
	}
	defer body.Close()
	br := bufio.NewReader(body)
	for {
		var header [8]byte
		if _, err := io.ReadFull(br, header[:]); errors.Is(err, io.EOF) {
			return true, nil
		} else if err != nil {
			return false, err
		}
		text, err := io.ReadAll(io.LimitReader(br, int64(binary.BigEndian.Uint32(header[4:]))))
		if err != nil {
			return false, err
		}
		got := c.stdout.got.end
		if header[0] == streamStderr {
			got = c.stderr.got.end
		}
		n := min(len(text), endSize)
		if !bytes.HasSuffix(got, text[len(text)-n:]) {
			return false, nil
		}
	}
}
