package wire

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gogo/protobuf/proto"

	"tandem/internal/recordio"
)

// Stream is the sending side of an event stream. Send never blocks: events
// wait in a bounded queue, and a client that lets it run full, or that takes
// no bytes for WriteTimeout, is disconnected.
type Stream struct {
	mt    MediaType
	mu    sync.Mutex
	queue [][]byte
	size  int
	// maxEvents and maxBytes bound the queue.
	maxEvents, maxBytes int
	writeTimeout        time.Duration
	closed              bool
	paused              time.Time // nothing is written before
	wake                chan struct{}
	done                chan struct{}
	doneFix             sync.Once
}

// Limits of a Stream's queue, unless Limit says otherwise.
const (
	MaxQueuedEvents = 100_000
	MaxQueuedBytes  = 128 << 20
	// WriteTimeout is how long one write may take before the client counts as gone.
	WriteTimeout = 20 * time.Second
)

// NewStream makes a stream of the given form. Serve must be called once.
func NewStream(mt MediaType) *Stream {
	return &Stream{mt: mt, maxEvents: MaxQueuedEvents, maxBytes: MaxQueuedBytes, writeTimeout: WriteTimeout, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Limit sets how many events, and how many bytes of them, may wait; before the first Send.
func (s *Stream) Limit(events, bytes int) { s.maxEvents, s.maxBytes = events, bytes }

// Send queues an event. It returns false when the stream is closed or was
// closed now because the client does not keep up. An event that cannot be
// encoded, because someone passed on a message without a required field, is
// dropped: it must not end the server.
func (s *Stream) Send(event proto.Message) bool {
	b, err := Marshal(s.mt, event)
	if err != nil {
		slog.Error("an event cannot be encoded and is dropped", "error", err)
		return false
	}
	return s.SendRecord(b)
}

// SendRecord queues an event that is encoded already.
func (s *Stream) SendRecord(record []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.queue) >= s.maxEvents || s.size+len(record) > s.maxBytes {
		s.queue, s.size = nil, 0
		s.closeLocked()
		return false
	}
	s.queue = append(s.queue, recordio.Append(nil, record))
	s.size += len(record)
	s.signal()
	return true
}

// Pause holds back what is queued until Resume, or for the given time at most.
func (s *Stream) Pause(most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = time.Now().Add(most)
}

// Resume ends a pause.
func (s *Stream) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = time.Time{}
	s.signal()
}

// Close ends the stream after what is queued has been written.
func (s *Stream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
}

func (s *Stream) closeLocked() {
	s.closed = true
	s.signal()
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Done is closed when Serve has returned: nothing more reaches the client.
func (s *Stream) Done() <-chan struct{} { return s.done }

// MediaType is the form of the stream's events.
func (s *Stream) MediaType() MediaType { return s.mt }

// Serve writes the answer's head and then the events, until Close, the
// client's end, or ctx. It must be called in the request's handler.
func (s *Stream) Serve(ctx context.Context, w http.ResponseWriter, header map[string]string) {
	defer s.finish()
	for k, v := range header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Type", string(s.mt))
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	if control.Flush() != nil {
		return
	}
	for {
		batch, closed, pause := s.take()
		for _, b := range batch {
			// Not every ResponseWriter has deadlines; then a stuck client ends with ctx.
			_ = control.SetWriteDeadline(time.Now().Add(s.writeTimeout))
			if _, err := w.Write(b); err != nil {
				return
			}
		}
		if len(batch) > 0 && control.Flush() != nil {
			return
		}
		if closed {
			return
		}
		if !s.wait(ctx, pause) {
			return
		}
	}
}

// wait waits for something to do, or for the end of a pause; it returns false at the end of ctx.
func (s *Stream) wait(ctx context.Context, pause time.Duration) bool {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-s.wake:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}

// finish forbids further events and tells that the stream is over.
func (s *Stream) finish() {
	s.mu.Lock()
	s.closed = true
	s.queue, s.size = nil, 0
	s.mu.Unlock()
	s.doneFix.Do(func() { close(s.done) })
}

// take returns what is queued, whether the stream ends after it, and how long
// a pause still is, during which nothing is taken.
func (s *Stream) take() ([][]byte, bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pause := time.Until(s.paused); pause > 0 {
		return nil, false, pause
	}
	batch := s.queue
	s.queue, s.size = nil, 0
	return batch, s.closed, 0
}

// MaxRecord is the largest event that is read, in bytes.
const MaxRecord = 64 << 20

// NewRecordReader returns a reader of the events of a stream.
func NewRecordReader(r io.Reader) *recordio.Reader { return recordio.NewReader(r, MaxRecord) }
