package fault

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// writer is the answer of an exchange. What a delay holds back is written by a
// goroutine of its own, so that an event is as late as it should be however many
// come after it.
type writer struct {
	http.ResponseWriter
	x    *exchange
	done <-chan struct{} // of the request
	code int

	mu    sync.Mutex // of all below, and of writing
	late  []lateWrite
	size  int
	err   error
	ended chan struct{} // of the goroutine; nil when there is none
}

type lateWrite struct {
	due  time.Time
	data []byte
}

// maxLate bounds what a delay holds back, in bytes; more breaks the stream.
const maxLate = 64 << 20

// writeTimeout is how long one late write may take.
const writeTimeout = 20 * time.Second

var (
	errDead    = errors.New("the stream was cut by a fault")
	errTooMuch = errors.New("a delay holds too much back")
)

// WriteHeader passes the status on and remembers it.
func (w *writer) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes now, or later when events are delayed.
func (w *writer) Write(p []byte) (int, error) {
	if w.x.isDead() {
		return 0, errDead
	}
	delay := w.x.delay()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if delay == 0 && w.ended == nil {
		return w.ResponseWriter.Write(p)
	}
	if w.size += len(p); w.size > maxLate {
		return 0, errTooMuch
	}
	due := time.Now().Add(delay)
	if n := len(w.late); n > 0 && due.Before(w.late[n-1].due) {
		due = w.late[n-1].due // none overtakes another
	}
	w.late = append(w.late, lateWrite{due: due, data: append([]byte(nil), p...)})
	if w.ended == nil {
		w.ended = make(chan struct{})
		go w.writeLate(w.ended)
	}
	return len(p), nil
}

// FlushError is for http.ResponseController. A flushed answer of 200 that is not
// at its end is a stream.
func (w *writer) FlushError() error {
	if w.code == http.StatusOK {
		s := w.x.set
		s.mu.Lock()
		w.x.stream = true
		s.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return w.err // the goroutine flushes
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetWriteDeadline is for http.ResponseController. Late writes have deadlines of their own.
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

// writeLate writes what is held back when it is due, and ends when nothing is left.
func (w *writer) writeLate(ended chan struct{}) {
	defer close(ended)
	control := http.NewResponseController(w.ResponseWriter)
	for {
		w.mu.Lock()
		if len(w.late) == 0 || w.err != nil {
			w.late, w.size, w.ended = nil, 0, nil
			w.mu.Unlock()
			return
		}
		first := w.late[0]
		w.mu.Unlock()
		timer := time.NewTimer(time.Until(first.due))
		select {
		case <-timer.C:
		case <-w.done:
			timer.Stop()
		}
		w.mu.Lock()
		select {
		case <-w.done:
			w.err = errDead
		default:
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every ResponseWriter has deadlines
			if _, w.err = w.ResponseWriter.Write(first.data); w.err == nil {
				w.err = control.Flush()
			}
			w.late = w.late[1:]
			w.size -= len(first.data)
		}
		w.mu.Unlock()
	}
}

// drain waits until nothing is held back any more.
func (w *writer) drain() {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
