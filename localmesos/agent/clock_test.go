package agent

import (
	"context"
	"sync"
	"testing"
	"time"
)

// manualClock stands still until a test moves it.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*manualTimer
}

type manualTimer struct {
	at time.Time
	f  func()
}

func newManualClock() *manualClock { return &manualClock{now: time.Unix(1_700_000_000, 0)} }

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.f = nil
	}
}

// advance moves the clock and runs what is due, each in a goroutine of its own
// as the real clock does.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for _, t := range c.timers {
		if t.f != nil && !t.at.After(c.now) {
			go t.f()
			t.f = nil
		}
	}
}

// waitForTimer waits until something is due after exactly d.
func (c *manualClock) waitForTimer(t *testing.T, d time.Duration) {
	t.Helper()
	eventually(t, "a timer of "+d.String(), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, timer := range c.timers {
			if timer.f != nil && timer.at.Equal(c.now.Add(d)) {
				return true
			}
		}
		return false
	})
}

// endWith ends an agent with all that it runs, which takes time.
func (c *manualClock) endWith(t *testing.T, a *Agent) {
	t.Cleanup(func() {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = a.Shutdown(context.Background())
		}()
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				c.advance(reapInterval)
			}
		}
	})
}
