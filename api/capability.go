package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Capabilities change a container's set of capabilities, see capabilities(7).
// It begins with the engine's default set without NET_RAW, which forges packets.
// Names are written with or without CAP_; ALL means every one.
type Capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

// CapabilityAll stands for every capability in Capabilities.
const CapabilityAll = "ALL"

// knownCapabilities are those of capabilities(7), without CAP_.
var knownCapabilities = []string{
	"AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE",
	"DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE",
	"MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
	"SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE",
	"SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM",
}

// Capability returns a capability's name in capitals and without CAP_. The error
// of an unknown one names the nearest.
func Capability(name string) (string, error) {
	plain := strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	if plain == CapabilityAll || slices.Contains(knownCapabilities, plain) {
		return plain, nil
	}
	return "", fmt.Errorf("is no capability, see capabilities(7)%s", didYouMean(plain, knownCapabilities))
}

// CheckContainerUser says whether user can be a container's user: empty, or a
// name or number with or without a :group.
func CheckContainerUser(user string) error {
	if user == "" {
		return nil
	}
	name, group, both := strings.Cut(user, ":")
	for _, s := range []string{name, group} {
		if s == "" && (both || s == name) || strings.ContainsAny(s, ":/ \t\r\n\x00") || strings.HasPrefix(s, "-") || len(s) > 64 {
			return errors.New("is not a user; write a name or a number, perhaps with :group, such as 1000:1000")
		}
		if !both {
			break
		}
	}
	return nil
}

func (c *checker) capabilities(path string, k *Container) {
	added := map[string]bool{}
	for i, name := range k.Capabilities.Add {
		plain, err := Capability(name)
		if err != nil {
			c.fail(indexPath(joinPath(path, "add"), i), name, "%s", err)
			continue
		}
		added[plain] = true
	}
	for i, name := range k.Capabilities.Drop {
		switch plain, err := Capability(name); {
		case err != nil:
			c.fail(indexPath(joinPath(path, "drop"), i), name, "%s", err)
		case added[plain]:
			c.fail(indexPath(joinPath(path, "drop"), i), name, "is added and dropped; leave one of the two out")
		}
	}
	if k.Privileged && len(k.Capabilities.Add)+len(k.Capabilities.Drop) > 0 {
		c.warn(path, "has no effect: a privileged container has every capability")
	}
}

// isWhole tells whether f is one of 1, 2, 3, ...
func isWhole(f float64) bool { return f >= 1 && f <= 1<<20 && f == float64(int(f)) }
