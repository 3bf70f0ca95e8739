package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/localmesos/fault"
	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/ssl"
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
	// Recover is what becomes of an earlier agent's executors: RecoverReconnect or
	// RecoverCleanup.
	Recover string
	// Strict makes a damaged checkpoint an error of Start. Otherwise it is set
	// aside, and the agent goes on without what it told.
	Strict bool
	// AuthenticateHTTPExecutors refuses executors without a valid token.
	AuthenticateHTTPExecutors bool
	// JWTSecretKey is the path of a file with the key of the tokens; with it
	// executors get tokens, asked for or not.
	JWTSecretKey string
	// HTTPExecutorDomainSockets has executors connect to a unix socket.
	HTTPExecutorDomainSockets bool
	// DomainSocketLocation is its path, shorter than 108 bytes; by default it is
	// "agent.sock" in WorkDir.
	DomainSocketLocation string
	// SSL are libprocess's variables LIBPROCESS_SSL_ENABLED, ..._CERT_FILE,
	// ..._KEY_FILE and so on, as in docs/ssl.md of Apache Mesos. Nil is plain HTTP:
	// the process's own environment is not looked at here.
	SSL map[string]string
	// SwitchUser runs executors as the user that the framework asks for.
	SwitchUser bool
	// FetcherStallTimeout is how long a download may make no progress.
	FetcherStallTimeout time.Duration
	// FetcherCacheDir is where the files of URIs with "cache" are kept while the
	// agent lives; by default below WorkDir.
	FetcherCacheDir string
	// FetcherCacheSize bounds them, in bytes; 0 turns the cache off.
	FetcherCacheSize int64
	// GCDelay is how long a sandbox stays, at most, after its executor's end.
	GCDelay time.Duration
	// GCDiskHeadroom is the part of the disk, from 0 to 1, that is to stay free.
	GCDiskHeadroom float64
	// DiskWatchInterval is how often the disk is looked at.
	DiskWatchInterval time.Duration
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

// What can become of an earlier agent's executors.
const (
	// RecoverReconnect waits for them.
	RecoverReconnect = "reconnect"
	// RecoverCleanup ends them and then the agent, whose id is given up.
	RecoverCleanup = "cleanup"
)

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
		Recover:                       RecoverReconnect,
		SwitchUser:                    true,
		FetcherStallTimeout:           time.Minute,
		FetcherCacheSize:              2 << 30,
		GCDelay:                       7 * 24 * time.Hour,
		GCDiskHeadroom:                0.1,
		DiskWatchInterval:             time.Minute,
		CgroupsRoot:                   "mesos",
	}
}

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
		"gc_delay":                        f.GCDelay,
		"disk_watch_interval":             f.DiskWatchInterval,
	} {
		if d <= 0 {
			bad("%s: %s is not positive", name, flags.FormatDuration(d))
		}
	}
	if f.Recover != RecoverReconnect && f.Recover != RecoverCleanup {
		bad("recover: %q is neither %q nor %q", f.Recover, RecoverReconnect, RecoverCleanup)
	}
	if f.AuthenticateHTTPExecutors && f.JWTSecretKey == "" {
		bad("jwt_secret_key: missing; it must be given with authenticate_http_executors, the path of a file with a secret")
	}
	if f.GCDiskHeadroom < 0 || f.GCDiskHeadroom > 1 {
		bad("gc_disk_headroom: %v is not between 0 and 1", f.GCDiskHeadroom)
	}
	if f.FetcherCacheSize < 0 {
		bad("fetcher_cache_size: %d is negative; give 0 to turn the cache off", f.FetcherCacheSize)
	}
	if n := len(f.socketPath()); f.HTTPExecutorDomainSockets && n >= maxSocketPath {
		bad("domain_socket_location: %q has %d bytes, a socket's path less than %d; give a shorter one", f.socketPath(), n, maxSocketPath)
	}
	return errors.Join(errs...)
}

// maxSocketPath is the size of sun_path in unix(7), with the zero at its end.
const maxSocketPath = 108

// socketPath is where executors find the agent's unix socket.
func (f *Flags) socketPath() string {
	if f.DomainSocketLocation != "" {
		return f.DomainSocketLocation
	}
	return filepath.Join(f.WorkDir, "agent.sock")
}

// masterURL is the base URL of the master, without a path.
func (f *Flags) masterURL() (string, error) {
	text := f.Master
	if strings.HasPrefix(text, "zk://") || strings.HasPrefix(text, "file://") {
		return "", fmt.Errorf("master: %q: the embedded agent finds no master by ZooKeeper or file; give host:port", text)
	}
	if !strings.Contains(text, "://") {
		// As libprocess does: with TLS here, there is TLS there.
		if ssl.Enabled(f.SSL) {
			text = "https://" + text
		} else {
			text = "http://" + text
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", fmt.Errorf("master: %q is not host:port or a URL of http or https", f.Master)
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "5050")
	}
	return u.Scheme + "://" + host, nil
}

// defaultCommandExecutor is this program in its hidden mode.
func defaultCommandExecutor() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's path: %w", err)
	}
	return []string{self, "mesos", "command-executor"}, nil
}
