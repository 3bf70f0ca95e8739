package processdaemon

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"tandem/internal/procid"
)

// children keeps account of the processes that are this daemon's to collect.
// A process that puts itself into the background becomes the daemon's child
// when the daemon is a subreaper: the tracked ones are collected by who tracks
// them, which gives their exit code, all others here, so that no zombies stay.
type children struct {
	// fork is held for reading from a fork until the child is tracked, and for
	// writing while a zombie is collected, so that none is collected too early.
	fork sync.RWMutex

	mu      sync.Mutex
	tracked map[int]int
	// lately holds the ends of untracked processes: a pid file may name one
	// that ended before anybody could look.
	lately []end
}

type end struct {
	id procid.Identity
	st procid.Status
}

const keepEnds = 64

func (c *children) track(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracked == nil {
		c.tracked = map[int]int{}
	}
	c.tracked[pid]++
}

func (c *children) untrack(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracked[pid]--; c.tracked[pid] <= 0 {
		delete(c.tracked, pid)
	}
}

// lastEnd finds how an untracked process ended that was not older than start.
func (c *children) lastEnd(pid int, start uint64) (procid.Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.lately) - 1; i >= 0; i-- {
		if e := c.lately[i]; e.id.Pid == pid && e.id.StartTime >= start {
			return e.st, true
		}
	}
	return procid.Status{}, false
}

// collect runs until the context ends.
func (c *children) collect(ctx context.Context) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGCHLD)
	defer signal.Stop(ch)
	// A zombie that is tracked hides those behind it for a moment, and signals
	// coalesce: hence the ticks.
	const idle, busy = time.Second, 5 * time.Millisecond
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ch:
		case <-timer.C:
		}
		next := idle
		for {
			pid, more := c.collectOne()
			if pid != 0 && !more {
				next = busy
			}
			if !more {
				break
			}
		}
		timer.Reset(next)
	}
}

// collectOne collects one untracked zombie and tells whether it did; pid is
// the zombie seen, if any.
func (c *children) collectOne() (pid int, more bool) {
	c.fork.Lock()
	defer c.fork.Unlock()
	pid, err := procid.PeekZombie()
	if err != nil || pid == 0 {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tracked[pid] > 0 {
		return pid, false
	}
	id, err := procid.Of(pid)
	if err != nil {
		return pid, false
	}
	st, err := procid.ReapPid(pid)
	if err != nil {
		return pid, false
	}
	c.lately = append(c.lately, end{id, st})
	if len(c.lately) > keepEnds {
		c.lately = append([]end(nil), c.lately[1:]...)
	}
	return pid, true
}
