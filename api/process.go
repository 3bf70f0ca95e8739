package api

// Process is one plain process of a taskgroup. Its strings may use the
// variables of ExpandSpec.
type Process struct {
	// Name is unique in the taskgroup; see PodSpec.TaskNames.
	Name string `json:"name,omitempty"`
	// Lifecycle is init, main (the default) or sidecar; see LifecycleInit.
	Lifecycle string `json:"lifecycle,omitempty"`
	// ProcName is the base name of the program that is to be found running.
	ProcName string `json:"procName"`
	// User is the account to run as; empty means the daemon's own.
	User      string `json:"user,omitempty"`
	ProcGroup string `json:"procGroup,omitempty"`
	// WorkPath is the directory of the start and stop commands.
	WorkPath string `json:"workPath,omitempty"`
	// PidFile is empty for a start command that stays in the foreground.
	PidFile  string `json:"pidFile,omitempty"`
	URIs     []URI  `json:"uris,omitempty"`
	StartCmd string `json:"startCmd"`
	// StartTimeout is the number of seconds that a start command with a pid file may
	// take; see ProcessTask.StartTimeout for its default.
	StartTimeout int `json:"startTimeout,omitempty"`
	// StartGracePeriod is the number of seconds from the start command's
	// success in which the pid file must come to name the process.
	StartGracePeriod int    `json:"startGracePeriod"`
	StopCmd          string `json:"stopCmd,omitempty"`
	CheckCmd         string `json:"checkCmd,omitempty"`
	RestartCmd       string `json:"restartCmd,omitempty"`
	ReloadCmd        string `json:"reloadCmd,omitempty"`
	KillCmd          string `json:"killCmd,omitempty"`
	LogPath          string `json:"logPath,omitempty"`
	CfgPath          string `json:"cfgPath,omitempty"`
	// NewPrivileges is allow or deny: whether setuid bits and file capabilities
	// have an effect. Empty is deny unless the user is root.
	NewPrivileges string `json:"newPrivileges,omitempty"`
	// Umask is octal, such as 027.
	Umask string `json:"umask,omitempty"`
	// Nice is -20 (first) to 19 (last).
	Nice int `json:"nice,omitempty"`
	// OOMScoreAdj is -1000 (spared) to 1000 (ended first) when memory is short.
	OOMScoreAdj int `json:"oomScoreAdj,omitempty"`
	// Ulimits are limits of each process of the task, as ParseUlimit reads them.
	Ulimits []string `json:"ulimits,omitempty"`
	// PidsLimit is the most processes and threads; 0 is the agent's default, -1 no limit.
	PidsLimit    int64         `json:"pidsLimit,omitempty"`
	Env          []EnvVar      `json:"env,omitempty"`
	Ports        []Port        `json:"ports,omitempty"`
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	Resources    Resources     `json:"resources,omitzero"`
	ConfigMaps   []ConfigRef   `json:"configmaps,omitempty"`
	Secrets      []SecretRef   `json:"secrets,omitempty"`
}

// URI is an archive or file that a process needs.
type URI struct {
	// Value is a file, http or https address. Its fragment may be a checksum,
	// #sha256=hex or #md5=hex.
	Value string `json:"value"`
	User  string `json:"user,omitempty"`
	Pwd   string `json:"pwd,omitempty" secret:"true"`
	// OutputDir receives the content.
	OutputDir string `json:"outputDir,omitempty"`
	// PullPolicy is Always or IfNotPresent (default).
	PullPolicy string `json:"pullPolicy,omitempty"`
	// Mode is that of a file that is no archive, octal; empty is 0755.
	Mode string `json:"mode,omitempty"`
}

// DefaultStartGracePeriod is in seconds, and so is DefaultStartTimeout.
const (
	DefaultStartGracePeriod = 1
	DefaultStartTimeout     = 90
)

func (p *Process) prefill() { p.StartGracePeriod = DefaultStartGracePeriod }
