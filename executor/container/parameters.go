package container

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"tandem/api"
	"tandem/executor/container/internal/engine"
	"tandem/network"
)

// parameters are the docker-like parameters of an artifact.
type parameters struct {
	ulimits        []engine.Ulimit
	shmSize        int64
	oomKillDisable *bool
	ip, ipc, net   string
}

// knownParameters is the closed set. rm and P are known and need nothing here: a
// container is always removed after its end, and the scheduler settles the
// published ports, P included, before the task gets here.
var knownParameters = []string{"ulimit", "rm", "shm-size", "oom-kill-disable", "ip", "ipc", "net", "P"}

// parseParameters reads them all and adds an error for each that is refused.
func parseParameters(errs *api.Errors, params []api.TaskParameter) parameters {
	var out parameters
	for i, p := range params {
		path := fmt.Sprintf("container.parameters[%d]", i)
		var err error
		switch p.Key {
		case "ulimit":
			var u api.Ulimit
			if u, err = api.ParseUlimit(p.Value); err == nil {
				out.ulimits = append(out.ulimits, engine.Ulimit(u))
			}
		case "rm", "P":
			_, err = parseBool(p.Value)
		case "oom-kill-disable":
			var b bool
			if b, err = parseBool(p.Value); err == nil {
				out.oomKillDisable = &b
			}
		case "shm-size":
			out.shmSize, err = parseMegabytes(p.Value)
		case "ip":
			if _, err = netip.ParseAddr(p.Value); err != nil {
				err = errors.New("is no IP address")
			}
			out.ip = p.Value
		case "ipc":
			switch p.Value {
			case "private", "shareable", "none", "host":
			default:
				err = errors.New("is unknown; use private, shareable, none or host")
			}
			out.ipc = p.Value
		case "net":
			if _, _, err = network.ParseMode(p.Value, ""); err != nil {
				err = fmt.Errorf("is refused: %w", err)
			}
			out.net = p.Value
		default:
			hint := "known"
			if near := api.Nearest(p.Key, knownParameters); near != "" {
				hint = fmt.Sprintf("did you mean %q? Known", near)
			}
			errs.Add(path+".key", p.Key, "is unknown; %s are %s", hint, strings.Join(knownParameters, ", "))
			continue
		}
		if err != nil {
			errs.Add(path+".value", p.Key+"="+p.Value, "%s", err)
		}
	}
	return out
}

func parseBool(s string) (bool, error) {
	if s == "" {
		return true, nil
	}
	b, err := strconv.ParseBool(strings.ToLower(s))
	if err != nil {
		return false, errors.New("is neither true nor false")
	}
	return b, nil
}

// parseMegabytes reads a plain number of MB, as the artifact format has it.
func parseMegabytes(s string) (int64, error) {
	mb, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	if err != nil || mb <= 0 {
		return 0, errors.New("is no size; write a number of megabytes, such as 64")
	}
	return mb << 20, nil
}
