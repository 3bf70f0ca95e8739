package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"tandem/integration/stack"
)

// wires are proxies between the processes of a stack, one for each pair, that can be cut.
type wires struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]*wire
}

// via is for faultOptions.via; it puts a wire between from and whatever it talks to.
func (w *wires) via(from, address string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[from] == nil {
		w.of[from] = newWire(w.t, address)
	}
	return w.of[from].listener.Addr().String()
}

func (w *wires) get(from string) *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[from]
}

// accepted is the number of connections so far.
func (w *wire) accepted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accept
}

// startWired starts a stack in which every connection between its processes goes through a wire.
func startWired(t *testing.T) (*faultStack, *wires) {
	t.Helper()
	w := &wires{t: t, of: map[string]*wire{}}
	return startFault(t, faultOptions{via: w.via}), w
}

// the pairs of processes that are connected, by the one that connects.
var ends = []string{stack.Scheduler, stack.Agent(0), stack.Executor}

// A connection breaks, again and again, then stays away for a while: tasks and what is known of them stay as they were.
func TestFaultConnectionDropped(t *testing.T) {
	t.Parallel()
	for _, end := range ends {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			f, w := startWired(t)
			before := f.launch()
			subscribed := f.subscriptions()
			link := w.get(end)
			for range 3 {
				n := link.accepted()
				link.cut()
				eventually(t, 10*time.Second, "another connection", func() bool { return link.accepted() > n })
			}
			link.set(true)
			link.cut()
			time.Sleep(200 * time.Millisecond) // long enough for a refused attempt
			link.set(false)
			if end == stack.Executor {
				f.waitSubscribed(subscribed)
			}
			f.survived("the connection of "+end+" was cut", before)
			f.finish()
		})
	}
}

// Everything is cut at each moment of a launch.
func TestFaultConnectionDroppedWhileLaunching(t *testing.T) {
	t.Parallel()
	for _, end := range ends {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			f, w := startWired(t)
			for _, m := range moments {
				f.apply()
				f.await(m)
				w.get(end).cut()
				f.waitRunning(fmt.Sprintf("the connection of %s was cut when %s", end, m.name), len(modes), nil)
				f.finish()
			}
		})
	}
}

// All connections are cut every few milliseconds, during a launch, while tasks fail, and while they are stopped.
func TestFaultConnectionsDroppedAllTheTime(t *testing.T) {
	t.Parallel()
	f, w := startWired(t)
	storm := func(during func()) {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			tick := time.NewTicker(70 * time.Millisecond)
			defer tick.Stop()
			for i := range 20 {
				select {
				case <-stop:
					return
				case <-tick.C:
					w.get(ends[i%len(ends)]).cut()
				}
			}
		}()
		during()
		close(stop)
		<-done
	}
	storm(f.apply)
	var now facts
	storm(func() { now = f.waitRunning("a launch with cuts", len(modes), nil) })
	storm(func() {
		f.killTask(now.task(t, "host", "bg"))
		f.killTask(now.task(t, "bridge", "fg"))
		f.waitRunning("failures with cuts", len(modes), now.groups())
	})
	storm(f.finish)
}

// A task ends while nobody can tell anybody: the news comes later, once, with the exit information.
func TestFaultTaskKilledWhileDisconnected(t *testing.T) {
	t.Parallel()
	for _, end := range ends {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			f, w := startWired(t)
			before := f.launch()
			link := w.get(end)
			link.set(true)
			link.cut()
			f.killTask(before.task(t, "host", "bg"))
			f.killTask(before.task(t, "bridge", "fg"))
			eventually(t, 10*time.Second, "the end of the killed processes", func() bool {
				_, a := startTime(before.task(t, "host", "bg").Pid)
				_, b := startTime(before.task(t, "bridge", "fg").Pid)
				return a != nil && b != nil
			})
			link.set(false)
			f.replaced("tasks were killed while "+end+" was cut off", before, killedBySignal, "host", "bridge")
			f.finish()
		})
	}
}
