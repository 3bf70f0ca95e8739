// Package health makes the checks of an executor's tasks: it knows when each is
// due, makes it in the task's own network namespace or as a command in the task,
// and tells what has changed. It runs no helper program of its own on the agent.
//
// Board decides and is pure; Monitor adds the workers that do the checks; both
// belong to one event loop. The package must never take a check that could not be
// made for one that failed, and never say that a task is healthy before a check has said so.
package health

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"tandem/api"
	"tandem/internal/cmdline"
)

// Kind tells what a check is for.
type Kind uint8

// The kinds.
const (
	// Liveness: the task is ended when the check fails Check.Limit times in a row.
	Liveness Kind = iota
	// Readiness: the task is not healthy, and goes on, when the check fails Check.Limit times in a row.
	Readiness
	// Observation only tells what came of it: Mesos's CheckInfo.
	Observation

	kindCount
)

// Check is one check of a task. Times of 0 are taken as they are, except the
// timeout's, which then is the interval.
type Check struct {
	Kind Kind
	// Type is HTTP, TCP, GRPC or COMMAND, see package api.
	Type string
	// Port is the port as the task itself sees it.
	Port int
	// Scheme, Path and Headers are those of an HTTP check.
	Scheme, Path string
	Headers      map[string]string
	// Service is asked for by a GRPC check.
	Service string
	// Command is run by a COMMAND check.
	Command Command

	// Delay is the time from the task's start to the first check.
	Delay time.Duration
	// Grace is the time from the task's start in which failures do not count, as
	// long as there was no success.
	Grace time.Duration
	// Interval is the time from the end of one check to the next.
	Interval time.Duration
	// Timeout makes a check fail that takes longer.
	Timeout time.Duration
	// Limit is how many failures in a row matter; 0 is never for Liveness, 1 for Readiness.
	Limit uint32
}

// String names the check for messages, such as "HTTP 8080/health".
func (c *Check) String() string {
	switch c.Type {
	case api.CheckCommand:
		return "COMMAND"
	case api.CheckHTTP:
		return "HTTP " + strconv.Itoa(c.Port) + c.Path
	case api.CheckGRPC:
		if c.Service != "" {
			return "GRPC " + strconv.Itoa(c.Port) + " " + c.Service
		}
	}
	return c.Type + " " + strconv.Itoa(c.Port)
}

// Command is what a COMMAND check runs in a task.
type Command struct {
	Argv []string
	// Env is added to the task's environment, NAME=value.
	Env []string
}

// CommandResult is what came of a command.
type CommandResult struct {
	// Started tells that the command ran. With an error it means that it had not
	// ended when the context did, and that it was killed.
	Started bool
	// Code is the exit code, 128+n after signal n.
	Code int
	// Output is the end of what it wrote, at most MaxOutput bytes.
	Output string
}

// MaxOutput is how much of a command's output is kept.
const MaxOutput = 1 << 10

// Target is a running task, as checks reach it.
type Target struct {
	// Netns opens the network namespace of the task, for the caller to close; a
	// nil file is the executor's own, and so is a nil function.
	Netns func(ctx context.Context) (*os.File, error)
	// Addresses are tried one after another until one accepts a connection.
	Addresses []netip.Addr
	// Exec runs a command in the task. An error means that nobody can tell
	// what the command makes of the task, unless it was started.
	Exec func(ctx context.Context, c Command) (CommandResult, error)
}

// FromSpec returns the checks that an executor makes of a task, whose variables
// are expanded. Those that are made from outside the agent are left out.
func FromSpec(s *api.TaskSpec) ([]Check, error) {
	var out []Check
	for i := range s.HealthChecks {
		h := &s.HealthChecks[i]
		if !h.OnAgent() {
			continue
		}
		c, err := fromHealthCheck(h, s.Ports)
		if err != nil {
			return nil, fmt.Errorf("healthChecks[%d]: %w", i, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func fromHealthCheck(h *api.HealthCheck, ports []api.TaskPort) (Check, error) {
	c := Check{
		Type:  h.Type,
		Delay: seconds(h.DelaySeconds, 0), Grace: seconds(h.GracePeriodSeconds, 0),
		Interval: seconds(h.IntervalSeconds, api.DefaultCheckInterval), Timeout: seconds(h.TimeoutSeconds, api.DefaultCheckTimeout),
		Limit: h.ConsecutiveFailures,
	}
	switch h.Probe {
	case "", api.ProbeLiveness:
	case api.ProbeReadiness:
		c.Kind = Readiness
	default:
		return c, fmt.Errorf("probe %q is unknown; use %s or %s", h.Probe, api.ProbeLiveness, api.ProbeReadiness)
	}
	var err error
	switch {
	case h.Type == api.CheckCommand && h.Command != nil:
		if c.Command.Argv, err = cmdline.Split(h.Command.Value); err != nil {
			err = fmt.Errorf("command: %w", err)
		}
	case h.Type == api.CheckHTTP && h.HTTP != nil:
		c.Scheme, c.Path, c.Headers = h.HTTP.Scheme, h.HTTP.Path, h.HTTP.Headers
		c.Port, err = portOf(h.HTTP.Port, h.HTTP.PortName, ports)
	case h.Type == api.CheckTCP && h.TCP != nil:
		c.Port, err = portOf(h.TCP.Port, h.TCP.PortName, ports)
	case h.Type == api.CheckGRPC && h.GRPC != nil:
		c.Service = h.GRPC.Service
		c.Port, err = portOf(h.GRPC.Port, h.GRPC.PortName, ports)
	default:
		err = fmt.Errorf("type %q is unknown here or lacks its part; use an executor of the scheduler's release", h.Type)
	}
	return c, err
}

// portOf is the number, or else the port of that name as the task itself binds it.
func portOf(number int, name string, ports []api.TaskPort) (int, error) {
	if number == 0 {
		for _, p := range ports {
			if p.Name == name && name != "" {
				number = p.ContainerPort
				if number == 0 {
					number = p.HostPort
				}
			}
		}
		if number == 0 {
			return 0, fmt.Errorf("portName %q is no port of the task; name one of its ports or give a number", name)
		}
	}
	if number < 1 || number > api.MaxPort {
		return 0, fmt.Errorf("port %d is no port; use 1 to %d", number, api.MaxPort)
	}
	return number, nil
}

// seconds takes what an artifact says; no time is longer than ten years, so that sums do not overflow.
func seconds(n, fallback int) time.Duration {
	if n <= 0 {
		n = fallback
	}
	return time.Duration(min(n, 10*365*24*3600)) * time.Second
}
