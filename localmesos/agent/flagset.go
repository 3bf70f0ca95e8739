package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"tandem/localmesos/internal/flags"
)

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
	"hadoop_home":                  "hdfs URIs are not supported",
	"frameworks_home":              "relative URIs are refused",
	"logging_level":                "use the program's own logging flags",
	"log_dir":                      "the log goes to standard error",
	"reconfiguration_policy":       "resources and attributes must stay as they are",
	"authenticate_http_readonly":   "there is no authentication on one machine",
	"authenticate_http_readwrite":  "there is no authentication on one machine",
	"cgroups_enable_cfs":           "resources are accounted, not enforced",
	"http_heartbeat_interval":      "only streams of nested containers have it; executors get a heartbeat every 30 minutes",
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
	set.StringVar(&f.FetcherCacheDir, "fetcher_cache_dir", f.FetcherCacheDir, "directory below which files of URIs with \"cache\" are kept while the agent lives (default: below work_dir)")
	flags.BytesVar(set, &f.FetcherCacheSize, "fetcher_cache_size", "how much the fetcher's cache holds at most; 0B turns it off")
	flags.DurationVar(set, &f.GCDelay, "gc_delay", "how long a sandbox stays, at most, after the end of its executor")
	set.Float64Var(&f.GCDiskHeadroom, "gc_disk_headroom", f.GCDiskHeadroom, "part of the disk that is to stay free: sandboxes stay for gc_delay * (1 - gc_disk_headroom - disk usage)")
	flags.DurationVar(set, &f.DiskWatchInterval, "disk_watch_interval", "how often the disk usage is looked at for that")
	set.StringVar(&f.Recover, "recover", f.Recover, "what becomes of the executors of an earlier agent: reconnect, or cleanup, which ends them and then the agent")
	set.BoolVar(&f.Strict, "strict", f.Strict, "do not start with a damaged checkpoint; otherwise it is set aside (default: false, unlike Apache Mesos)")
	set.BoolVar(&f.AuthenticateHTTPExecutors, "authenticate_http_executors", f.AuthenticateHTTPExecutors, "refuse executors without a valid token; needs --jwt_secret_key")
	set.StringVar(&f.JWTSecretKey, "jwt_secret_key", f.JWTSecretKey, "path of a file with the key that signs executors' tokens")
	set.Var(alias{set, "jwt_secret_key"}, "executor_secret_key", "the older name of --jwt_secret_key")
	set.BoolVar(&f.HTTPExecutorDomainSockets, "http_executor_domain_sockets", f.HTTPExecutorDomainSockets, "have executors connect to a unix socket")
	set.StringVar(&f.DomainSocketLocation, "domain_socket_location", f.DomainSocketLocation, "path of that socket, shorter than 108 bytes (default: agent.sock in work_dir)")
	set.BoolVar(&f.SwitchUser, "switch_user", f.SwitchUser, "run executors as the user that the framework asks for")
	set.Var(no{&f.SwitchUser}, "no_switch_user", "run executors as the agent's own user")
	for name, to := range map[string]*bool{"strict": &f.Strict, "authenticate_http_executors": &f.AuthenticateHTTPExecutors,
		"http_executor_domain_sockets": &f.HTTPExecutorDomainSockets} {
		set.Var(no{to}, "no_"+name, "the opposite of --"+name)
		set.Lookup("no_" + name).Hidden = true
	}
	for _, name := range []string{"switch_user", "strict", "authenticate_http_executors", "http_executor_domain_sockets"} {
		set.Lookup("no_" + name).NoOptDefVal = "true"
	}
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

// no is Mesos's other form of a bool flag: --no-switch_user.
type no struct{ set *bool }

func (n no) String() string { return "false" }
func (n no) Type() string   { return "bool" }
func (n no) Set(text string) error {
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

// alias is another name of a flag.
type alias struct {
	set  *pflag.FlagSet
	name string
}

func (a alias) String() string        { return "" }
func (a alias) Type() string          { return "string" }
func (a alias) Set(text string) error { return a.set.Set(a.name, text) }
