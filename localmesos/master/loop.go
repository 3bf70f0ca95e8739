package master

import (
	"container/heap"
	"sync"
	"time"
)

// loop runs closures and timers one at a time. It is the only goroutine that
// touches the master's state.
type loop struct {
	work   chan func()
	quit   chan struct{}
	done   chan struct{}
	once   sync.Once
	timers timerHeap
	// skew puts the clock forward; only tests do.
	skew time.Duration
}

// now is the time by the loop's clock. Only the loop may call it.
func (l *loop) now() time.Time { return time.Now().Add(l.skew) }

// timer is a closure that runs at a time unless cancelled.
type timer struct {
	at    time.Time
	run   func()
	index int
}

func newLoop() *loop {
	return &loop{work: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
}

func (l *loop) start() { go l.run() }

// stop ends the loop and waits for it.
func (l *loop) stop() {
	l.once.Do(func() { close(l.quit) })
	<-l.done
}

// do runs f in the loop and waits for it. It returns false when the loop has ended.
func (l *loop) do(f func()) bool {
	finished := make(chan struct{})
	select {
	case l.work <- func() { defer close(finished); f() }:
		<-finished
		return true
	case <-l.quit:
		return false
	}
}

// post runs f in the loop; it waits only until the loop takes it.
func (l *loop) post(f func()) {
	select {
	case l.work <- f:
	case <-l.quit:
	}
}

// after runs f in the loop after d. Only the loop may call it.
func (l *loop) after(d time.Duration, f func()) *timer {
	t := &timer{at: l.now().Add(d), run: f}
	heap.Push(&l.timers, t)
	return t
}

// cancel forgets a timer; nil and timers that ran already are allowed. Only the loop may call it.
func (l *loop) cancel(t *timer) {
	if t != nil && t.index >= 0 && t.index < len(l.timers) && l.timers[t.index] == t {
		heap.Remove(&l.timers, t.index)
	}
}

func (l *loop) run() {
	defer close(l.done)
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		wait := time.Hour
		if len(l.timers) > 0 {
			wait = l.timers[0].at.Sub(l.now())
		}
		if wait <= 0 {
			if t, ok := heap.Pop(&l.timers).(*timer); ok {
				t.run()
			}
			// Work that waits must not starve behind a row of timers.
			select {
			case f := <-l.work:
				f()
			case <-l.quit:
				return
			default:
			}
			continue
		}
		clock.Reset(wait)
		select {
		case f := <-l.work:
			f()
		case <-clock.C:
		case <-l.quit:
			return
		}
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds a timer, for container/heap.
func (h *timerHeap) Push(x any) {
	if t, ok := x.(*timer); ok {
		t.index = len(*h)
		*h = append(*h, t)
	}
}

// Pop removes the last timer, for container/heap.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
