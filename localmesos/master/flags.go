package master

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"
)

// Kinds of registry.
const (
	// RegistryLog keeps agents and removed frameworks in WorkDir. It stands for
	// Apache Mesos's replicated log; this one has a single replica.
	RegistryLog = "replicated_log"
	// RegistryInMemory forgets them when the master ends.
	RegistryInMemory = "in_memory"
)

// Flags configure a master. The zero value of a field means its default, which
// is that of Apache Mesos unless said otherwise.
type Flags struct {
	// IP to listen on; 127.0.0.1 by default (Apache Mesos takes the host's address).
	IP string
	// Port to listen on; 0 takes a free one.
	Port int
	// Hostname told to frameworks; the IP by default.
	Hostname string
	// WorkDir holds the registry; needed unless Registry is RegistryInMemory.
	WorkDir string
	// Registry is RegistryLog (default) or RegistryInMemory.
	Registry string
	// AgentPingTimeout (15 s) times MaxAgentPingTimeouts (5) is how long an
	// agent may be silent before it counts as unreachable.
	AgentPingTimeout     time.Duration
	MaxAgentPingTimeouts int
	// AgentReregisterTimeout (10 min) is how long the master waits, after its
	// own restart, for the agents of its registry and for their frameworks.
	AgentReregisterTimeout time.Duration
	// AllocationInterval (1 s) is the time between two allocations.
	AllocationInterval time.Duration
	// HeartbeatInterval of event streams; 15 s, which is not a flag in Apache Mesos.
	HeartbeatInterval time.Duration
	// MaxCompletedFrameworks (50) and MaxCompletedTasksPerFramework (1000) bound the history.
	MaxCompletedFrameworks        int
	MaxCompletedTasksPerFramework int
	// Logger takes the master's log; discarded by default.
	Logger *slog.Logger
}

func (f Flags) withDefaults() Flags {
	text := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	duration := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	number := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	text(&f.IP, "127.0.0.1")
	text(&f.Hostname, f.IP)
	text(&f.Registry, RegistryLog)
	duration(&f.AgentPingTimeout, 15*time.Second)
	number(&f.MaxAgentPingTimeouts, 5)
	duration(&f.AgentReregisterTimeout, 10*time.Minute)
	duration(&f.AllocationInterval, time.Second)
	duration(&f.HeartbeatInterval, 15*time.Second)
	number(&f.MaxCompletedFrameworks, 50)
	number(&f.MaxCompletedTasksPerFramework, 1000)
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	return f
}

func (f Flags) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if net.ParseIP(f.IP) == nil {
		bad("--ip=%q is not an IP address", f.IP)
	}
	if f.Port < 0 || f.Port > 65535 {
		bad("--port=%d is not a port: use 0 to 65535", f.Port)
	}
	switch f.Registry {
	case RegistryInMemory:
	case RegistryLog:
		if f.WorkDir == "" {
			bad("--work_dir is needed for --registry=%s: give a directory, or use --registry=%s", RegistryLog, RegistryInMemory)
		} else if err := os.MkdirAll(f.WorkDir, 0o755); err != nil {
			bad("--work_dir=%q cannot be made: %w", f.WorkDir, err)
		}
	default:
		bad("--registry=%q is unknown: use %s or %s", f.Registry, RegistryLog, RegistryInMemory)
	}
	for name, d := range map[string]time.Duration{"agent_ping_timeout": f.AgentPingTimeout, "allocation_interval": f.AllocationInterval,
		"agent_reregister_timeout": f.AgentReregisterTimeout, "heartbeat interval": f.HeartbeatInterval} {
		if d < 0 {
			bad("--%s=%v is negative", name, d)
		}
	}
	if f.MaxAgentPingTimeouts < 1 {
		bad("--max_agent_ping_timeouts=%d is too small: use 1 or more", f.MaxAgentPingTimeouts)
	}
	return errors.Join(errs...)
}
