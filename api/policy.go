package api

// Values of RestartPolicy.Policy.
const (
	RestartNever     = "Never"
	RestartOnFailure = "OnFailure"
	RestartAlways    = "Always"
)

// DefaultGracePeriodSeconds is the time between the request to end and SIGKILL
// when killPolicy says nothing.
const DefaultGracePeriodSeconds = 1

// RestartPolicy says when an ended taskgroup is started anew, and how soon.
type RestartPolicy struct {
	// Policy is Never, OnFailure (default) or Always.
	Policy string `json:"policy,omitempty"`
	// Interval is the delay in seconds before the first restart.
	Interval int `json:"interval,omitempty"`
	// Backoff is the number of seconds that each further restart waits longer.
	Backoff int `json:"backoff,omitempty"`
	// MaxTimes limits the restarts; 0 means no limit.
	MaxTimes int `json:"maxtimes,omitempty"`
	// HostRetainTime is the number of seconds for which only the agent of the
	// failed taskgroup may take its successor.
	HostRetainTime int64 `json:"hostRetainTime,omitempty"`
}

// KillPolicy says how a task is ended.
type KillPolicy struct {
	// GracePeriod is the number of seconds from SIGTERM or the stop command to SIGKILL; at least 1.
	GracePeriod int64 `json:"gracePeriod,omitempty"`
	// DrainDelay is the number of seconds between the request to end and the
	// stop signal, for those who send work here to learn of it.
	DrainDelay int64 `json:"drainDelay,omitempty"`
	// StopSignal replaces the stop signal of the containers' images.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Task returns the policy as a TaskSpec carries it.
func (k KillPolicy) Task() TaskKillPolicy {
	return TaskKillPolicy{GracePeriodSeconds: max(k.GracePeriod, DefaultGracePeriodSeconds), DrainSeconds: max(0, k.DrainDelay), StopSignal: k.StopSignal}
}

// UpdatePolicy is read and kept for artifacts that carry it; it has no effect.
type UpdatePolicy struct {
	UpdateDelay  int    `json:"updateDelay,omitempty"`
	MaxRetries   int    `json:"maxRetries,omitempty"`
	MaxFailovers int    `json:"maxFailovers,omitempty"`
	Action       string `json:"action,omitempty"`
}

func (r *RestartPolicy) setDefaults() {
	if r.Policy == "" {
		r.Policy = RestartOnFailure
	}
}

func (k *KillPolicy) setDefaults() {
	if k.GracePeriod == 0 {
		k.GracePeriod = DefaultGracePeriodSeconds
	}
}

func (c *checker) policies(r RestartPolicy, k KillPolicy) {
	c.oneOf("restartPolicy.policy", r.Policy, RestartNever, RestartOnFailure, RestartAlways)
	c.seconds("restartPolicy.interval", int64(r.Interval))
	c.seconds("restartPolicy.backoff", int64(r.Backoff))
	c.notNegative("restartPolicy.maxtimes", int64(r.MaxTimes))
	c.seconds("restartPolicy.hostRetainTime", r.HostRetainTime)
	c.seconds("killPolicy.gracePeriod", k.GracePeriod)
	c.seconds("killPolicy.drainDelay", k.DrainDelay)
	if _, err := SignalNumber(k.StopSignal); k.StopSignal != "" && err != nil {
		c.fail("killPolicy.stopSignal", k.StopSignal, "%s", err)
	}
}
