package api

// Values of Container.ImagePullPolicy and URI.PullPolicy.
const (
	PullAlways       = "Always"
	PullIfNotPresent = "IfNotPresent"
	PullNever        = "Never"
)

// Container is one container of a taskgroup.
type Container struct {
	// Name is unique in the taskgroup; see PodSpec.TaskNames.
	Name string `json:"name,omitempty"`
	// Lifecycle is init, main (the default) or sidecar; see LifecycleInit.
	Lifecycle string `json:"lifecycle,omitempty"`
	Hostname  string `json:"hostname,omitempty"`
	// Command replaces the image's entrypoint when it is not empty.
	Command string `json:"command,omitempty"`
	// Args follow the command, or the image's entrypoint.
	Args []string `json:"args,omitempty"`
	// Parameters are docker-like options of a closed set.
	Parameters []Parameter `json:"parameters,omitempty"`
	// Type is MESOS or DOCKER; it is read and kept, without effect.
	Type            string `json:"type,omitempty"`
	Image           string `json:"image"`
	ImagePullUser   string `json:"imagePullUser,omitempty"`
	ImagePullPasswd string `json:"imagePullPasswd,omitempty" secret:"true"`
	// ImagePullPolicy is Always, IfNotPresent (default) or Never.
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`
	Privileged      bool   `json:"privileged,omitempty"`
	// User is what the container runs as, name or number, perhaps with :group;
	// empty means the image's own user.
	User string `json:"user,omitempty"`
	// Init runs a small init as the first process, which reaps orphans and
	// passes signals on.
	Init bool `json:"init,omitempty"`
	// ReadOnlyRoot makes the image's file system read-only; volumes stay as they are.
	ReadOnlyRoot bool `json:"readOnlyRoot,omitempty"`
	// PidsLimit is the most processes and threads; 0 means no limit.
	PidsLimit    int64        `json:"pidsLimit,omitempty"`
	Capabilities Capabilities `json:"capabilities,omitzero"`
	// Cpuset gives the container whole CPUs of the agent for itself, as many as
	// resources.requests.cpu, which must then be a whole number.
	Cpuset       bool          `json:"cpuset,omitempty"`
	WorkingDir   string        `json:"workingDir,omitempty"`
	Env          []EnvVar      `json:"env,omitempty"`
	Ports        []Port        `json:"ports,omitempty"`
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	Resources    Resources     `json:"resources,omitzero"`
	Volumes      []Volume      `json:"volumes,omitempty"`
	ConfigMaps   []ConfigRef   `json:"configmaps,omitempty"`
	Secrets      []SecretRef   `json:"secrets,omitempty"`
}

// Parameter is one docker-like option.
type Parameter struct {
	// Key is rm, ulimit, oom-kill-disable, shm-size, ip, ipc, net or P.
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Volume mounts a directory of the agent into a container.
type Volume struct {
	Name   string      `json:"name,omitempty"`
	Volume VolumeMount `json:"volume"`
}

// VolumeMount says what is mounted where.
type VolumeMount struct {
	// HostPath is a directory of the agent; empty means one in the sandbox.
	// $BCS_POD_ID in it, and in MountPath, stands for the taskgroup's id.
	HostPath  string `json:"hostPath,omitempty"`
	MountPath string `json:"mountPath"`
	// SubPath is read and kept; it has no effect.
	SubPath  string `json:"subPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Propagation is one of Propagations; empty is the engine's own, rprivate.
	Propagation string `json:"propagation,omitempty"`
}

// Propagations are the values of VolumeMount.Propagation: how mounts made later
// travel between agent and container, see mount_namespaces(7).
var Propagations = []string{"private", "rprivate", "slave", "rslave", "shared", "rshared"}

// Values of DataItem.Type.
const (
	DataEnv  = "env"
	DataFile = "file"
)

// ConfigRef takes items from a configmap of the same namespace.
type ConfigRef struct {
	Name  string     `json:"name"`
	Items []DataItem `json:"items,omitempty"`
}

// SecretRef takes items from a secret of the same namespace.
type SecretRef struct {
	SecretName string     `json:"secretName"`
	Items      []DataItem `json:"items,omitempty"`
}

// DataItem says where one key of a configmap or secret goes.
type DataItem struct {
	// Type is env or file.
	Type    string `json:"type"`
	DataKey string `json:"dataKey"`
	// DataKeyAlias is read and kept; it has no effect.
	DataKeyAlias string `json:"dataKeyAlias,omitempty"`
	// KeyOrPath is the variable's name or the file's path.
	KeyOrPath string `json:"keyOrPath"`
	// SubPath is read and kept; it has no effect.
	SubPath  string `json:"subPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// User owns the file; empty means the user that the container runs as.
	User string `json:"user,omitempty"`
}
