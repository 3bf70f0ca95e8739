package master

import (
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// validateCheck checks a CheckInfo.
func validateCheck(c mesos.CheckInfo) error {
	switch c.Type {
	case mesos.CheckInfo_COMMAND:
		if c.Command == nil {
			return mesosError("Expecting 'command' to be set for COMMAND check")
		}
		if err := validateCheckCommand(c.Command.Command, "COMMAND check"); err != nil {
			return err
		}
	case mesos.CheckInfo_HTTP:
		if c.HTTP == nil {
			return mesosError("Expecting 'http' to be set for HTTP check")
		}
		if err := validatePath(c.HTTP.GetPath(), "HTTP check"); err != nil {
			return err
		}
	case mesos.CheckInfo_TCP:
		if c.TCP == nil {
			return mesosError("Expecting 'tcp' to be set for TCP check")
		}
	case mesos.CheckInfo_UNKNOWN:
		return mesosError("'UNKNOWN' is not a valid check type")
	}
	return validateSeconds(map[string]float64{
		"delay_seconds": c.GetDelaySeconds(), "interval_seconds": c.GetIntervalSeconds(), "timeout_seconds": c.GetTimeoutSeconds(),
	})
}

// validateHealthCheck checks a HealthCheck.
func validateHealthCheck(c mesos.HealthCheck) error {
	switch c.Type {
	case mesos.HealthCheck_COMMAND:
		if c.Command == nil {
			return mesosError("Expecting 'command' to be set for COMMAND health check")
		}
		if err := validateCheckCommand(*c.Command, "COMMAND health check"); err != nil {
			return err
		}
	case mesos.HealthCheck_HTTP:
		if c.HTTP == nil {
			return mesosError("Expecting 'http' to be set for HTTP health check")
		}
		if s := c.HTTP.Scheme; s != nil && *s != "http" && *s != "https" {
			return mesosError("Unsupported HTTP health check scheme: '" + *s + "'")
		}
		if err := validatePath(c.HTTP.GetPath(), "HTTP health check"); err != nil {
			return err
		}
	case mesos.HealthCheck_TCP:
		if c.TCP == nil {
			return mesosError("Expecting 'tcp' to be set for TCP health check")
		}
	case mesos.HealthCheck_UNKNOWN:
		return mesosError("'UNKNOWN' is not a valid health check type")
	}
	return validateSeconds(map[string]float64{
		"delay_seconds": c.GetDelaySeconds(), "grace_period_seconds": c.GetGracePeriodSeconds(),
		"interval_seconds": c.GetIntervalSeconds(), "timeout_seconds": c.GetTimeoutSeconds(),
	})
}

func validateCheckCommand(c mesos.CommandInfo, what string) error {
	if c.Value == nil {
		kind := "Command"
		if c.GetShell() {
			kind = "Shell command"
		}
		return mesosError(kind + " is not specified for " + what)
	}
	return validateCommand(c)
}

func validatePath(path, what string) error {
	if path != "" && !strings.HasPrefix(path, "/") {
		return mesosError("The path '" + path + "' of " + what + " must start with '/'")
	}
	return nil
}

func validateSeconds(fields map[string]float64) error {
	for _, name := range []string{"delay_seconds", "grace_period_seconds", "interval_seconds", "timeout_seconds"} {
		if fields[name] < 0 {
			return mesosError("Expecting '" + name + "' to be non-negative")
		}
	}
	return nil
}
