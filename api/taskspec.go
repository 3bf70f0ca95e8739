package api

import "time"

// TaskSpecVersion is the version of TaskSpec and TaskReport that this code
// writes. A reader ignores unknown fields and refuses unknown versions.
const TaskSpecVersion = "tandem/v1"

// TaskKind tells which runtime runs a task.
type TaskKind string

// The two kinds of task.
const (
	TaskContainer TaskKind = "container"
	TaskProcess   TaskKind = "process"
)

// TaskSpec is everything an executor needs to run one task. It travels as JSON
// in TaskInfo.data, because task groups may not carry a Docker ContainerInfo.
//
// Ports are drawn already; variables (${bcs.*}, ${hostip}, ...) are not yet
// expanded: the executor expands them in one pass, because the directories of
// the process daemon are known only on the agent.
type TaskSpec struct {
	Version   string       `json:"version"`
	Taskgroup TaskgroupRef `json:"taskgroup"`
	// Name is the container's or process's name, unique in the taskgroup.
	Name string   `json:"name"`
	Kind TaskKind `json:"kind"`
	// Position is the place in the taskgroup's start order, from 0.
	Position int `json:"position"`
	// Lifecycle is init, main or sidecar; empty is main. It comes before
	// Position: init, then sidecar, then main.
	Lifecycle string `json:"lifecycle,omitempty"`
	// NodeIP is the agent's address as the offer gave it.
	NodeIP string `json:"nodeIP"`

	Container *ContainerTask `json:"container,omitempty"`
	Process   *ProcessTask   `json:"process,omitempty"`

	Network      TaskNetwork       `json:"network"`
	Ports        []TaskPort        `json:"ports,omitempty"`
	Env          []TaskEnvVar      `json:"env,omitempty"`
	Files        []TaskFile        `json:"files,omitempty"`
	Requests     TaskResources     `json:"requests"`
	Limits       TaskResources     `json:"limits"`
	HealthChecks []HealthCheck     `json:"healthChecks,omitempty"`
	KillPolicy   TaskKillPolicy    `json:"killPolicy"`
	Labels       map[string]string `json:"labels,omitempty"`

	// PeerPorts are the named ports of the other tasks of the taskgroup, as far
	// as this task has none of the same name. The executor fills them in.
	PeerPorts []TaskPort `json:"-"`
}

// TaskgroupRef names the taskgroup that a task belongs to.
type TaskgroupRef struct {
	// ID is {index}.{app}.{namespace}.{cluster}.{timestamp}; it is also the executor id and BCS_POD_ID.
	ID string `json:"id"`
	// Name is {app}-{index}.
	Name        string `json:"name"`
	Application string `json:"application"`
	Namespace   string `json:"namespace"`
	Cluster     string `json:"cluster"`
	// Index is stable across rescheduling and updates.
	Index int `json:"index"`
	// Size is the number of tasks in the taskgroup.
	Size int `json:"size"`
}

// ContainerTask is what the container runtime needs beyond the common fields.
type ContainerTask struct {
	Image string `json:"image"`
	// Command replaces the image's entrypoint when it is not empty.
	Command []string `json:"command,omitempty"`
	// Args replaces the image's command.
	Args       []string `json:"args,omitempty"`
	WorkingDir string   `json:"workingDir,omitempty"`
	Hostname   string   `json:"hostname,omitempty"`
	Privileged bool     `json:"privileged,omitempty"`
	// User, Init, ReadOnlyRoot, PidsLimit, Capabilities and Cpuset are those of Container.
	User         string       `json:"user,omitempty"`
	Init         bool         `json:"init,omitempty"`
	ReadOnlyRoot bool         `json:"readOnlyRoot,omitempty"`
	PidsLimit    int64        `json:"pidsLimit,omitempty"`
	Capabilities Capabilities `json:"capabilities,omitzero"`
	Cpuset       bool         `json:"cpuset,omitempty"`
	// PullPolicy is Always, IfNotPresent or Never.
	PullPolicy   string            `json:"pullPolicy,omitempty"`
	RegistryUser string            `json:"registryUser,omitempty"`
	RegistryPass string            `json:"registryPassword,omitempty"`
	Parameters   []TaskParameter   `json:"parameters,omitempty"`
	Volumes      []ContainerVolume `json:"volumes,omitempty"`
}

// TaskParameter is a docker-like parameter, such as ulimit=nofile=1024.
type TaskParameter struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ContainerVolume mounts a directory of the agent; an empty HostPath means a directory in the sandbox.
type ContainerVolume struct {
	Name      string `json:"name,omitempty"`
	HostPath  string `json:"hostPath,omitempty"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
	// Propagation is one of Propagations, or empty.
	Propagation string `json:"propagation,omitempty"`
}

// ProcessTask is what the process daemon needs beyond the common fields.
type ProcessTask struct {
	ProcName string `json:"procName"`
	// User is the account to run as; an unknown one is refused. Empty means the daemon's own.
	User     string `json:"user,omitempty"`
	WorkPath string `json:"workPath"`
	// PidFile is empty when the start command stays in the foreground.
	PidFile                 string       `json:"pidFile,omitempty"`
	URIs                    []ProcessURI `json:"uris,omitempty"`
	StartCmd                string       `json:"startCmd"`
	StartTimeoutSeconds     int          `json:"startTimeoutSeconds,omitempty"`
	StartGracePeriodSeconds int          `json:"startGracePeriodSeconds,omitempty"`
	StopCmd                 string       `json:"stopCmd,omitempty"`
	CheckCmd                string       `json:"checkCmd,omitempty"`
	RestartCmd              string       `json:"restartCmd,omitempty"`
	ReloadCmd               string       `json:"reloadCmd,omitempty"`
	KillCmd                 string       `json:"killCmd,omitempty"`
	// LogPath is a file, a directory or a pattern of files that the process writes itself.
	LogPath string `json:"logPath,omitempty"`
	// NewPrivileges is allow, deny, or empty: denied unless the user is root.
	NewPrivileges string `json:"newPrivileges,omitempty"`
	// Umask is octal; empty is 022.
	Umask       string `json:"umask,omitempty"`
	Nice        int    `json:"nice,omitempty"`
	OOMScoreAdj int    `json:"oomScoreAdj,omitempty"`
	// Ulimits are name=limit or name=soft:hard; -1 is no limit.
	Ulimits []string `json:"ulimits,omitempty"`
	// PidsLimit is the most processes and threads; 0 is the agent's default, -1 no limit.
	PidsLimit int64 `json:"pidsLimit,omitempty"`
}

// StartTimeout is how long the start command of a process with a pid file may
// take: 90 s, or the grace period when that is longer, unless it says otherwise. 0
// for a process that stays in the foreground, which has started when it exists.
func (p *ProcessTask) StartTimeout() time.Duration {
	switch {
	case p.PidFile == "":
		return 0
	case p.StartTimeoutSeconds > 0:
		return time.Duration(p.StartTimeoutSeconds) * time.Second
	}
	return time.Duration(max(DefaultStartTimeout, p.StartGracePeriodSeconds)) * time.Second
}

// ProcessURI is an archive or file to fetch before the start command runs.
type ProcessURI struct {
	Value    string `json:"value"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// OutputDir receives the archive's content.
	OutputDir string `json:"outputDir,omitempty"`
	// PullPolicy is Always or IfNotPresent.
	PullPolicy string `json:"pullPolicy,omitempty"`
	// Mode is that of a file that is no archive, octal; empty is 0755.
	Mode string `json:"mode,omitempty"`
}

// TaskNetwork is the network of the taskgroup; each of its container tasks
// carries the same, and each process that shares it. Other processes have HOST.
type TaskNetwork struct {
	// Mode is HOST, BRIDGE, NONE or CUSTOM.
	Mode string `json:"mode"`
	// Type is cnm or cni; it matters for CUSTOM only.
	Type string `json:"type,omitempty"`
	// Name is the network's name when Mode is CUSTOM.
	Name string `json:"name,omitempty"`
	// EgressLimitMbps limits outgoing traffic; 0 means no limit.
	EgressLimitMbps int `json:"egressLimitMbps,omitempty"`
}

// TaskPort is a port with its numbers settled.
type TaskPort struct {
	Name string `json:"name"`
	// ContainerPort is what the task binds.
	ContainerPort int `json:"containerPort"`
	// HostPort is the port on the agent; 0 means that it is not published.
	HostPort int `json:"hostPort,omitempty"`
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
}

// TaskEnvVar is one variable. Literal values (secrets, configmaps) are passed as they are, without expansion.
type TaskEnvVar struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Literal bool   `json:"literal,omitempty"`
	// Source is where the value is fetched from, in place of Value.
	Source *TaskSource `json:"source,omitempty"`
}

// TaskSource is an address from which the executor fetches a value of a
// configmap just before the task is made.
type TaskSource struct {
	// URL begins with http or https.
	URL      string `json:"url"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
}

// TaskFile is a file from a secret or configmap, put in place before the task starts.
type TaskFile struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	// Mode holds the permission bits, for example 0o444.
	Mode   uint32 `json:"mode"`
	User   string `json:"user,omitempty"`
	Secret bool   `json:"secret,omitempty"`
	// Source is where the content is fetched from, in place of Content.
	Source *TaskSource `json:"source,omitempty"`
}

// TaskResources are cores, MiB of memory and MiB of disk; 0 means not set.
type TaskResources struct {
	CPUs   float64 `json:"cpus,omitempty"`
	MemMB  float64 `json:"memMB,omitempty"`
	DiskMB float64 `json:"diskMB,omitempty"`
	// Pids is the most processes and threads, of a limit that was changed while the task
	// runs; 0 is that of its start, -1 none.
	Pids int64 `json:"pids,omitempty"`
}

// TaskKillPolicy says how long a task may take to end after it was asked to.
type TaskKillPolicy struct {
	GracePeriodSeconds int64 `json:"gracePeriodSeconds,omitempty"`
	// DrainSeconds is the time between the request to end and the stop signal.
	DrainSeconds int64 `json:"drainSeconds,omitempty"`
	// StopSignal replaces the stop signal of a container's image, such as SIGQUIT.
	StopSignal string `json:"stopSignal,omitempty"`
}

// CheckReport is what is known by one check of a task.
type CheckReport struct {
	// Type and Probe are those of the HealthCheck.
	Type  string `json:"type"`
	Probe string `json:"probe,omitempty"`
	// Healthy is absent until the check has told something.
	Healthy *bool `json:"healthy,omitempty"`
	// Message is why it is not healthy.
	Message string `json:"message,omitempty"`
}

// TaskReport is what an executor tells the scheduler about a task beyond the
// Mesos state; it travels as JSON in TaskStatus.data of every update.
type TaskReport struct {
	Version string   `json:"version"`
	Kind    TaskKind `json:"kind"`
	// ContainerID is the engine's id; Pid is the main process on the agent. 0 or empty when there is none yet.
	ContainerID string `json:"containerID,omitempty"`
	Pid         int    `json:"pid,omitempty"`
	// ImageDigest is the digest of the container's image in its registry, as
	// sha256:...; for an image that never was in one, its id.
	ImageDigest string `json:"imageDigest,omitempty"`
	// IPs are the addresses of the task's network namespace; the node's for host networking.
	IPs        []string   `json:"ips,omitempty"`
	Ports      []TaskPort `json:"ports,omitempty"`
	StartedAt  time.Time  `json:"startedAt,omitzero"`
	FinishedAt time.Time  `json:"finishedAt,omitzero"`
	// ExitCode is set once the task has ended and its exit code is known.
	ExitCode *int `json:"exitCode,omitempty"`
	// Signal is the number of the signal that ended the task, 0 if none did.
	Signal    int  `json:"signal,omitempty"`
	OOMKilled bool `json:"oomKilled,omitempty"`
	// Sandbox is the directory on the agent that holds the task's stdout and stderr files.
	Sandbox string `json:"sandbox,omitempty"`
	// Output holds the last lines of the output of a task that failed.
	Output string `json:"output,omitempty"`
	// Checks are the checks that the executor makes, in their order.
	Checks []CheckReport `json:"checks,omitempty"`
	// Phases are the parts of the task's life that are over, in their order, with how
	// long each took. A phase that was passed in no time at all is there too.
	Phases []TaskPhase `json:"phases,omitempty"`
}

// TaskPhase is a part of a task's life that is over.
type TaskPhase struct {
	// Name is the executor's state in it: staged, preparing, prepared, creating, created,
	// starting, running, cancelling, stopping or removing.
	Name string `json:"name"`
	// Seconds is how long it took, to the microsecond.
	Seconds float64 `json:"seconds"`
}
