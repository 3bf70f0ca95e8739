// Package localmesos runs an embedded, Mesos-compatible master and agents in this
// process, for one machine and for tests: Start gives a cluster whose parts can be
// killed and started again.
//
// It is held to the observable behaviour of Apache Mesos 1.12 and knows nothing of
// the frameworks that use it. It must never be taken for a cluster: there is one
// master, no election, no isolation and no authentication.
package localmesos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"tandem/localmesos/agent"
	"tandem/localmesos/master"
)

// Options describe a cluster.
type Options struct {
	// Dir holds the work directories of master and agents: Dir/master, Dir/agent-1, ...
	Dir string
	// Agents are those to start; none means one with defaults.
	Agents []AgentOptions
	// MasterIP and MasterPort are where the master listens; 127.0.0.1 and a free port by default.
	MasterIP   string
	MasterPort int
	// MasterFlags changes further flags of the master; may be nil.
	MasterFlags func(*master.Flags)
	// AgentFlags changes further flags of every agent; may be nil.
	AgentFlags func(*agent.Flags)
	// EnableFaults lets master and agents be broken on purpose: by Cluster.Fault,
	// Cluster.Faults and Node.Faults, and over HTTP.
	EnableFaults bool
	// Logger takes the logs of all; discarded by default.
	Logger *slog.Logger
}

// AgentOptions describe one agent.
type AgentOptions struct {
	// IP to listen on: 127.0.0.1, 127.0.0.2, ... by default, one for each agent.
	IP string
	// Port; 0 draws a free one at the first start and keeps it.
	Port int
	// Hostname told to frameworks; the IP by default.
	Hostname string
	// Resources in Mesos's text form; by default 4 cpus, 4 GB mem, 10 GB disk,
	// and a range of 1000 ports of its own: 31000-31999, 32000-32999, ...
	Resources string
	// Attributes in Mesos's text form: "zone:a;rack:r1".
	Attributes string
	// Flags changes further flags of this agent; may be nil.
	Flags func(*agent.Flags)
}

// MaxAgents is how many agents have ports of their own by default.
const MaxAgents = 34

// DefaultResources are those of the n-th agent, counted from 0.
func DefaultResources(n int) string {
	first := 31000 + 1000*n
	return fmt.Sprintf("cpus:4;mem:4096;disk:10240;ports:[%d-%d]", first, min(first+999, 65535))
}

// Start starts a master and its agents. It does not wait until the agents are
// registered; Cluster.Wait does. ctx bounds the start only. When it fails,
// nothing is left running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("localmesos: no directory: set Options.Dir")
	}
	if len(o.Agents) == 0 {
		o.Agents = []AgentOptions{{}}
	}
	if len(o.Agents) > MaxAgents {
		return nil, fmt.Errorf("localmesos: %d agents are more than %d, for which there are ports", len(o.Agents), MaxAgents)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{log: o.Logger}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	c.masterFlags = master.DefaultFlags()
	c.masterFlags.Port, c.masterFlags.WorkDir, c.masterFlags.Logger = o.MasterPort, filepath.Join(o.Dir, "master"), o.Logger
	if o.MasterIP != "" {
		c.masterFlags.IP = o.MasterIP
	}
	if o.MasterFlags != nil {
		o.MasterFlags(&c.masterFlags)
	}
	c.masterFlags.EnableFaults = c.masterFlags.EnableFaults || o.EnableFaults
	c.masterFlags.Supervise = c.supervise(c.processOfMaster)
	err := c.StartMaster(ctx)
	for i, a := range o.Agents {
		if err != nil {
			break
		}
		n := &Node{name: fmt.Sprintf("agent-%d", i+1), cluster: c, flags: o.agentFlags(i, a, c.MasterURL())}
		n.flags.EnableFaults = n.flags.EnableFaults || o.EnableFaults
		n.flags.Supervise = c.supervise(n.processFault)
		c.nodes = append(c.nodes, n)
		err = n.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (o Options) agentFlags(i int, a AgentOptions, masterURL string) agent.Flags {
	f := agent.DefaultFlags()
	f.Master, f.WorkDir, f.Logger = masterURL, filepath.Join(o.Dir, fmt.Sprintf("agent-%d", i+1)), o.Logger
	f.IP, f.Port, f.Hostname, f.Resources, f.Attributes = a.IP, a.Port, a.Hostname, a.Resources, a.Attributes
	if f.IP == "" {
		f.IP = fmt.Sprintf("127.0.0.%d", i+1)
	}
	if f.Hostname == "" {
		f.Hostname = f.IP
	}
	if f.Resources == "" {
		f.Resources = DefaultResources(i)
	}
	for _, change := range []func(*agent.Flags){o.AgentFlags, a.Flags} {
		if change != nil {
			change(&f)
		}
	}
	return f
}

// closeTimeout bounds the orderly end of an agent with all its executors.
const closeTimeout = 30 * time.Second
