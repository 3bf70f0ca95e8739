package master

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"

	"tandem/localmesos/fault"
	"tandem/localmesos/internal/flags"
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
	// own restart, for the agents of its registry and for their frameworks, and
	// for an agent whose connection broke.
	AgentReregisterTimeout time.Duration
	// AgentRemovalRateLimit is the least time between two agents that are given
	// up because they do not answer or did not come back; 0 for no limit.
	AgentRemovalRateLimit time.Duration
	// Weights of roles, as "role=weight,role=weight"; 1 for all others. Weights
	// that were set while a master ran, and are in its registry, count more.
	Weights string
	// MinAllocatableResources is what makes an offer worthwhile, such as the
	// default "cpus:0.01|mem:32": any one of these amounts.
	MinAllocatableResources string
	// AllocationInterval (1 s) is the time between two allocations.
	AllocationInterval time.Duration
	// HeartbeatInterval of event streams; 15 s, which is not a flag in Apache Mesos.
	HeartbeatInterval time.Duration
	// MaxCompletedFrameworks (50), MaxCompletedTasksPerFramework (1000) and
	// MaxUnreachableTasksPerFramework (1000) bound what is remembered; negative for nothing.
	MaxCompletedFrameworks          int
	MaxCompletedTasksPerFramework   int
	MaxUnreachableTasksPerFramework int
	// MaxOperatorEventStreamSubscribers (1000) bounds those who follow the master's events.
	MaxOperatorEventStreamSubscribers int
	// Credentials is the path of a file with principals and secrets, in JSON
	// ({"credentials":[{"principal":"p","secret":"s"}]}) or as lines "p s".
	Credentials string
	// AuthenticateHTTPFrameworks refuses frameworks that do not give the credentials of
	// a principal, or of another one than their FrameworkInfo names.
	AuthenticateHTTPFrameworks bool
	// HTTPFrameworkAuthenticators is how they do so: "basic" (HTTP basic authentication).
	HTTPFrameworkAuthenticators string
	// Leader is host:port of another master that leads, for tests of frameworks and
	// tools: this one then sends them there, as Apache Mesos's standby masters do.
	// NoLeader has it answer 503, as while no leader is elected. Not a flag of Apache Mesos.
	Leader string
	// EnableFaults lets faults be made from outside, by /faults; see the package fault.
	EnableFaults bool
	// Supervise kills and restarts the master for a fault; without it these are refused.
	Supervise func(fault.Fault)
	// SSL are libprocess's variables LIBPROCESS_SSL_ENABLED, ..._CERT_FILE,
	// ..._KEY_FILE and so on, as in docs/ssl.md of Apache Mesos. Nil is plain HTTP:
	// the process's own environment is not looked at here.
	SSL map[string]string
	// Logger takes the master's log; discarded by default.
	Logger *slog.Logger
}

// DefaultPort is the master's port unless --port says otherwise.
const DefaultPort = 5050

// DefaultFlags are Apache Mesos's defaults, but for the address. WorkDir has none.
func DefaultFlags() Flags {
	return Flags{
		IP: "127.0.0.1", Port: DefaultPort, Registry: RegistryLog,
		AgentPingTimeout: 15 * time.Second, MaxAgentPingTimeouts: 5, AgentReregisterTimeout: 10 * time.Minute,
		AllocationInterval: time.Second, HeartbeatInterval: 15 * time.Second,
		MaxCompletedFrameworks: 50, MaxCompletedTasksPerFramework: 1000, MaxUnreachableTasksPerFramework: 1000,
		MaxOperatorEventStreamSubscribers: 1000, MinAllocatableResources: "cpus:0.01|mem:32",
	}
}

// Register defines the flags on a set, with the values in f as defaults. Both
// spellings work, --work_dir and --work-dir. Flags of Apache Mesos that have no
// meaning for one master on one machine are taken and named by Ignored.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.SetNormalizeFunc(flags.Normalize)
	set.StringVar(&f.IP, "ip", f.IP, "IP address to listen on")
	set.IntVar(&f.Port, "port", f.Port, "port to listen on; 0 draws a free one")
	set.StringVar(&f.Hostname, "hostname", f.Hostname, "host name told to frameworks (default: the IP address)")
	set.StringVar(&f.WorkDir, "work_dir", f.WorkDir, "directory of the registry; keep it across restarts")
	set.StringVar(&f.Registry, "registry", f.Registry, "where agents are remembered: "+RegistryLog+" (in work_dir) or "+RegistryInMemory)
	flags.DurationVar(set, &f.AgentPingTimeout, "agent_ping_timeout", "how long an agent may take to answer a ping")
	set.IntVar(&f.MaxAgentPingTimeouts, "max_agent_ping_timeouts", f.MaxAgentPingTimeouts, "unanswered pings after which an agent is unreachable")
	flags.DurationVar(set, &f.AgentReregisterTimeout, "agent_reregister_timeout", "how long known agents may take to come back after a restart of the master, or when their connection broke")
	flags.DurationVar(set, &f.AllocationInterval, "allocation_interval", "time between two allocations")
	set.Var((*countFlag)(&f.MaxCompletedFrameworks), "max_completed_frameworks", "completed frameworks to remember")
	set.Var((*countFlag)(&f.MaxCompletedTasksPerFramework), "max_completed_tasks_per_framework", "completed tasks to remember for each framework")
	set.Var((*countFlag)(&f.MaxUnreachableTasksPerFramework), "max_unreachable_tasks_per_framework", "unreachable tasks to remember for each framework")
	set.IntVar(&f.MaxOperatorEventStreamSubscribers, "max_operator_event_stream_subscribers", f.MaxOperatorEventStreamSubscribers, "tools that may follow the events of the master; the oldest has to go for one more")
	set.Var((*rateFlag)(&f.AgentRemovalRateLimit), "agent_removal_rate_limit", "how fast unreachable agents are given up, such as 1/10mins (default: no limit)")
	set.StringVar(&f.Weights, "weights", f.Weights, "weights of roles, such as web=2,batch=0.5; other roles have 1")
	set.StringVar(&f.MinAllocatableResources, "min_allocatable_resources", f.MinAllocatableResources, "resources worth an offer; any of the alternatives is enough")
	set.StringVar(&f.Credentials, "credentials", f.Credentials, "file with principals and secrets, in JSON or one pair a line")
	set.BoolVar(&f.AuthenticateHTTPFrameworks, "authenticate_http_frameworks", f.AuthenticateHTTPFrameworks, "refuse frameworks that do not authenticate")
	set.StringVar(&f.HTTPFrameworkAuthenticators, "http_framework_authenticators", f.HTTPFrameworkAuthenticators, "how frameworks authenticate: basic")
	set.StringVar(&f.Leader, "leader", f.Leader, "host:port of another master, which clients are sent to; none has them told that there is no leader (for tests)")
	set.BoolVar(&f.EnableFaults, "enable_faults", f.EnableFaults, "let \"tandem mesos fault\" break the master on purpose, for tests")
	for name, why := range ignored {
		flags.Ignore(set, name, why)
	}
	set.Var(&refusedFlag{}, "zk", "refused: there is one master and no election")
	set.Lookup("zk").Hidden = true
}

// ignored are flags of Apache Mesos's master without meaning here.
var ignored = map[string]string{
	"quorum":                       "the registry has one replica",
	"log_dir":                      "the log goes to standard error",
	"logging_level":                "use the program's own logging flags",
	"log_auto_initialize":          "the registry is made when it is not there",
	"cluster":                      "there is one cluster",
	"authenticate_agents":          "there is no authentication on one machine",
	"authenticate_frameworks":      "there are HTTP frameworks only; use --authenticate_http_frameworks",
	"authenticate_http_readonly":   "tools need not authenticate on one machine",
	"authenticate_http_readwrite":  "tools need not authenticate on one machine",
	"allocator":                    "there is one allocator",
	"recovery_agent_removal_limit": "agents that do not come back are unreachable, however many they are",
	"registry_fetch_timeout":       "the registry is a file",
	"registry_store_timeout":       "the registry is a file",
	"webui_dir":                    "there is no web interface",
}

// Ignored names the flags in the set that were given and have no effect, each with the reason.
func Ignored(set *pflag.FlagSet) []string { return flags.Ignored(set) }

// refusedFlag takes nothing: silently ignoring it would mean another thing than what was asked for.
type refusedFlag struct{}

// String returns nothing.
func (refusedFlag) String() string { return "" }

// Set refuses.
func (refusedFlag) Set(string) error {
	return errors.New("the embedded master does not elect leaders; leave the flag out, or run Apache Mesos for a cluster")
}

// Type names the kind of value in help texts.
func (refusedFlag) Type() string { return "text" }

// withDefaults fills in what is not set. Port 0 stays: it draws a free one.
func (f Flags) withDefaults() Flags {
	def := DefaultFlags()
	f.IP = cmp.Or(f.IP, def.IP)
	f.Hostname = cmp.Or(f.Hostname, f.IP)
	f.Registry = cmp.Or(f.Registry, def.Registry)
	f.AgentPingTimeout = cmp.Or(f.AgentPingTimeout, def.AgentPingTimeout)
	f.MaxAgentPingTimeouts = cmp.Or(f.MaxAgentPingTimeouts, def.MaxAgentPingTimeouts)
	f.AgentReregisterTimeout = cmp.Or(f.AgentReregisterTimeout, def.AgentReregisterTimeout)
	f.AllocationInterval = cmp.Or(f.AllocationInterval, def.AllocationInterval)
	f.HeartbeatInterval = cmp.Or(f.HeartbeatInterval, def.HeartbeatInterval)
	f.MaxCompletedFrameworks = max(cmp.Or(f.MaxCompletedFrameworks, def.MaxCompletedFrameworks), 0)
	f.MaxCompletedTasksPerFramework = max(cmp.Or(f.MaxCompletedTasksPerFramework, def.MaxCompletedTasksPerFramework), 0)
	f.MaxUnreachableTasksPerFramework = max(cmp.Or(f.MaxUnreachableTasksPerFramework, def.MaxUnreachableTasksPerFramework), 0)
	f.MaxOperatorEventStreamSubscribers = cmp.Or(f.MaxOperatorEventStreamSubscribers, def.MaxOperatorEventStreamSubscribers)
	f.MinAllocatableResources = cmp.Or(f.MinAllocatableResources, def.MinAllocatableResources)
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
		"agent_reregister_timeout": f.AgentReregisterTimeout, "agent_removal_rate_limit": f.AgentRemovalRateLimit, "heartbeat interval": f.HeartbeatInterval} {
		if d < 0 {
			bad("--%s=%v is negative", name, d)
		}
	}
	if _, err := parseWeights(f.Weights); err != nil {
		errs = append(errs, err)
	}
	if _, err := parseLeast(f.MinAllocatableResources); err != nil {
		errs = append(errs, err)
	}
	if f.MaxOperatorEventStreamSubscribers < 1 {
		bad("--max_operator_event_stream_subscribers=%d is too small: use 1 or more", f.MaxOperatorEventStreamSubscribers)
	}
	if f.MaxAgentPingTimeouts < 1 {
		bad("--max_agent_ping_timeouts=%d is too small: use 1 or more", f.MaxAgentPingTimeouts)
	}
	errs = append(errs, f.validateAuthentication(), f.validateLeader())
	return errors.Join(errs...)
}
