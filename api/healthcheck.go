package api

import (
	"slices"
	"strings"
)

// HealthCheck is one check of a container or process; see the artifact format.
type HealthCheck struct {
	// Type is HTTP, TCP, COMMAND, REMOTE_HTTP or REMOTE_TCP.
	Type                string `json:"type"`
	DelaySeconds        int    `json:"delaySeconds,omitempty"`
	GracePeriodSeconds  int    `json:"gracePeriodSeconds,omitempty"`
	IntervalSeconds     int    `json:"intervalSeconds,omitempty"`
	TimeoutSeconds      int    `json:"timeoutSeconds,omitempty"`
	ConsecutiveFailures uint32 `json:"consecutiveFailures,omitempty"`

	Command *CommandCheck `json:"command,omitempty"`
	HTTP    *HTTPCheck    `json:"http,omitempty"`
	TCP     *TCPCheck     `json:"tcp,omitempty"`
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

// Values of HealthCheck.Type. The remote ones are made from outside the agent.
const (
	CheckHTTP       = "HTTP"
	CheckTCP        = "TCP"
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

func setHealthDefaults(checks []HealthCheck) {
	fill := func(v *int, fallback int) {
		if *v == 0 {
			*v = fallback
		}
	}
	for i := range checks {
		h := &checks[i]
		h.Type = strings.ToUpper(h.Type)
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
		if h.IntervalSeconds > 0 && h.TimeoutSeconds > 0 && h.IntervalSeconds <= h.TimeoutSeconds {
			c.fail(joinPath(at, "intervalSeconds"), h.IntervalSeconds, "must be longer than timeoutSeconds (%d)", h.TimeoutSeconds)
		}
		if !c.oneOf(joinPath(at, "type"), h.Type, CheckHTTP, CheckTCP, CheckCommand, CheckRemoteHTTP, CheckRemoteTCP) {
			continue
		}
		switch h.Type {
		case CheckCommand:
			c.commandCheck(at, h.Command, s)
		case CheckHTTP, CheckRemoteHTTP:
			c.httpCheck(at, h.HTTP, ports)
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

func (c *checker) httpCheck(at string, h *HTTPCheck, ports []string) {
	at = joinPath(at, "http")
	if h == nil {
		c.fail(at, nil, "is required: {\"port\": ..., \"path\": ...}")
		return
	}
	c.oneOf(joinPath(at, "scheme"), h.Scheme, "http", "https")
	if !strings.HasPrefix(h.Path, "/") {
		c.fail(joinPath(at, "path"), h.Path, "must begin with /")
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
