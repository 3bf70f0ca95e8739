package localmesos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"tandem/localmesos/fault"
)

// MasterName is how faults call the master.
const MasterName = "master"

// Faults are what the master has to suffer; nil while it is away, and without
// Options.EnableFaults. They end with the master, as with a process.
func (c *Cluster) Faults() *fault.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master == nil {
		return nil
	}
	return c.master.Faults()
}

// Faults are what the agent has to suffer; nil while it is away, and without
// Options.EnableFaults. They end with the agent, as with a process.
func (n *Node) Faults() *fault.Set {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return nil
	}
	return n.agent.Faults()
}

// Fault puts a fault in force on MasterName or on an agent, which is called by
// its host name, its host:port or "agent-1", "agent-2" and so on. Kill, Restart,
// Lose and Reboot are done when it returns, but that Restart and Reboot with a
// time away come back later, if the cluster still is there then.
func (c *Cluster) Fault(on string, f fault.Fault) (fault.Fault, error) {
	set, process := c.Faults(), c.processOfMaster
	if on != MasterName {
		n := c.Find(on)
		if n == nil {
			return f, fmt.Errorf("%q: %w: there is no such agent; use %s or agent-1 to agent-%d", on, fault.ErrUnknown, MasterName, len(c.nodes))
		}
		set, process = n.Faults(), n.processFault
	}
	if set == nil {
		return f, fmt.Errorf("%s: %w: it is away, or was started without faults", on, fault.ErrRefused)
	}
	f, err := set.Add(f)
	if err != nil {
		return f, err
	}
	switch f.Kind {
	case fault.Kill, fault.Restart, fault.Lose, fault.Reboot:
		return f, process(f)
	default:
		return f, nil
	}
}

// Find returns an agent by its host name, its host:port or "agent-1", "agent-2"
// and so on; nil if there is none.
func (c *Cluster) Find(name string) *Node {
	i := slices.IndexFunc(c.nodes, func(n *Node) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return name == n.name || name == n.flags.Hostname || name == net.JoinHostPort(n.flags.IP, strconv.Itoa(n.flags.Port))
	})
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

// Name is "agent-1" for the first agent, and so on.
func (n *Node) Name() string { return n.name }

// Lose ends the agent as the end of its machine would: nothing is said, and
// all that it ran is gone.
func (n *Node) Lose() error {
	if a := n.take(); a != nil {
		return a.PowerOff()
	}
	return nil
}

// Return starts a machine that was lost, or an agent that was killed.
func (n *Node) Return(ctx context.Context) error { return n.Start(ctx) }

// Replace starts, in the place of an agent that is away, a new one that knows
// nothing of it but has its address.
func (n *Node) Replace(ctx context.Context) error {
	if err := os.Remove(filepath.Join(n.WorkDir(), "meta", "slaves", "latest")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("localmesos: agent %s cannot be replaced: %w", n.name, err)
	}
	return n.Start(ctx)
}

// Reboot is Lose and Return: the agent has a new boot id, and what it ran is gone.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.Lose(); err != nil {
		return err
	}
	return n.Return(ctx)
}

// processOfMaster does a fault that ends the master.
func (c *Cluster) processOfMaster(f fault.Fault) error {
	c.KillMaster()
	if f.Kind == fault.Kill {
		return nil
	}
	return c.later(f, c.StartMaster)
}

// processFault does a fault that ends the agent.
func (n *Node) processFault(f fault.Fault) error {
	switch f.Kind {
	case fault.Lose, fault.Reboot:
		if err := n.Lose(); err != nil {
			return err
		}
	default:
		n.Kill()
	}
	if f.Kind == fault.Kill || f.Kind == fault.Lose {
		return nil
	}
	return n.cluster.later(f, n.Start)
}

// later starts something again: now, or beside the caller after a fault's time away.
func (c *Cluster) later(f fault.Fault, start func(context.Context) error) error {
	away := time.Duration(f.By)
	if away == 0 {
		return start(c.ctx)
	}
	c.work.Go(func() {
		select {
		case <-time.After(away):
			if err := start(c.ctx); err != nil {
				c.log.Error("what a fault ended could not be started again", "fault", f.String(), "error", err)
			}
		case <-c.ctx.Done():
		}
	})
	return nil
}

// supervise does what a fault asks for that came over HTTP, beside the server
// that it came to.
func (c *Cluster) supervise(process func(fault.Fault) error) func(fault.Fault) {
	return func(f fault.Fault) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ctx.Err() != nil {
			return // Close waits for what is under way, and nothing may join it
		}
		c.work.Go(func() {
			if err := process(f); err != nil {
				c.log.Error("a fault could not be done", "fault", f.String(), "error", err)
			}
		})
	}
}
