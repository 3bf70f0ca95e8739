package api

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// parameterKeys are the docker-like options that have an effect.
var parameterKeys = []string{"rm", "ulimit", "oom-kill-disable", "shm-size", "ip", "ipc", "net", "P"}

func (c *checker) parameter(path string, p Parameter) {
	value := joinPath(path, "value")
	switch p.Key {
	case "rm", "oom-kill-disable", "P":
		if _, err := strconv.ParseBool(p.Value); p.Value != "" && err != nil {
			c.fail(value, p.Value, "must be true or false")
		}
	case "ulimit":
		c.ulimit(value, p.Value)
	case "shm-size":
		if n, err := strconv.ParseUint(p.Value, 10, 32); err != nil || n == 0 {
			c.fail(value, p.Value, "must be a whole number of MiB")
		}
	case "ip":
		if _, err := netip.ParseAddr(p.Value); err != nil {
			c.fail(value, p.Value, "must be an IP address")
		}
	case "ipc", "net":
		c.required(value, p.Value)
	case "":
		c.fail(joinPath(path, "key"), nil, "is required: one of %s", strings.Join(parameterKeys, ", "))
	default:
		// The executor would refuse it, too, when it is too late.
		c.fail(joinPath(path, "key"), p.Key, "is not a known parameter; known are %s%s", strings.Join(parameterKeys, ", "), didYouMean(p.Key, parameterKeys))
	}
}

// Ulimit is a limit on one resource of the container's processes; -1 is none.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// ParseUlimit reads name=limit or name=soft:hard, the value of the parameter ulimit.
func ParseUlimit(s string) (Ulimit, error) {
	name, limits, ok := strings.Cut(s, "=")
	soft, hard, two := strings.Cut(limits, ":")
	if !two {
		hard = soft
	}
	u := Ulimit{Name: strings.TrimSpace(name)}
	var err1, err2 error
	u.Soft, err1 = strconv.ParseInt(strings.TrimSpace(soft), 10, 64)
	u.Hard, err2 = strconv.ParseInt(strings.TrimSpace(hard), 10, 64)
	if !ok || u.Name == "" || err1 != nil || err2 != nil || u.Soft < -1 || u.Hard < -1 {
		return Ulimit{}, fmt.Errorf("ulimit %q must be name=limit, such as nofile=65536", clip(s))
	}
	if u.Hard >= 0 && (u.Soft > u.Hard || u.Soft < 0) {
		return Ulimit{}, fmt.Errorf("ulimit %q has a soft limit above the hard one", clip(s))
	}
	return u, nil
}

func (c *checker) ulimit(path, value string) {
	if _, err := ParseUlimit(value); err != nil {
		c.fail(path, nil, "%s", err)
	}
}
