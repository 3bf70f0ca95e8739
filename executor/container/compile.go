package container

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/container/policy"
	"tandem/network"
)

// The output of a container goes to its sandbox; the engine's own copy only has
// to hold what is written while the two are not connected. It never has less
// than its last logSize bytes.
var logConfig = engine.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "8m", "max-file": "2"}}

const logSize = 8_000_000

const (
	// minMemory is the least that an engine accepts.
	minMemory = 6 << 20
	cpuPeriod = 100_000
	// minQuota is the kernel's least, a hundredth of a core.
	minQuota = 1000
)

// compiled is a task turned into what the engine is to make of it.
type compiled struct {
	spec engine.Spec
	// dirs are the host directories to make where they are missing.
	dirs []string
	host bool
	// network is the custom network, address what is asked for in it.
	network, address string
	// cpus is how many CPUs the container is to have for itself.
	cpus int
	// filesDir holds the task's files; empty when it has none.
	filesDir string
	filesErr error
}

// compile turns a task into a request; join is the id of the container whose
// network it shares, or empty. It reports all errors of the specification at
// once and touches nothing.
func (r *Runtime) compile(t *executor.Task, join string) (*compiled, error) {
	s, c := t.Spec, t.Spec.Container
	var errs api.Errors
	out := &compiled{spec: engine.Spec{
		Image:        c.Image,
		Entrypoint:   c.Command,
		Cmd:          c.Args,
		Env:          t.Env,
		WorkingDir:   c.WorkingDir,
		Hostname:     c.Hostname,
		Labels:       labels(t),
		AttachStdout: true,
		AttachStderr: true,
		HostConfig:   engine.HostConfig{Privileged: c.Privileged, LogConfig: logConfig},
	}}
	rights(&errs, c, &out.spec)
	params := parseParameters(&errs, c.Parameters)
	out.spec.HostConfig.Ulimits = params.ulimits
	out.spec.HostConfig.ShmSize = params.shmSize
	out.spec.HostConfig.OomKillDisable = params.oomKillDisable
	out.spec.HostConfig.IpcMode = params.ipc
	r.network(&errs, t, out, params, join)
	resources(&errs, s, &out.spec.HostConfig)
	if c.Cpuset {
		var whole bool
		if out.cpus, whole = wholeCPUs(s.Requests.CPUs); !whole {
			errs.Add("requests.cpus", s.Requests.CPUs, "must be a whole number of CPUs, 1 or more, for a container with cpuset")
		}
	}
	var forbidden api.Errors
	r.opt.Policy.Check(&forbidden, policy.Request{
		Image: c.Image, Privileged: c.Privileged, HostNetwork: out.host, HostIPC: params.ipc == "host", Capabilities: out.spec.HostConfig.CapAdd,
	})
	r.volumes(&errs, &forbidden, t, out)
	r.files(&errs, t, out)
	if err := append(errs, forbidden...).Sorted(); err != nil {
		return nil, &executor.RefusedError{Err: err, Policy: len(errs) == 0}
	}
	return out, nil
}

// network settles the network mode, the hostname and the published ports.
func (r *Runtime) network(errs *api.Errors, t *executor.Task, out *compiled, p parameters, join string) {
	hc := &out.spec.HostConfig
	n := t.Spec.Network
	custom := n.Mode == "CUSTOM" || n.Mode == "USER"
	if custom && n.Name == "" {
		n.Name = p.net
	}
	mode, err := network.FromTask(n)
	switch {
	case err != nil:
		errs.Add("network", nil, "%s", err)
		return
	case p.net != "" && p.net != n.Name && mode != netMode(p.net):
		errs.Add("container.parameters", "net="+p.net, "contradicts the taskgroup's network; leave it out or make networkMode the same")
	case p.ip != "" && (mode != network.CustomCNM || join != ""):
		errs.Add("container.parameters", "ip="+p.ip, "only the first container in a custom network can ask for an address; leave it out")
	}
	switch {
	case join != "":
		// The engine refuses a hostname in a network that is another container's.
		hc.NetworkMode, out.spec.Hostname = "container:"+join, ""
		return
	case mode == network.Host:
		hc.NetworkMode, out.spec.Hostname, out.host = "host", "", true
		return
	case mode == network.None:
		hc.NetworkMode = "none"
		return
	case mode == network.CustomCNI:
		errs.Add("network", n.Name, "CNI networks are not available in this version; use HOST, BRIDGE, NONE or a network of the Docker Engine (networktype cnm)")
		return
	case mode == network.Bridge:
		hc.NetworkMode = "bridge"
	default:
		hc.NetworkMode, out.network, out.address = n.Name, n.Name, p.ip
		if p.ip != "" {
			ipam := engine.IPAMConfig{IPv4Address: p.ip}
			if net.ParseIP(p.ip).To4() == nil {
				ipam = engine.IPAMConfig{IPv6Address: p.ip}
			}
			out.spec.NetworkingConfig = &engine.NetworkingConfig{EndpointsConfig: map[string]engine.EndpointConfig{
				n.Name: {IPAMConfig: &ipam},
			}}
		}
	}
	for _, port := range t.Publish {
		if port.HostPort <= 0 {
			continue
		}
		if hc.PortBindings == nil {
			hc.PortBindings = map[string][]engine.PortBinding{}
			out.spec.ExposedPorts = map[string]struct{}{}
		}
		k := engine.PortKey(port.ContainerPort, port.Protocol)
		if _, dup := hc.PortBindings[k]; dup {
			errs.Add("ports", k, "is mapped twice in this taskgroup; give each container port one mapping")
		}
		hc.PortBindings[k] = append(hc.PortBindings[k], engine.PortBinding{HostIP: r.opt.PublishAddress, HostPort: strconv.Itoa(port.HostPort)})
		out.spec.ExposedPorts[k] = struct{}{}
	}
}

// netMode reads the parameter net where it spells one of the fixed modes.
func netMode(value string) network.Mode {
	m, name, err := network.ParseMode(value, "")
	if err != nil || name != "" {
		return -1
	}
	return m
}

// resources: requests weigh a container against others, limits bound it. A
// container without a limit may take no more memory than it was placed with.
func resources(errs *api.Errors, s *api.TaskSpec, hc *engine.HostConfig) {
	if s.Requests.CPUs > 0 {
		hc.CPUShares = max(2, int64(math.Round(s.Requests.CPUs*1024)))
	}
	if s.Limits.CPUs > 0 {
		hc.CPUPeriod = cpuPeriod
		hc.CPUQuota = max(minQuota, int64(math.Round(s.Limits.CPUs*cpuPeriod)))
	}
	switch limit := int64(s.Limits.MemMB * (1 << 20)); {
	case limit > 0 && limit < minMemory:
		errs.Add("limits.memMB", s.Limits.MemMB, "a Docker Engine needs at least 6 MB for a container; raise limits.memory")
	case limit > 0:
		hc.Memory = limit
	case s.Requests.MemMB > 0:
		hc.Memory = max(minMemory, int64(s.Requests.MemMB*(1<<20)))
	}
	// The same value: no swap beyond the limit.
	hc.MemorySwap = hc.Memory
}

// rights settles as whom and with what powers a container runs. Its capabilities
// are the engine's default set without NET_RAW, by which a container can
// pretend to be its neighbours.
func rights(errs *api.Errors, c *api.ContainerTask, spec *engine.Spec) {
	hc := &spec.HostConfig
	hc.ReadonlyRootfs, hc.Init = c.ReadOnlyRoot, c.Init
	if err := api.CheckContainerUser(c.User); err != nil {
		errs.Add("container.user", c.User, "%s", err)
	}
	spec.User = c.User
	if c.PidsLimit < 0 {
		errs.Add("container.pidsLimit", c.PidsLimit, "must not be negative; 0 is no limit")
	}
	hc.PidsLimit = c.PidsLimit
	names := func(list string, in []string) []string {
		var out []string
		for i, name := range in {
			plain, err := api.Capability(name)
			if err != nil {
				errs.Add(fmt.Sprintf("container.capabilities.%s[%d]", list, i), name, "%s", err)
				continue
			}
			out = append(out, plain)
		}
		return out
	}
	add, drop := names("add", c.Capabilities.Add), names("drop", c.Capabilities.Drop)
	if c.Privileged {
		return // it has them all, and the engine ignores what is added or dropped
	}
	const netRaw = "NET_RAW"
	if !slices.Contains(add, netRaw) && !slices.Contains(add, api.CapabilityAll) && !slices.Contains(drop, netRaw) {
		drop = append(drop, netRaw)
	}
	hc.CapAdd, hc.CapDrop = add, drop
}

// labels are the task's own, then those by which people and programs find it.
func labels(t *executor.Task) map[string]string {
	l := make(map[string]string, len(t.Spec.Labels)+5)
	for k, v := range t.Spec.Labels {
		l[k] = v
	}
	set := func(k, v string) {
		if v != "" {
			l[k] = v
		}
	}
	set("namespace", t.Spec.Taskgroup.Namespace)
	set("pod_name", t.Spec.Taskgroup.Name)
	l[labelTaskgroup] = t.Spec.Taskgroup.ID
	l[labelOwner] = t.Owner
	l[labelTask] = t.ID
	return l
}

// containerName is the task id behind a prefix. An id that cannot be part of a
// name as it is, or is too long, gets a digest so that two never become one.
func containerName(taskID string) string {
	const prefix, maxID = "tandem-", 180
	clean := pathElement(taskID)
	if clean == taskID && len(clean) <= maxID {
		return prefix + clean
	}
	sum := sha256.Sum256([]byte(taskID))
	return prefix + clean[:min(len(clean), maxID)] + "-" + hex.EncodeToString(sum[:6])
}

// pathElement replaces what cannot be in a container's name by hyphens; the
// result is also free of separators.
func pathElement(s string) string {
	allowed := wordOr("_.-")
	return strings.Map(func(c rune) rune {
		if c < 0x80 && allowed(byte(c)) {
			return c
		}
		return '-'
	}, s)
}

// makeDirs makes the host directories that are missing, as the artifact format promises.
func makeDirs(dirs []string) error {
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			continue // a file is a legal volume too
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			return &volumeError{dir: d, err: err}
		}
	}
	return nil
}

type volumeError struct {
	dir string
	err error
}

func (e *volumeError) Error() string {
	return "volume directory " + strconv.Quote(e.dir) + " cannot be made: " + e.err.Error() + "; make it on the agent or choose another hostPath"
}

func (e *volumeError) Unwrap() error { return e.err }
