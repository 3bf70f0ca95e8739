package api

// Reserved names of PodSpec.NetworkMode; any other is the name of a network.
const (
	NetworkHost   = "HOST"
	NetworkBridge = "BRIDGE"
	NetworkNone   = "NONE"
	// NetworkUser is an old way to name a network after the namespace.
	NetworkUser = "USER"
)

// Values of PodSpec.NetworkType.
const (
	NetworkTypeCNM = "cnm"
	NetworkTypeCNI = "cni"
)

// PodTemplate describes each taskgroup of an application.
type PodTemplate struct {
	Metadata ObjectMeta `json:"metadata,omitzero"`
	Spec     PodSpec    `json:"spec"`
}

// PodSpec lists the tasks of a taskgroup, either containers or processes, and
// the network that they share.
type PodSpec struct {
	// NodeSelector is read and kept; it has no effect.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Containers   []Container       `json:"containers,omitempty"`
	Processes    []Process         `json:"processes,omitempty"`
	// NetworkMode is HOST, BRIDGE, NONE, USER or the name of a network; empty
	// means NONE for containers. Processes use the host's unless ShareNetwork is set.
	NetworkMode string `json:"networkMode,omitempty"`
	// NetworkType is cnm or cni.
	NetworkType string `json:"networkType,omitempty"`
	// ShareNetwork puts the processes into the network namespace of the
	// containers, so that the rules for ports of containers are theirs too.
	ShareNetwork bool      `json:"shareNetwork,omitempty"`
	NetLimit     *NetLimit `json:"netLimit,omitempty"`
}

// NetLimit limits the traffic of a taskgroup.
type NetLimit struct {
	// EgressLimit is in Mbit/s; 0 means no limit.
	EgressLimit int `json:"egressLimit,omitempty"`
}

// ProcessesShareNetwork tells whether the processes are in a network namespace
// together with the containers, rather than in the agent's own.
func (s *PodSpec) ProcessesShareNetwork() bool { return s.ShareNetwork && s.NetworkMode != NetworkHost }

// Size returns the number of tasks in the taskgroup.
func (s *PodSpec) Size() int { return len(s.Containers) + len(s.Processes) }

// EgressLimitMbps returns the limit in Mbit/s, 0 when there is none.
func (s *PodSpec) EgressLimitMbps() int {
	if s.NetLimit == nil {
		return 0
	}
	return s.NetLimit.EgressLimit
}
