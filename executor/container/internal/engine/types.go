package engine

import (
	"strings"
	"time"
)

// Spec is the part of the engine's container configuration that is used here.
// See "Create a container" in the Engine API reference for the fields.
type Spec struct {
	Hostname     string              `json:",omitempty"`
	Env          []string            `json:",omitempty"`
	Cmd          []string            `json:",omitempty"`
	Entrypoint   []string            `json:",omitempty"`
	Image        string              `json:",omitempty"`
	WorkingDir   string              `json:",omitempty"`
	User         string              `json:",omitempty"`
	Labels       map[string]string   `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	AttachStdout bool
	AttachStderr bool

	HostConfig       HostConfig
	NetworkingConfig *NetworkingConfig `json:",omitempty"`
}

// HostConfig is what the container gets of the machine.
type HostConfig struct {
	NetworkMode    string                   `json:",omitempty"`
	IpcMode        string                   `json:",omitempty"`
	Privileged     bool                     `json:",omitempty"`
	Mounts         []Mount                  `json:",omitempty"`
	PortBindings   map[string][]PortBinding `json:",omitempty"`
	Ulimits        []Ulimit                 `json:",omitempty"`
	ShmSize        int64                    `json:",omitempty"`
	OomKillDisable *bool                    `json:",omitempty"`
	CapAdd         []string                 `json:",omitempty"`
	CapDrop        []string                 `json:",omitempty"`
	ReadonlyRootfs bool                     `json:",omitempty"`
	Init           bool                     `json:",omitempty"`
	PidsLimit      int64                    `json:",omitempty"`
	CpusetCpus     string                   `json:",omitempty"`
	CPUShares      int64                    `json:"CpuShares,omitempty"`
	CPUPeriod      int64                    `json:"CpuPeriod,omitempty"`
	CPUQuota       int64                    `json:"CpuQuota,omitempty"`
	Memory         int64                    `json:",omitempty"`
	MemorySwap     int64                    `json:",omitempty"`
	LogConfig      LogConfig
}

// Resources are what Update can change.
type Resources struct {
	CpusetCpus string `json:",omitempty"`
	CPUShares  int64  `json:"CpuShares,omitempty"`
	CPUPeriod  int64  `json:"CpuPeriod,omitempty"`
	CPUQuota   int64  `json:"CpuQuota,omitempty"`
	Memory     int64  `json:",omitempty"`
	MemorySwap int64  `json:",omitempty"`
	// PidsLimit is -1 for no limit.
	PidsLimit int64 `json:",omitempty"`
}

// Mount is a bind mount.
type Mount struct {
	Type     string
	Source   string
	Target   string
	ReadOnly bool `json:",omitempty"`

	BindOptions *BindOptions `json:",omitempty"`
}

// BindOptions says how mounts made later travel between agent and container,
// see mount_namespaces(7).
type BindOptions struct {
	Propagation string `json:",omitempty"`
}

// PortBinding is an address and port on the machine.
type PortBinding struct {
	HostIP   string `json:"HostIp"`
	HostPort string
}

// Ulimit is a resource limit, see setrlimit(2).
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// LogConfig names a log driver and its options.
type LogConfig struct {
	Type   string
	Config map[string]string `json:",omitempty"`
}

// NetworkingConfig asks for an address in a custom network.
type NetworkingConfig struct {
	EndpointsConfig map[string]EndpointConfig
}

// EndpointConfig is a container's place in one network.
type EndpointConfig struct {
	IPAMConfig *IPAMConfig `json:",omitempty"`
}

// IPAMConfig asks for a fixed address.
type IPAMConfig struct {
	IPv4Address string `json:",omitempty"`
	IPv6Address string `json:",omitempty"`
}

// Container is what Inspect tells.
type Container struct {
	ID      string `json:"Id"`
	Name    string
	Created time.Time
	Image   string
	State   State
	Config  struct {
		Labels     map[string]string
		StopSignal string
		Env        []string
	}
	NetworkSettings struct {
		Networks map[string]struct {
			IPAddress         string
			GlobalIPv6Address string
		}
	}
}

// State is a container's state.
type State struct {
	Status     string
	Running    bool
	OOMKilled  bool
	Pid        int
	ExitCode   int
	Error      string
	StartedAt  time.Time
	FinishedAt time.Time
}

// Summary is a container in a list.
type Summary struct {
	ID     string `json:"Id"`
	Names  []string
	State  string
	Labels map[string]string
}

// Progress is one line of the stream that a pull gives.
type Progress struct {
	Status         string `json:"status"`
	ID             string `json:"id"`
	Error          string `json:"error"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
}

// Image is an image on this machine.
type Image struct {
	ID          string `json:"Id"`
	RepoDigests []string
	Config      struct {
		Env        []string
		Labels     map[string]string
		StopSignal string
	}
	// GraphDriver says where its layers are, where they are in directories.
	GraphDriver struct {
		Name string
		Data map[string]string
	}
}

// Digest is the digest under which the registry of name knows the image; one that
// never was in a registry has its id for it.
func (i *Image) Digest(name string) string {
	for _, d := range i.RepoDigests {
		if n, digest, ok := strings.Cut(d, "@"); ok && (n == name || len(i.RepoDigests) == 1) {
			return digest
		}
	}
	return i.ID
}
