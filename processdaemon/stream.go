package processdaemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"tandem/processdaemon/protocol"
)

// Logs passes the output of a task to say: the last bytes of stdout, stderr or, with
// the stream log, of a file of its logPath (empty is the one written to last), and with follow what is
// written from then on, until nothing of the task runs.
func (d *Daemon) Logs(ctx context.Context, id, stream, file string, bytes int64, follow bool, say func([]byte) error) error {
	return d.logs(ctx, id, stream, file, logStart{bytes: bytes, lines: -1, from: -1}, follow, func(_ int64, b []byte) error { return say(b) })
}

// logStart is where output begins that is asked for: so many bytes before its end, or
// lines, or at a place, unless these are negative.
type logStart struct{ bytes, lines, from int64 }

// errGap ends a stream at output that is gone.
var errGap = errors.New("some output is gone")

// logs is Logs from a start; say is given the place of what it gets, too.
func (d *Daemon) logs(ctx context.Context, id, stream, file string, start logStart, follow bool, say func(at int64, text []byte) error) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	if !slices.Contains(outputs, stream) && stream != streamLog {
		return fail(protocol.CodeInvalid, "stream %q: want stdout, stderr or log", stream)
	}
	readAt, err := t.reader(stream, file)
	if err != nil {
		return err
	}
	const pause = 100 * time.Millisecond
	at, buf := -max(1, start.bytes), make([]byte, 32<<10)
	switch {
	case start.from >= 0:
		at = start.from
	case start.lines >= 0:
		if at, err = lastLines(readAt, start.lines); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(protocol.CodeInternal, "output of task %q: %v", id, err)
		}
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		// Asked before the last look, so that nothing is missed that was written before the end.
		over := !follow || t.status().State == ended || t.status().State == deleted
		for {
			n, next, err := readAt(at, buf)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail(protocol.CodeInternal, "output of task %q: %v", id, err)
			}
			if at = next; n == 0 {
				break
			}
			if err := say(next-int64(n), buf[:n]); err != nil {
				return nil // whoever listened has gone
			}
		}
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-d.ctx.Done():
			return nil
		}
	}
}

// maxLines bounds how far back lines are looked for, in bytes.
const maxLines = 4 << 20

// lastLines returns where the last lines of a file begin. A line that has no end yet is one, too.
func lastLines(readAt func(from int64, buf []byte) (int, int64, error), lines int64) (int64, error) {
	buf := make([]byte, 32<<10)
	// fill reads from a place up to another, over the ends of pieces.
	fill := func(from, to int64) (begin int64, text []byte, err error) {
		begin = from
		for len(text) < int(to-begin) {
			n, next, err := readAt(begin+int64(len(text)), buf[len(text):])
			if err != nil || n == 0 {
				return begin, text, err
			}
			if len(text) == 0 {
				begin = next - int64(n) // what was before it is gone
			} else if next != begin+int64(len(text)+n) {
				return begin, nil, nil // it goes while it is read
			}
			text = buf[:len(text)+n]
		}
		return begin, text[:max(0, to-begin)], nil
	}
	// One byte from the end tells where the end is.
	_, end, err := readAt(-1, buf[:1])
	if err != nil || lines == 0 {
		return max(0, end), err
	}
	for at, last := end, true; ; last = false {
		begin, piece, err := fill(max(0, at-int64(len(buf))), at)
		if err != nil || begin >= at || int64(len(piece)) < at-begin {
			return at, err // no more is there
		}
		if last {
			piece = bytes.TrimSuffix(piece, []byte{'\n'})
		}
		for {
			i := bytes.LastIndexByte(piece, '\n')
			if i < 0 {
				break
			}
			if lines--; lines == 0 {
				return begin + int64(i) + 1, nil
			}
			piece = piece[:i]
		}
		if at = begin; at == 0 || end-at >= maxLines {
			return at, nil
		}
	}
}

// feed hands changes of tasks to whoever follows them. One who is slow gets the
// latest status of each task that changed, not each in between.
type feed struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}
}

type subscription struct {
	news    map[string]protocol.Status
	arrived chan struct{}
}

func (f *feed) publish(s *protocol.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sub := range f.subs {
		sub.news[s.ID] = *s
		select {
		case sub.arrived <- struct{}{}:
		default:
		}
	}
}

func (f *feed) subscribe() *subscription {
	s := &subscription{news: map[string]protocol.Status{}, arrived: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[*subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
	return s
}

func (f *feed) cancel(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
}

func (f *feed) take(s *subscription) map[string]protocol.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := s.news
	s.news = map[string]protocol.Status{}
	return news
}

// Events passes the status of every task of an owner, of all tasks when it is
// empty, to say: first all as they are, then each that changes, until the context
// or the daemon ends.
func (d *Daemon) Events(ctx context.Context, owner string, say func(protocol.Status) error) error {
	sub := d.feed.subscribe()
	defer d.feed.cancel(sub)
	type seen struct {
		version  uint64
		progress string // changes without a version, for it is in no record
		phase    protocol.Phase
	}
	told := map[string]seen{}
	tell := func(s protocol.Status) error {
		now := seen{s.Version, s.Progress, s.Phase}
		if owner != "" && s.Owner != owner || told[s.ID] == now {
			return nil
		}
		if told[s.ID] = now; s.State == deleted {
			delete(told, s.ID)
		}
		return say(s)
	}
	for _, s := range d.List(owner) {
		if err := tell(s); err != nil {
			return nil // whoever listened has gone
		}
	}
	for {
		for _, s := range d.feed.take(sub) {
			if err := tell(s); err != nil {
				return nil // as above
			}
		}
		select {
		case <-sub.arrived:
		case <-ctx.Done():
			return nil
		case <-d.ctx.Done():
			return nil
		}
	}
}
