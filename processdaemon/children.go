package processdaemon

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"tandem/internal/procid"
)

// children keeps account of the processes that are this daemon's to collect: the
// keeper, and, when the keeper that this daemon started was killed, everything that
// was its own, for the daemon is the next subreaper. The tracked ones are
// collected by who tracks them, which gives their exit code, all others here, so
// that no zombies stay.
type children struct {
	// fork is held for reading from a fork until the child is tracked, and for
	// writing while a zombie is collected, so that none is collected too early.
	fork sync.RWMutex

	mu      sync.Mutex
	tracked map[int]int
}

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

// CombinedOutput runs a command of the program that the daemon is all of, and returns
// what it wrote. Such a program must not run one in another way: as the next
// subreaper the daemon collects every child that it does not know.
func (d *Daemon) CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	d.kids.fork.RLock()
	err := cmd.Start()
	if err == nil {
		d.kids.track(cmd.Process.Pid)
		defer d.kids.untrack(cmd.Process.Pid)
	}
	d.kids.fork.RUnlock()
	if err != nil {
		return nil, err
	}
	err = cmd.Wait()
	return out.Bytes(), err
}

// collect runs until the context ends.
func (c *children) collect(ctx context.Context) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGCHLD)
	defer signal.Stop(ch)
	// A zombie that is tracked hides those behind it for a moment, and signals
	// coalesce: hence the ticks.
	const idle, busy = time.Minute, 5 * time.Millisecond
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
	_, err = procid.ReapPid(pid)
	return pid, err == nil
}
