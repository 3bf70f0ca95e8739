// Package network holds the rules of Tandem's networks that scheduler, executor
// and local mode must agree on: the closed set of network modes, which ports a
// taskgroup needs and gets, the PORT family of variables, the ledger of ports
// that are no Mesos resource, and the question who listens on a port.
//
// Everything here is a pure function or a plain value, except the reading of
// /proc in listeners.go. The package must never change the machine: no sockets
// are bound, no interfaces, rules or namespaces are made here.
package network

import (
	"fmt"
	"strings"

	"tandem/api"
)

// Mode says which network the containers of a taskgroup have. Processes always
// use the host's network, whatever the mode of their taskgroup.
type Mode int

// The closed set of modes. The zero value is None, which is what an artifact
// without networkMode means.
const (
	// None gives the containers a loopback interface only.
	None Mode = iota
	// Host shares the agent's network.
	Host
	// Bridge is the engine's default bridge, with ports mapped from the agent.
	Bridge
	// CustomCNM is a network of the container engine, named by the user.
	CustomCNM
	// CustomCNI is a network configured for CNI plugins, named by the user.
	CustomCNI
)

// String returns the mode as messages show it.
func (m Mode) String() string {
	switch m {
	case None:
		return "NONE"
	case Host:
		return "HOST"
	case Bridge:
		return "BRIDGE"
	case CustomCNM:
		return "CUSTOM (cnm)"
	case CustomCNI:
		return "CUSTOM (cni)"
	default:
		return fmt.Sprintf("Mode(%d)", int(m))
	}
}

// Mapped reports whether the containers have addresses of their own, so that
// their ports reach the agent's address only by a mapping.
func (m Mode) Mapped() bool {
	return m == Bridge || m == CustomCNM || m == CustomCNI
}

// Task returns the mode as an api.TaskNetwork carries it; name counts for the custom modes only.
func (m Mode) Task(name string) api.TaskNetwork {
	switch m {
	case Host:
		return api.TaskNetwork{Mode: "HOST"}
	case Bridge:
		return api.TaskNetwork{Mode: "BRIDGE"}
	case CustomCNM:
		return api.TaskNetwork{Mode: "CUSTOM", Type: "cnm", Name: name}
	case CustomCNI:
		return api.TaskNetwork{Mode: "CUSTOM", Type: "cni", Name: name}
	default:
		return api.TaskNetwork{Mode: "NONE"}
	}
}

// ParseMode reads an artifact's networkMode and networktype, in any case of
// letters. An empty networkMode is None, an empty networktype is cnm. Any other
// networkMode than HOST, BRIDGE, NONE and USER is the name of a custom network,
// which is returned. USER, the older spelling, names its network in the
// parameter "net" of the first container: its name comes back empty and the
// caller fills it in.
func ParseMode(networkMode, networkType string) (Mode, string, error) {
	custom := CustomCNM
	switch strings.ToLower(strings.TrimSpace(networkType)) {
	case "", "cnm":
	case "cni":
		custom = CustomCNI
	default:
		return None, "", fmt.Errorf("networktype %q is unknown; use cni or cnm", networkType)
	}
	name := strings.TrimSpace(networkMode)
	switch strings.ToUpper(name) {
	case "", "NONE":
		return None, "", nil
	case "HOST":
		return Host, "", nil
	case "BRIDGE":
		return Bridge, "", nil
	case "USER":
		return custom, "", nil
	}
	if err := CheckName(name); err != nil {
		return None, "", fmt.Errorf("networkMode %q: %w", networkMode, err)
	}
	return custom, name, nil
}

// CheckName says whether name can be the name of a custom network.
func CheckName(name string) error {
	switch {
	case strings.EqualFold(name, "default"), strings.EqualFold(name, "custom"):
		return fmt.Errorf("%q cannot name a network; use HOST, BRIDGE, NONE or the name of a custom network", name)
	case len(name) > 128:
		return fmt.Errorf("a network's name has at most 128 characters, this one has %d", len(name))
	case !isNetworkName(name):
		return fmt.Errorf("%q is neither HOST, BRIDGE or NONE nor a network's name (letters, digits, '_', '.', '-', the first a letter or digit)", name)
	}
	return nil
}

// isNetworkName accepts what both the container engine and CNI do. It excludes
// the colon, and with it "container:<id>", which would join a stranger's namespace.
func isNetworkName(s string) bool {
	for i := range len(s) {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !word && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return s != ""
}

// FromTask reads the network of a TaskSpec. It is as strict as ParseMode, since
// a TaskSpec may come from another framework.
func FromTask(n api.TaskNetwork) (Mode, error) {
	if !strings.EqualFold(n.Mode, "CUSTOM") {
		m, name, err := ParseMode(n.Mode, n.Type)
		if err == nil && name != "" {
			err = fmt.Errorf("network mode %q is unknown; use HOST, BRIDGE, NONE or CUSTOM with a name", n.Mode)
		}
		if err == nil && (m == CustomCNM || m == CustomCNI) && n.Name == "" {
			err = fmt.Errorf("network mode %q needs the network's name", n.Mode)
		}
		return m, err
	}
	if n.Name == "" {
		return None, fmt.Errorf("network mode %q needs the network's name", n.Mode)
	}
	if err := CheckName(n.Name); err != nil {
		return None, fmt.Errorf("network name: %w", err)
	}
	m, _, err := ParseMode("USER", n.Type)
	return m, err
}

// Protocol maps a declared protocol to the one that the kernel knows: "tcp" or
// "udp". Empty and everything spoken over TCP (http, https, ...) is tcp.
func Protocol(declared string) (string, error) {
	switch strings.ToLower(strings.TrimSpace(declared)) {
	case "", "tcp", "http", "https", "http2", "grpc", "ws", "wss", "tls", "ssl":
		return "tcp", nil
	case "udp":
		return "udp", nil
	}
	return "", fmt.Errorf("protocol %q is unknown; use tcp, udp, http or https", declared)
}
