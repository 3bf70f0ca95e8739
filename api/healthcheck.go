package api

import (
	"slices"
	"strings"
)

// HealthCheck is one check of a container or process; see the artifact format.
type HealthCheck struct {
	// Type is HTTP, TCP, GRPC, COMMAND, REMOTE_HTTP or REMOTE_TCP.
	Type string `json:"type"`
	// Probe is what the check tells: liveness (the default) or readiness.
	Probe               string `json:"probe,omitempty"`
	DelaySeconds        int    `json:"delaySeconds,omitempty"`
	GracePeriodSeconds  int    `json:"gracePeriodSeconds,omitempty"`
	IntervalSeconds     int    `json:"intervalSeconds,omitempty"`
	TimeoutSeconds      int    `json:"timeoutSeconds,omitempty"`
	ConsecutiveFailures uint32 `json:"consecutiveFailures,omitempty"`

	Command *CommandCheck `json:"command,omitempty"`
	HTTP    *HTTPCheck    `json:"http,omitempty"`
	TCP     *TCPCheck     `json:"tcp,omitempty"`
	GRPC    *GRPCCheck    `json:"grpc,omitempty"`
}

// CommandCheck runs a command in the task; exit code 0 is healthy.
type CommandCheck struct {
	Value string `json:"value"`
}

// HTTPCheck is healthy when a GET answers 200 to 399.
type HTTPCheck struct {
	Port     int               `json:"port,omitempty"`
	PortName string            `json:"portName,omitempty"`
	Scheme   string            `json:"scheme,omitempty"`
	Path     string            `json:"path,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
}

// TCPCheck is healthy when a connection is accepted.
type TCPCheck struct {
	Port     int    `json:"port,omitempty"`
	PortName string `json:"portName,omitempty"`
}

// GRPCCheck is healthy when grpc.health.v1.Health/Check answers SERVING, over
// plain HTTP/2.
type GRPCCheck struct {
	Port     int    `json:"port,omitempty"`
	PortName string `json:"portName,omitempty"`
	// Service is the name to ask for; empty asks for the server as a whole.
	Service string `json:"service,omitempty"`
}

// Values of HealthCheck.Probe. A task that is not alive is ended after
// ConsecutiveFailures; one that is not ready gets no work and goes on.
const (
	ProbeLiveness  = "liveness"
	ProbeReadiness = "readiness"
)

// Values of HealthCheck.Type. The remote ones are made from outside the agent.
const (
	CheckHTTP       = "HTTP"
	CheckTCP        = "TCP"
	CheckGRPC       = "GRPC"
	CheckCommand    = "COMMAND"
	CheckRemoteHTTP = "REMOTE_HTTP"
	CheckRemoteTCP  = "REMOTE_TCP"
)

// Defaults of a health check, in seconds; 0 in an artifact means the same as an absent key.
const (
	DefaultCheckDelay    = 10
	DefaultCheckGrace    = 300
	DefaultCheckInterval = 60
	DefaultCheckTimeout  = 20
)

// OnAgent tells whether the executor makes the check, and not somebody outside the agent.
func (h *HealthCheck) OnAgent() bool {
	return h.Type != CheckRemoteHTTP && h.Type != CheckRemoteTCP
}

func setHealthDefaults(checks []HealthCheck) {
	fill := func(v *int, fallback int) {
		if *v == 0 {
			*v = fallback
		}
	}
	for i := range checks {
		h := &checks[i]
		h.Type = strings.ToUpper(h.Type)
		h.Probe = strings.ToLower(h.Probe)
		fill(&h.DelaySeconds, DefaultCheckDelay)
		fill(&h.GracePeriodSeconds, DefaultCheckGrace)
		fill(&h.IntervalSeconds, DefaultCheckInterval)
		fill(&h.TimeoutSeconds, min(DefaultCheckTimeout, max(1, h.IntervalSeconds-1)))
		if h.HTTP != nil {
			if h.HTTP.Scheme = strings.ToLower(h.HTTP.Scheme); h.HTTP.Scheme == "" {
				h.HTTP.Scheme = "http"
			}
			if h.HTTP.Path == "" {
				h.HTTP.Path = "/"
			}
		}
	}
}

func (c *checker) healthChecks(path string, checks []HealthCheck, ports []string, s scope) {
	for i := range checks {
		at, h := indexPath(path, i), &checks[i]
		c.seconds(joinPath(at, "delaySeconds"), int64(h.DelaySeconds))
		c.seconds(joinPath(at, "gracePeriodSeconds"), int64(h.GracePeriodSeconds))
		c.seconds(joinPath(at, "intervalSeconds"), int64(h.IntervalSeconds))
		c.seconds(joinPath(at, "timeoutSeconds"), int64(h.TimeoutSeconds))
		// Once a second is the most often that whole seconds can say.
		often := h.IntervalSeconds == 1 && h.TimeoutSeconds == 1
		if h.IntervalSeconds > 0 && h.TimeoutSeconds > 0 && h.IntervalSeconds <= h.TimeoutSeconds && !often {
			c.fail(joinPath(at, "intervalSeconds"), h.IntervalSeconds, "must be longer than timeoutSeconds (%d)", h.TimeoutSeconds)
		}
		if h.Probe != "" {
			c.oneOf(joinPath(at, "probe"), h.Probe, ProbeLiveness, ProbeReadiness)
		}
		if !c.oneOf(joinPath(at, "type"), h.Type, CheckHTTP, CheckTCP, CheckGRPC, CheckCommand, CheckRemoteHTTP, CheckRemoteTCP) {
			continue
		}
		switch h.Type {
		case CheckCommand:
			c.commandCheck(at, h.Command, s)
		case CheckHTTP, CheckRemoteHTTP:
			c.httpCheck(at, h.HTTP, ports, s)
		case CheckGRPC:
			if h.GRPC == nil {
				c.fail(joinPath(at, "grpc"), nil, "is required with type GRPC: {\"port\": ...} or {\"portName\": ...}")
				continue
			}
			c.checkedPort(joinPath(at, "grpc"), h.GRPC.Port, h.GRPC.PortName, ports)
			c.variables(joinPath(at, "grpc")+".service", h.GRPC.Service, s)
		default:
			if h.TCP == nil {
				c.fail(joinPath(at, "tcp"), nil, "is required with type %s: {\"port\": ...} or {\"portName\": ...}", h.Type)
				continue
			}
			c.checkedPort(joinPath(at, "tcp"), h.TCP.Port, h.TCP.PortName, ports)
		}
	}
}

func (c *checker) commandCheck(at string, k *CommandCheck, s scope) {
	if k == nil {
		c.fail(joinPath(at, "command"), nil, "is required with type COMMAND: {\"value\": ...}")
		return
	}
	if c.required(at+".command.value", k.Value) {
		c.variables(at+".command.value", k.Value, s)
	}
}

func (c *checker) httpCheck(at string, h *HTTPCheck, ports []string, s scope) {
	at = joinPath(at, "http")
	if h == nil {
		c.fail(at, nil, "is required: {\"port\": ..., \"path\": ...}")
		return
	}
	c.oneOf(joinPath(at, "scheme"), h.Scheme, "http", "https")
	if !strings.HasPrefix(h.Path, "/") {
		c.fail(joinPath(at, "path"), h.Path, "must begin with /")
	}
	c.variables(joinPath(at, "path"), h.Path, s)
	for _, name := range sortedKeys(h.Headers) {
		c.variables(joinPath(at, "headers."+name), h.Headers[name], s)
	}
	c.checkedPort(at, h.Port, h.PortName, ports)
}

// checkedPort wants a number, or a name that one of the task's ports has. A
// number wins when both are given, but a wrong name is a slip all the same.
func (c *checker) checkedPort(at string, port int, name string, ports []string) {
	switch {
	case port < 0 || port > MaxPort:
		c.fail(joinPath(at, "port"), port, "must be 1 to %d", MaxPort)
	case port == 0 && name == "":
		c.fail(at, nil, "needs a port: port or portName")
	case name != "" && !slices.Contains(ports, name):
		c.fail(joinPath(at, "portName"), name, "no port of this task has this name%s", didYouMean(name, ports))
	}
}
