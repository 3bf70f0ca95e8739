package executor

import (
	"errors"
	"fmt"
	"math"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/executor/health"
)

// foreignChecks are the checks of a plain TaskInfo: its HealthCheck ends the
// task, its CheckInfo only tells what it finds. See mesos.proto and Mesos's
// documents on health checks for what the times mean and default to.
func foreignChecks(info *mesos.TaskInfo) ([]health.Check, error) {
	var out []health.Check
	if h := info.HealthCheck; h != nil {
		c, err := foreignHealthCheck(h)
		if err != nil {
			return nil, fmt.Errorf("health_check: %w", err)
		}
		out = append(out, c)
	}
	if k := info.Check; k != nil {
		c, err := foreignObservation(k)
		if err != nil {
			return nil, fmt.Errorf("check: %w", err)
		}
		out = append(out, c)
	}
	return out, nil
}

func foreignHealthCheck(h *mesos.HealthCheck) (health.Check, error) {
	c := health.Check{
		Type: h.Type.String(), Delay: mesosSeconds(h.GetDelaySeconds()), Grace: mesosSeconds(h.GetGracePeriodSeconds()),
		Interval: mesosSeconds(h.GetIntervalSeconds()), Timeout: mesosTimeout(h.GetTimeoutSeconds()),
		// The task is killed as soon as the count of failures is not below the limit.
		Limit: max(1, h.GetConsecutiveFailures()),
	}
	switch {
	case h.Type == mesos.HealthCheck_COMMAND && h.Command != nil:
		c.Command = foreignCommand(h.Command)
	case h.Type == mesos.HealthCheck_HTTP && h.HTTP != nil:
		c.Scheme, c.Path, c.Port = h.HTTP.GetScheme(), h.HTTP.GetPath(), int(h.HTTP.Port)
	case h.Type == mesos.HealthCheck_TCP && h.TCP != nil:
		c.Port = int(h.TCP.Port)
	default:
		return c, fmt.Errorf("type %s is unknown here or lacks its part; use COMMAND, HTTP or TCP", c.Type)
	}
	return c, foreignCheckIsGood(&c)
}

func foreignObservation(k *mesos.CheckInfo) (health.Check, error) {
	c := health.Check{
		Kind: health.Observation, Type: k.Type.String(), Delay: mesosSeconds(k.GetDelaySeconds()),
		Interval: mesosSeconds(k.GetIntervalSeconds()), Timeout: mesosTimeout(k.GetTimeoutSeconds()),
	}
	switch {
	case k.Type == mesos.CheckInfo_COMMAND && k.Command != nil:
		c.Command = foreignCommand(&k.Command.Command)
	case k.Type == mesos.CheckInfo_HTTP && k.HTTP != nil:
		c.Path, c.Port = k.HTTP.GetPath(), int(k.HTTP.Port)
	case k.Type == mesos.CheckInfo_TCP && k.TCP != nil:
		c.Port = int(k.TCP.Port)
	default:
		return c, fmt.Errorf("type %s is unknown here or lacks its part; use COMMAND, HTTP or TCP", c.Type)
	}
	return c, foreignCheckIsGood(&c)
}

func foreignCheckIsGood(c *health.Check) error {
	switch {
	case c.Type == api.CheckCommand && len(c.Command.Argv) == 0:
		return errors.New("the command is empty")
	case c.Type != api.CheckCommand && (c.Port < 1 || c.Port > api.MaxPort):
		return fmt.Errorf("port %d is no port; use 1 to %d", c.Port, api.MaxPort)
	}
	return nil
}

// foreignCommand is a CommandInfo as arguments. Without shell, value is the
// program and arguments are its argv, with the name of the program first.
func foreignCommand(cmd *mesos.CommandInfo) health.Command {
	var c health.Command
	switch {
	case cmd.GetValue() == "":
	case cmd.GetShell():
		c.Argv = []string{"/bin/sh", "-c", cmd.GetValue()}
	default:
		c.Argv = append([]string{cmd.GetValue()}, cmd.Arguments[min(1, len(cmd.Arguments)):]...)
	}
	if cmd.Environment != nil {
		for _, v := range cmd.Environment.Variables {
			if v.GetType() == mesos.Environment_Variable_VALUE && v.Name != "" {
				c.Env = append(c.Env, v.Name+"="+v.GetValue())
			}
		}
	}
	return c
}

// checkStatus is what an observation has found so far: without a value while it has found none.
func checkStatus(k *mesos.CheckInfo, value *int) *mesos.CheckStatusInfo {
	if k == nil {
		return nil
	}
	s := &mesos.CheckStatusInfo{Type: &k.Type}
	switch k.Type {
	case mesos.CheckInfo_COMMAND:
		s.Command = &mesos.CheckStatusInfo_Command{}
		if value != nil {
			s.Command.ExitCode = new(int32(*value))
		}
	case mesos.CheckInfo_HTTP:
		s.HTTP = &mesos.CheckStatusInfo_Http{}
		if value != nil {
			s.HTTP.StatusCode = new(uint32(*value))
		}
	case mesos.CheckInfo_TCP:
		s.TCP = &mesos.CheckStatusInfo_Tcp{}
		if value != nil {
			s.TCP.Succeeded = new(*value == 1)
		}
	default:
		return nil
	}
	return s
}

// mesosSeconds is a time as Mesos writes it, at most ten years so that sums do not overflow.
func mesosSeconds(s float64) time.Duration {
	const most = 10 * 365 * 24 * 3600
	if math.IsNaN(s) {
		return 0
	}
	return time.Duration(min(max(0, s), most) * float64(time.Second))
}

// mesosTimeout is a timeout as Mesos writes it; 0 is none.
func mesosTimeout(s float64) time.Duration {
	if d := mesosSeconds(s); d > 0 {
		return d
	}
	return time.Hour
}
