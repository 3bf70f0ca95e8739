package executor

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/api"
	"tandem/executor/agentlink"
)

// tokenVariable holds the executor's credential; no task may ever see it.
const tokenVariable = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"

// maxSocketPath is the longest path that fits sockaddr_un with its final zero; see unix(7).
const maxSocketPath = 107

// Defaults of the agent, for an environment that leaves them out.
const (
	defaultShutdownGrace = 5 * time.Second
	// registrationTimeout is the agent's executor_registration_timeout: after
	// that it kills an executor that has not subscribed.
	registrationTimeout = time.Minute
)

// Config is what the agent tells an executor through its environment; see
// docs/executor-http-api.md of Apache Mesos.
type Config struct {
	FrameworkID string
	// ExecutorID is the taskgroup's id when the scheduler is Tandem's.
	ExecutorID string
	// AgentID may be empty; SUBSCRIBED tells it as well.
	AgentID string
	// Endpoint is the agent's host:port.
	Endpoint string
	// DomainSocket is the agent's unix socket; empty means Endpoint.
	DomainSocket string
	// TLS is nil unless the environment asks for it.
	TLS *tls.Config
	// Token is the bearer token; empty when the agent gave none.
	Token agentlink.Token
	// Sandbox is the executor's directory on the agent.
	Sandbox string
	// Checkpoint tells whether the executor may outlive its agent process, for
	// RecoveryTimeout at most; it then subscribes again after a random delay
	// below BackoffMax. Without it both are 0.
	Checkpoint      bool
	RecoveryTimeout time.Duration
	BackoffMax      time.Duration
	// ShutdownGrace is the time from SHUTDOWN until the agent kills the executor.
	ShutdownGrace time.Duration
}

// ConfigFromEnv reads the agent's variables through lookup (os.LookupEnv). All
// that is wrong with them is told at once, as api.Errors with the variables'
// names as paths. The token is never part of an error.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	r := &envReader{lookup: lookup}
	c := Config{
		FrameworkID:   r.required("MESOS_FRAMEWORK_ID"),
		ExecutorID:    r.required("MESOS_EXECUTOR_ID"),
		AgentID:       r.get("MESOS_SLAVE_ID"),
		Endpoint:      r.required("MESOS_AGENT_ENDPOINT"),
		DomainSocket:  r.get("MESOS_DOMAIN_SOCKET"),
		Token:         agentlink.Token(r.get(tokenVariable)),
		ShutdownGrace: r.duration("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", false),
		Checkpoint:    r.boolean(false, "MESOS_CHECKPOINT"),
	}
	if c.ShutdownGrace == 0 {
		c.ShutdownGrace = defaultShutdownGrace
	}
	if c.Checkpoint {
		c.RecoveryTimeout = r.duration("MESOS_RECOVERY_TIMEOUT", true)
		c.BackoffMax = r.duration("MESOS_SUBSCRIPTION_BACKOFF_MAX", true)
	}
	// MESOS_DIRECTORY is the directory as the agent sees it, which is what counts
	// here: the executor does not run in a container of its own.
	if c.Sandbox = r.get("MESOS_DIRECTORY"); c.Sandbox == "" {
		c.Sandbox = r.required("MESOS_SANDBOX")
	}
	if c.Sandbox != "" && !filepath.IsAbs(c.Sandbox) {
		r.errs.Add("MESOS_DIRECTORY", c.Sandbox, "is not an absolute path")
	}
	if c.Endpoint != "" {
		if _, port, err := net.SplitHostPort(c.Endpoint); err != nil || port == "" {
			r.errs.Add("MESOS_AGENT_ENDPOINT", c.Endpoint, "is not host:port")
		}
	}
	if len(c.DomainSocket) > maxSocketPath {
		r.errs.Add("MESOS_DOMAIN_SOCKET", c.DomainSocket, "has %d bytes, a socket's path at most %d; give the agent a shorter --domain_socket_location",
			len(c.DomainSocket), maxSocketPath)
	}
	if !c.Token.Valid() {
		r.errs.Add(tokenVariable, nil, "holds characters that no token has; its value is not shown")
	}
	c.TLS = r.tls(c.Endpoint)
	return c, r.errs.Sorted()
}

// NodeIP is the agent's address: the endpoint's host if that is an IP address, otherwise empty.
func (c *Config) NodeIP() string {
	host, _, err := net.SplitHostPort(c.Endpoint)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		return ""
	}
	return addr.String()
}

// envReader collects errors while it reads variables.
type envReader struct {
	lookup func(string) (string, bool)
	errs   api.Errors
}

func (r *envReader) get(name string) string {
	v, _ := r.lookup(name)
	return v
}

func (r *envReader) required(name string) string {
	v := r.get(name)
	if v == "" {
		r.errs.Add(name, nil, "is not set; a Mesos agent sets it, so start the executor through one")
	}
	return v
}

func (r *envReader) duration(name string, required bool) time.Duration {
	v := r.get(name)
	if v == "" {
		if required {
			r.errs.Add(name, nil, "is not set although MESOS_CHECKPOINT is 1")
		}
		return 0
	}
	d, err := ParseDuration(v)
	if err != nil {
		r.errs.Add(name, v, "is not a duration such as 500ms, 2secs or 15mins")
	}
	return d
}

// boolean reads the first of the variables that is set.
func (r *envReader) boolean(unset bool, names ...string) bool {
	for _, name := range names {
		v := strings.TrimSpace(r.get(name))
		if v == "" {
			continue
		}
		b, err := strconv.ParseBool(v)
		if err != nil {
			r.errs.Add(name, v, "is neither 0 nor 1")
		}
		return b
	}
	return unset
}

// durationUnits are the units of stout's Duration, as agents write them.
var durationUnits = []struct {
	name string
	unit time.Duration
}{
	{"weeks", 7 * 24 * time.Hour}, {"days", 24 * time.Hour}, {"hrs", time.Hour}, {"mins", time.Minute},
	{"secs", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
}

// ParseDuration reads a duration as Mesos writes it: a number, perhaps with a
// fraction, and one of ns, us, ms, secs, mins, hrs, days, weeks. Negative ones
// and those beyond what time.Duration holds are errors.
func ParseDuration(s string) (time.Duration, error) {
	text := strings.TrimSpace(s)
	for _, u := range durationUnits {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		// !(n >= 0) also catches NaN.
		if err != nil || !(n >= 0) || n*float64(u.unit) >= float64(1<<63-1) {
			return 0, fmt.Errorf("duration %q has no sensible number before %q", s, u.name)
		}
		return time.Duration(n * float64(u.unit)), nil
	}
	return 0, fmt.Errorf("duration %q has no unit; use ns, us, ms, secs, mins, hrs, days or weeks", s)
}
