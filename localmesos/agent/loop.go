package agent

import (
	"context"
	"sync"
	"time"
)

// loop is the agent's mailbox: functions run one after another in one
// goroutine, in the order in which they came.
type loop struct {
	mu    sync.Mutex
	queue []func()
	// after is called after each function; idle tells that no other waits.
	after func(idle bool)
	wake  chan struct{}
	done  chan struct{}
}

func newLoop() *loop {
	return &loop{after: func(bool) {}, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// post queues f. It never blocks, and may be called from the loop itself.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.queue = append(l.queue, f)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// do runs f in the loop and waits for it. It returns false when the loop
// ended, or ctx did, before f had run; f may still run then if only ctx ended.
// It must not be called from the loop.
func (l *loop) do(ctx context.Context, f func()) bool {
	ran := make(chan struct{})
	l.post(func() { f(); close(ran) })
	return l.wait(ctx, ran)
}

// wait waits for the end of a function that was posted.
func (l *loop) wait(ctx context.Context, ran <-chan struct{}) bool {
	select {
	case <-ran:
		return true
	case <-l.done:
	case <-ctx.Done():
	}
	select {
	case <-ran:
		return true
	default:
		return false
	}
}

// run works until ctx ends; what is queued then is dropped.
func (l *loop) run(ctx context.Context) {
	defer close(l.done)
	for {
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, f := range batch {
			if ctx.Err() != nil {
				return
			}
			f()
			l.after(false)
		}
		if len(batch) > 0 {
			l.after(true)
			continue
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
	}
}

// clock is real time, or a test's.
type clock interface {
	Now() time.Time
	// AfterFunc runs f in a goroutine of its own after d, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// after runs f in the event loop after d, unless stop is called before, also
// if that happens while f waits for its turn.
func (a *Agent) after(d time.Duration, f func()) (stop func()) {
	stopped := false
	halt := a.clock.AfterFunc(d, func() {
		a.loop.post(func() {
			if !stopped {
				stopped = true
				f()
			}
		})
	})
	return func() { stopped = true; halt() }
}

// pause waits beside the loop for d, or until the agent ends.
func (a *Agent) pause(d time.Duration) {
	over := make(chan struct{})
	defer a.clock.AfterFunc(d, func() { close(over) })()
	select {
	case <-over:
	case <-a.ctx.Done():
	}
}

// loopClock gives the update manager timers whose functions run in the loop.
type loopClock struct{ a *Agent }

func (c loopClock) Func(d time.Duration, f func()) func() { return c.a.after(d, f) }
