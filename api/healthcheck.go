package api

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
