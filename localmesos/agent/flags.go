package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tandem/localmesos/fault"
	"tandem/localmesos/internal/flags"
)

// Flags configure an agent; names and meanings are those of Apache Mesos's
// agent (docs/configuration/agent.md). The zero value is not usable: start from
// DefaultFlags.
type Flags struct {
	// IP is the address to listen on and to advertise: "127.0.0.2".
	IP string
	// Port is the TCP port; 0 draws a free one (Apache Mesos has no such value).
	Port int
	// Hostname is advertised to frameworks; empty is the host's name.
	Hostname string
	// Master is "host:port" or a http URL of the master.
	Master string
	// WorkDir holds sandboxes and checkpoints; it must outlive the agent.
	WorkDir string
	// Resources in Mesos's text or JSON form; what is not named is detected.
	Resources string
	// DefaultRole is the role of resources that name none.
	DefaultRole string
	// Attributes in Mesos's text form: "zone:a;rack:r1".
	Attributes string
	// ExecutorRegistrationTimeout is how long a new executor has to subscribe.
	ExecutorRegistrationTimeout time.Duration
	// ExecutorReregistrationTimeout is how long executors have to subscribe
	// again after a restart of the agent; at most MaxReregistrationTimeout.
	ExecutorReregistrationTimeout time.Duration
	// ExecutorShutdownGracePeriod is the time between SHUTDOWN and SIGKILL.
	ExecutorShutdownGracePeriod time.Duration
	// RecoveryTimeout is how long executors wait for an agent that is away.
	RecoveryTimeout time.Duration
	// SwitchUser runs executors as the user that the framework asks for.
	SwitchUser bool
	// FetcherStallTimeout is how long a download may make no progress.
	FetcherStallTimeout time.Duration
	// ExecutorEnvironment is what every executor gets beside the MESOS_
	// variables. Nothing else of the agent's own environment is passed on.
	ExecutorEnvironment map[string]string
	// CgroupsRoot is the cgroup below which containers are kept together.
	CgroupsRoot string
	// CommandExecutor is the argv of the program that runs tasks without an
	// executor of their own; empty is this binary with "mesos command-executor".
	CommandExecutor []string
	// EnableFaults lets faults be made from outside, by /faults; see the package fault.
	EnableFaults bool
	// Supervise kills and restarts the agent for a fault; without it these are refused.
	Supervise func(fault.Fault)
	// Logger gets the agent's log; nil is slog.Default.
	Logger *slog.Logger
}

// MaxReregistrationTimeout is Apache Mesos's limit of executor_reregistration_timeout.
const MaxReregistrationTimeout = 15 * time.Second

// DefaultPort is the agent's port unless --port says otherwise.
const DefaultPort = 5051

// DefaultFlags are Apache Mesos's defaults. Master and WorkDir have none.
func DefaultFlags() Flags {
	return Flags{
		Port:                          DefaultPort,
		DefaultRole:                   "*",
		ExecutorRegistrationTimeout:   time.Minute,
		ExecutorReregistrationTimeout: 2 * time.Second,
		ExecutorShutdownGracePeriod:   5 * time.Second,
		RecoveryTimeout:               15 * time.Minute,
		SwitchUser:                    true,
		FetcherStallTimeout:           time.Minute,
		CgroupsRoot:                   "mesos",
	}
}

// ignored are flags of Apache Mesos's agent that have no meaning here. They are
// taken, so that existing command lines work, and named once in the log.
var ignored = map[string]string{
	"launcher_dir":                 "there are no helper programs",
	"launcher":                     "executors are kept together by cgroup where possible, by session elsewhere",
	"containerizers":               "there is one kind of container: a process tree",
	"isolation":                    "resources are accounted, not enforced",
	"runtime_dir":                  "all state is below work_dir",
	"docker":                       "tasks with a Docker container need an executor that runs it",
	"image_providers":              "there are no container images",
	"systemd_enable_support":       "executors are not put below systemd",
	"registration_backoff_factor":  "the agent registers at once",
	"fetcher_cache_dir":            "there is no fetcher cache",
	"fetcher_cache_size":           "there is no fetcher cache",
	"gc_delay":                     "sandboxes stay until the work directory is removed",
	"disk_watch_interval":          "disk usage is not watched",
	"hadoop_home":                  "hdfs URIs are not supported",
	"frameworks_home":              "relative URIs are refused",
	"logging_level":                "use the program's own logging flags",
	"log_dir":                      "the log goes to standard error",
	"recover":                      "the agent always reconnects with its executors",
	"strict":                       "damaged checkpoints are set aside",
	"reconfiguration_policy":       "resources and attributes must stay as they are",
	"authenticate_http_executors":  "there is no authentication on one machine",
	"authenticate_http_readonly":   "there is no authentication on one machine",
	"authenticate_http_readwrite":  "there is no authentication on one machine",
	"cgroups_enable_cfs":           "resources are accounted, not enforced",
	"http_heartbeat_interval":      "executors get no heartbeats within a day",
	"agent_features":               "the capabilities are fixed",
	"enforce_container_disk_quota": "resources are accounted, not enforced",
}

// Register defines the flags on a set, with the values in f as defaults. Both
// spellings work, --work_dir and --work-dir.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.SetNormalizeFunc(flags.Normalize)
	set.StringVar(&f.IP, "ip", f.IP, "IP address to listen on and to advertise")
	set.IntVar(&f.Port, "port", f.Port, "port to listen on; 0 draws a free one")
	set.StringVar(&f.Hostname, "hostname", f.Hostname, "host name to advertise (default: that of the machine)")
	set.StringVar(&f.Master, "master", f.Master, "address of the master: host:port or URL")
	set.StringVar(&f.WorkDir, "work_dir", f.WorkDir, "directory for sandboxes and checkpoints; keep it across restarts")
	set.StringVar(&f.Resources, "resources", f.Resources, `resources to offer: "cpus:4;mem:4096;disk:10240;ports:[31000-32000]", JSON or file:// (default: detected)`)
	set.StringVar(&f.DefaultRole, "default_role", f.DefaultRole, "role of resources that name none")
	set.StringVar(&f.Attributes, "attributes", f.Attributes, `attributes of the machine: "zone:a;rack:r1;slots:4;window:[1-5]"`)
	flags.DurationVar(set, &f.ExecutorRegistrationTimeout, "executor_registration_timeout", "how long a new executor may take to subscribe")
	flags.DurationVar(set, &f.ExecutorReregistrationTimeout, "executor_reregistration_timeout", "how long executors may take to subscribe again after a restart of the agent (at most 15secs)")
	flags.DurationVar(set, &f.ExecutorShutdownGracePeriod, "executor_shutdown_grace_period", "time between an executor's SHUTDOWN and its SIGKILL")
	flags.DurationVar(set, &f.RecoveryTimeout, "recovery_timeout", "how long executors wait for an agent that is away")
	flags.DurationVar(set, &f.FetcherStallTimeout, "fetcher_stall_timeout", "how long a download may make no progress")
	set.BoolVar(&f.SwitchUser, "switch_user", f.SwitchUser, "run executors as the user that the framework asks for")
	set.Var(noSwitch{set: &f.SwitchUser}, "no_switch_user", "run executors as the agent's own user")
	set.Lookup("no_switch_user").NoOptDefVal = "true"
	set.Var(&environment{&f.ExecutorEnvironment}, "executor_environment_variables", "JSON object (or path of one) with variables for every executor")
	set.StringVar(&f.CgroupsRoot, "cgroups_root", f.CgroupsRoot, "name of the cgroup below which containers are kept together")
	for name, why := range ignored {
		flags.Ignore(set, name, why)
	}
	flags.Ignore(set, "no_systemd_enable_support", ignored["systemd_enable_support"])
}

// Ignored names the flags in the set that were given and have no meaning here,
// each with the reason.
func Ignored(set *pflag.FlagSet) []string { return flags.Ignored(set) }

// Validate returns everything that is wrong with the flags.
func (f *Flags) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.Master == "" {
		bad("master: missing; give the master's address, such as --master=127.0.0.1:5050")
	} else if _, err := f.masterURL(); err != nil {
		errs = append(errs, err)
	}
	if f.WorkDir == "" {
		bad("work_dir: missing; give a directory that outlives the agent, such as --work_dir=/var/lib/mesos")
	}
	if f.IP != "" && net.ParseIP(f.IP) == nil {
		bad("ip: %q is not an IP address", f.IP)
	}
	if f.Port < 0 || f.Port > 65535 {
		bad("port: %d is not between 0 and 65535", f.Port)
	}
	if d := f.ExecutorReregistrationTimeout; d > MaxReregistrationTimeout {
		bad("executor_reregistration_timeout: %s is more than %s", flags.FormatDuration(d), flags.FormatDuration(MaxReregistrationTimeout))
	}
	for name, d := range map[string]time.Duration{
		"executor_registration_timeout":   f.ExecutorRegistrationTimeout,
		"executor_reregistration_timeout": f.ExecutorReregistrationTimeout,
		"executor_shutdown_grace_period":  f.ExecutorShutdownGracePeriod,
		"recovery_timeout":                f.RecoveryTimeout,
		"fetcher_stall_timeout":           f.FetcherStallTimeout,
	} {
		if d <= 0 {
			bad("%s: %s is not positive", name, flags.FormatDuration(d))
		}
	}
	return errors.Join(errs...)
}

// masterURL is the base URL of the master, without a path.
func (f *Flags) masterURL() (string, error) {
	text := f.Master
	if strings.HasPrefix(text, "zk://") || strings.HasPrefix(text, "file://") {
		return "", fmt.Errorf("master: %q: the embedded agent finds no master by ZooKeeper or file; give host:port", text)
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return "", fmt.Errorf("master: %q is not host:port or a http URL", f.Master)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "5050")
	}
	return "http://" + host, nil
}

// defaultCommandExecutor is this program in its hidden mode.
func defaultCommandExecutor() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's path: %w", err)
	}
	return []string{self, "mesos", "command-executor"}, nil
}

// noSwitch is Mesos's --no-switch_user.
type noSwitch struct{ set *bool }

func (n noSwitch) String() string { return strconv.FormatBool(n.set != nil && !*n.set) }
func (n noSwitch) Type() string   { return "bool" }
func (n noSwitch) Set(text string) error {
	no, err := strconv.ParseBool(text)
	if err == nil {
		*n.set = !no
	}
	return err
}

// environment is a JSON object of strings, or the path of a file with one.
type environment struct{ to *map[string]string }

func (e *environment) String() string { return "" }
func (e *environment) Type() string   { return "json" }
func (e *environment) Set(text string) error {
	if path, ok := strings.CutPrefix(text, "file://"); ok || filepath.IsAbs(text) {
		if !ok {
			path = text
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("executor_environment_variables: %w", err)
		}
		text = string(b)
	}
	var m map[string]string
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("executor_environment_variables: not a JSON object of texts: %w", err)
	}
	*e.to = m
	return nil
}
