package localmesos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"tandem/localmesos/agent"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/master"
)

// Cluster is a master and agents in this process. Its methods may be called
// from several goroutines, but not two that start or end the same part.
type Cluster struct {
	mu          sync.Mutex
	masterFlags master.Flags
	master      *master.Master
	nodes       []*Node
	log         *slog.Logger

	// Of what faults start again; it ends with Close.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

// MasterURL is the master's address, such as http://127.0.0.1:5050. It stays the
// same over restarts.
func (c *Cluster) MasterURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return scheme(c.masterFlags.SSL) + net.JoinHostPort(c.masterFlags.IP, strconv.Itoa(c.masterFlags.Port))
}

// Agents are the agents in the order of the options.
func (c *Cluster) Agents() []*Node { return slices.Clone(c.nodes) }

// Agent is the n-th agent, counted from 0.
func (c *Cluster) Agent(n int) *Node { return c.nodes[n] }

// Wait waits until the master has accepted all agents that are started.
func (c *Cluster) Wait(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// StartMaster starts the master, the first time or again after KillMaster.
func (c *Cluster) StartMaster(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.master != nil {
		return errors.New("localmesos: the master runs already")
	}
	m, err := master.New(c.masterFlags)
	if err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return errors.Join(err, m.Close())
	}
	c.master = m
	c.masterFlags.Port = portOf(m.URL(), c.masterFlags.Port)
	return nil
}

// KillMaster drops the master without goodbye, as SIGKILL would.
func (c *Cluster) KillMaster() {
	if m := c.takeMaster(); m != nil {
		m.Kill()
	}
}

func (c *Cluster) takeMaster() *master.Master {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.master
	c.master = nil
	return m
}

// Close ends all: the agents with all their executors, then the master. Nothing
// is left running; the work directories stay.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.work.Wait()
	if broken := c.Faults(); broken != nil {
		broken.ClearAll() // agents that leave wait for the master's answer
	}
	var errs []error
	var all sync.WaitGroup
	results := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		all.Go(func() { results[i] = n.Shutdown() })
	}
	all.Wait()
	errs = append(errs, results...)
	if m := c.takeMaster(); m != nil {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Node is one agent of a cluster.
type Node struct {
	name    string
	cluster *Cluster
	mu      sync.Mutex
	flags   agent.Flags
	agent   *agent.Agent
}

// Start starts the agent, the first time or again on the same work directory
// and address. It does not wait for the master.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil {
		return fmt.Errorf("localmesos: agent %s runs already", n.flags.Hostname)
	}
	a, err := agent.New(n.flags)
	if err != nil {
		return err
	}
	if err := a.Start(ctx); err != nil {
		return err
	}
	n.agent = a
	n.flags.Port = portOf(a.URL(), n.flags.Port)
	return nil
}

// Wait waits until the master has accepted the agent since its last start.
func (n *Node) Wait(ctx context.Context) error {
	n.mu.Lock()
	a := n.agent
	n.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.Registered():
		return nil
	case <-a.Done():
		return fmt.Errorf("localmesos: agent %s ended before it was registered: %w", n.flags.Hostname, a.Err())
	case <-ctx.Done():
		return fmt.Errorf("localmesos: agent %s is not registered: %w", n.flags.Hostname, ctx.Err())
	}
}

// Kill drops the agent without goodbye, as SIGKILL would. Its executors stay.
func (n *Node) Kill() {
	if a := n.take(); a != nil {
		a.Kill()
	}
}

// Restart kills the agent and starts it again.
func (n *Node) Restart(ctx context.Context) error {
	n.Kill()
	return n.Start(ctx)
}

// Stop ends the agent in an orderly way; executors of frameworks that
// checkpoint wait for the next Start.
func (n *Node) Stop() error {
	if a := n.take(); a != nil {
		return a.Close()
	}
	return nil
}

// Shutdown ends the agent and all its executors.
func (n *Node) Shutdown() error {
	a := n.take()
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return a.Shutdown(ctx)
}

// URL is the agent's base URL, such as http://127.0.0.1:5051.
func (n *Node) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return scheme(n.flags.SSL) + net.JoinHostPort(n.flags.IP, strconv.Itoa(n.flags.Port))
}

// IP is the address that the agent listens on.
func (n *Node) IP() string { return n.flags.IP }

// WorkDir is the agent's work directory.
func (n *Node) WorkDir() string { return n.flags.WorkDir }

func (n *Node) take() *agent.Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.agent
	n.agent = nil
	return a
}

// portOf is the port of a base URL; the fallback when it has none.
func portOf(base string, fallback int) int {
	u, err := url.Parse(base)
	if err != nil {
		return fallback
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	return fallback
}

// scheme begins the base URL of a server with these variables.
func scheme(variables map[string]string) string {
	if ssl.Enabled(variables) {
		return "https://"
	}
	return "http://"
}
