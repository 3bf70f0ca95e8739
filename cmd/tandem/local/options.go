package local

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/cmd/tandem/exit"
)

// Limits and defaults of the simulated machines.
const (
	// MaxAgents is bounded by the ports: each agent has a range of its own.
	MaxAgents = 30
	// FirstPort and PortsPerAgent give the n-th agent its ports resource.
	FirstPort     = 31000
	PortsPerAgent = 1000
	// minAgentMemory (MiB) is what an agent offers at least, however small its share.
	minAgentMemory = 512
)

// Options say what to start. The zero value is not usable: start from Defaults.
type Options struct {
	// Agents is the number of simulated agents, at 127.0.0.1, 127.0.0.2 ...
	Agents int
	// Attributes and Resources are in Mesos's text form, one for each agent,
	// used in turn when there are fewer than agents.
	Attributes []string
	Resources  []string
	// DataDir holds everything that outlives the stack.
	DataDir string
	// Listen is the address of the scheduler's HTTP API, host:port.
	Listen string
	// MasterPort and AgentPort are the ports of the embedded Mesos.
	MasterPort int
	AgentPort  int
	// Keep leaves the tasks running when the stack stops.
	Keep bool
	// Verbose copies the servers' log to standard error.
	Verbose bool
	// Getenv reads the environment.
	Getenv func(string) string
}

// Defaults returns the options for one agent.
func Defaults(getenv func(string) string) Options {
	return Options{
		Agents:     1,
		DataDir:    defaultDataDir(getenv, os.Geteuid()),
		Listen:     "127.0.0.1:7070",
		MasterPort: 5050,
		AgentPort:  5051,
		Getenv:     getenv,
	}
}

// defaultDataDir is where root and others keep their data (file-hierarchy(7), XDG).
func defaultDataDir(getenv func(string) string, uid int) string {
	if dir := getenv("TANDEM_DATA_DIR"); dir != "" {
		return dir
	}
	if uid == 0 {
		return "/var/lib/tandem/local"
	}
	base := getenv("XDG_DATA_HOME")
	if base == "" {
		base = filepath.Join(getenv("HOME"), ".local", "share")
	}
	return filepath.Join(base, "tandem")
}

// attribute is one name:value of Mesos's text form.
var attribute = regexp.MustCompile(`^[^:;\s]+:[^;]+$`)

// validate finds everything that is wrong with what the user asked for.
func (o *Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Agents < 1 || o.Agents > MaxAgents {
		bad("--agents %d: use 1 to %d", o.Agents, MaxAgents)
	}
	for _, list := range []struct {
		flag, example string
		values        []string
	}{
		{"--attributes", "zone:a;rack:r1", o.Attributes},
		{"--resources", "cpus:4;mem:4096", o.Resources},
	} {
		if o.Agents >= 1 && len(list.values) > o.Agents {
			bad("%s is given %d times for %d agents: give it once for each agent, or less often", list.flag, len(list.values), o.Agents)
		}
		for _, text := range list.values {
			for part := range strings.SplitSeq(strings.Trim(text, "; "), ";") {
				if part != "" && !attribute.MatchString(strings.TrimSpace(part)) {
					bad("%s %q: %q is not name:value; write it as '%s'", list.flag, text, part, list.example)
				}
			}
		}
	}
	if o.DataDir == "" {
		bad("--data-dir is empty: name a directory")
	}
	if host, port, err := net.SplitHostPort(o.Listen); err != nil || net.ParseIP(host) == nil || !validPort(port) {
		bad("--listen %q: write it as address:port, such as 127.0.0.1:7070", o.Listen)
	}
	if o.MasterPort < 1 || o.MasterPort > 65535 {
		bad("--master-port %d: use 1 to 65535", o.MasterPort)
	}
	if o.AgentPort < 1 || o.AgentPort > 65535 {
		bad("--agent-port %d: use 1 to 65535", o.AgentPort)
	}
	if o.MasterPort == o.AgentPort && o.MasterPort != 0 {
		bad("--master-port and --agent-port are both %d: choose two different ports", o.MasterPort)
	}
	return exit.With(exit.Usage, errors.Join(errs...))
}

func validPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n <= 65535
}

// machine is one simulated agent.
type machine struct {
	Name       string `json:"name"`
	IP         string `json:"ip"`
	Port       int    `json:"port"`
	Attributes string `json:"attributes,omitempty"`
	Resources  string `json:"resources"`
	// Asked is what the user asked for; Resources is that, completed.
	Asked string `json:"asked,omitempty"`
}

// machines lays out the agents. Processors are not divided among them, because
// simulated machines share them well; memory and disk are.
func (o *Options) machines() []machine {
	out := make([]machine, o.Agents)
	for i := range out {
		m := machine{
			Name: "agent-" + strconv.Itoa(i+1),
			IP:   "127.0.0." + strconv.Itoa(i+1),
			Port: o.AgentPort,
		}
		if n := len(o.Attributes); n > 0 {
			m.Attributes = strings.Trim(o.Attributes[i%n], "; ")
		}
		if n := len(o.Resources); n > 0 {
			m.Asked = strings.Trim(o.Resources[i%n], "; ")
		}
		m.Resources = completeResources(m.Asked, map[string]string{
			"cpus":  strconv.Itoa(max(4, runtime.NumCPU())),
			"mem":   strconv.Itoa(max(minAgentMemory, (machineMemory()-1024)/o.Agents)),
			"disk":  strconv.Itoa(max(1024, freeDisk(o.DataDir)/o.Agents)),
			"ports": fmt.Sprintf("[%d-%d]", FirstPort+i*PortsPerAgent, FirstPort+(i+1)*PortsPerAgent-1),
		})
		out[i] = m
	}
	return out
}

// completeResources adds what the user did not name.
func completeResources(given string, defaults map[string]string) string {
	named := map[string]bool{}
	var parts []string
	for part := range strings.SplitSeq(given, ";") {
		if part = strings.TrimSpace(part); part != "" {
			name, _, _ := strings.Cut(part, ":")
			named[strings.TrimSpace(name)] = true
			parts = append(parts, part)
		}
	}
	for _, name := range []string{"cpus", "mem", "disk", "ports"} {
		if !named[name] {
			parts = append(parts, name+":"+defaults[name])
		}
	}
	return strings.Join(parts, ";")
}

// machineMemory is the machine's memory in MiB, 0 when it cannot be known.
func machineMemory() int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kb, _ := strconv.Atoi(fields[1])
			return kb / 1024
		}
	}
	return 0
}

// freeDisk is the free space in MiB below dir or its nearest existing parent.
func freeDisk(dir string) int {
	for {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil {
			return int(st.Bavail * uint64(st.Bsize) >> 20)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return 0
		}
		dir = parent
	}
}
