// Package protocol holds the messages of the process daemon's HTTP API, for
// the daemon and its clients. It holds no behaviour, so that a client stays small.
//
//	GET    /v1/info                  Info
//	POST   /v1/fetch                 FetchRequest -> a stream of FetchEvent, one JSON object a line
//	GET    /v1/tasks?owner=O         []Status
//	PUT    /v1/tasks/{id}            Spec -> Status; again with the same Spec: no effect
//	GET    /v1/tasks/{id}            Status; ?after=V&wait=30s answers once its version is not V
//	GET    /v1/version               About
//	GET    /v1/events?owner=O        a stream of Status, one JSON object a line: all, then each that changes
//	POST   /v1/tasks/{id}/restart    RestartRequest -> Status, without waiting
//	POST   /v1/tasks/{id}/reload     Status, without waiting for the reload command
//	GET    /v1/tasks/{id}/stats      Stats
//	GET    /v1/tasks/{id}/logs?stream=S&bytes=N&follow=B  text; with stream=log and file=F of logPath, lines=N in place of bytes
//	GET    /v1/tasks/{id}/logfiles   []LogFile
//	PUT    /v1/tasks/{id}/files      []File, for a task that is ready
//	POST   /v1/tasks/{id}/start      Status; ?wait=5s answers once the start is settled
//	POST   /v1/tasks/{id}/stop       StopRequest -> Status, without waiting for the end
//	POST   /v1/tasks/{id}/signal     SignalRequest
//	POST   /v1/tasks/{id}/exec       ExecRequest -> a stream of ExecEvent: one when it runs, one when it has ended
//	POST   /v1/tasks/{id}/session    SessionRequest -> 101 and a session of internal/execstream
//	PUT    /v1/tasks/{id}/limits     Limits -> Status, for a task that runs
//	POST   /v1/tasks/{id}/upload     File, beneath the workPath of a task that runs
//	GET    /v1/tasks/{id}/tail?bytes=N  text
//	DELETE /v1/tasks/{id}            for a task that is not running; one that is unknown: no effect
//
// Any other outcome than 2xx carries an Error.
package protocol

import "time"

// PlaceHeader is a header of the answer with a task's output: the place of the first
// byte that follows, counted from the first that was ever written.
const PlaceHeader = "Tandem-Place"

// KeptLogs is the directory of a task's sandbox in which the daemon leaves the ends of the
// files that its logPath named, when the task is deleted.
const KeptLogs = ".tandem-log"

// Version of the API.
const Version = "v1"

// State is a state of a task in the daemon. The table of states is in the daemon's README.
type State string

// The states.
const (
	// StatePreparing: what the task's URIs name is being fetched and put in place.
	StatePreparing State = "preparing"
	// StateReady: waits for start.
	StateReady State = "ready"
	// StateStarting: the start command was issued and has not come to its end (pid file) or its beginning (foreground).
	StateStarting State = "starting"
	// StateSettling: the start command succeeded; the pid file is awaited.
	StateSettling State = "settling"
	// StateRunning: the main process is known and alive.
	StateRunning State = "running"
	// StateStopping: the stop command was issued.
	StateStopping State = "stopping"
	// StateTerminating: SIGTERM was sent.
	StateTerminating State = "terminating"
	// StateDraining: the main process is gone, others of the task are not; they have until the same deadline.
	StateDraining State = "draining"
	// StateKilling: SIGKILL was sent to all that is left.
	StateKilling State = "killing"
	// StateEnded: nothing of the task runs any more, or it never started.
	StateEnded State = "ended"
	// StateDeleted: the record is being removed. A client sees it at most once.
	StateDeleted State = "deleted"
)

// Phase is where a task is in the field's words; several states may be one phase.
type Phase string

// The phases, in the order in which a task goes through them. A restart goes from
// stopping back to starting.
const (
	// PhaseStaging: created. It waits for what it needs, or has it and waits for its start.
	PhaseStaging Phase = "staging"
	// PhaseFetching: what its URIs name is being fetched, unpacked and put in place.
	PhaseFetching Phase = "fetching"
	// PhaseStarting: its start command runs, or the pid file is waited for.
	PhaseStarting Phase = "starting"
	// PhaseRunning: its main process is known and alive.
	PhaseRunning Phase = "running"
	// PhaseStopping: it was asked to stop, or its main process has ended, and something of it may still run.
	PhaseStopping Phase = "stopping"
	// PhaseStopped: nothing of it runs, as was asked for or after a success.
	PhaseStopped Phase = "stopped"
	// PhaseFailed: nothing of it runs, which nobody asked for; Failure or Exit says why.
	PhaseFailed Phase = "failed"
)

// Phases returns all phases, in their order.
func Phases() []Phase {
	return []Phase{PhaseStaging, PhaseFetching, PhaseStarting, PhaseRunning, PhaseStopping, PhaseStopped, PhaseFailed}
}

// Info describes a daemon.
type Info struct {
	Version string `json:"version"`
	API     string `json:"api"`
	// WorkBaseDir and RunBaseDir are what ${work_base_dir} and ${run_base_dir} stand for.
	WorkBaseDir string `json:"workBaseDir"`
	RunBaseDir  string `json:"runBaseDir"`
	// Tracking says how the processes of a task are held together, for people.
	Tracking string `json:"tracking"`
	Pid      int    `json:"pid"`
	// Keeper is the process that is the parent of all others; nil when none runs.
	Keeper *Keeper `json:"keeper,omitempty"`
	// Troubles are what the daemon found damaged when it started and what it cannot
	// use since, such as records that were set aside; for people.
	Troubles []string `json:"troubles,omitempty"`
}

// Keeper describes the daemon's keeper.
type Keeper struct {
	Pid int `json:"pid"`
	// Version is that of its program, which may be older than the daemon's.
	Version string `json:"version"`
	// Processes is how many it was the parent of when it last said so.
	Processes int `json:"processes"`
}

// About is the version of a daemon and its API.
type About struct {
	Version string `json:"version"`
	API     string `json:"api"`
}

// Stats is what a task uses.
type Stats struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// CPUSeconds is the processor time of all its processes, ended ones included
	// where a control group counts it.
	CPUSeconds float64 `json:"cpuSeconds"`
	// MemoryBytes is what the control group is charged with, page cache included;
	// where none counts it, the resident memory of its processes.
	MemoryBytes int64 `json:"memoryBytes"`
	Processes   int   `json:"processes"`
	// ForksRefused is how often a process could not fork for the limit of processes.
	ForksRefused int64 `json:"forksRefused,omitempty"`
}

// Spec is a process task. All variables are expanded.
type Spec struct {
	ID string `json:"id"`
	// Owner is the executor id.
	Owner string `json:"owner"`
	// Leased says that the owner holds a lock in the journal of the agent; when the
	// lock is free, the daemon stops and deletes the task.
	Leased bool `json:"leased,omitempty"`
	// Name is for messages.
	Name string `json:"name"`
	// User is an account of the agent; an unknown one is refused. Empty is the daemon's own.
	User string `json:"user,omitempty"`
	// WorkPath is the directory in which commands run; empty is Sandbox.
	WorkPath string `json:"workPath,omitempty"`
	// PidFile is empty when the start command stays in the foreground. A relative one is below WorkPath.
	PidFile string `json:"pidFile,omitempty"`
	// ProcName is what the process that the pid file names must go by: the base name of
	// its program, of argv[0], or of the script that it runs. Empty is any.
	ProcName string `json:"procName,omitempty"`
	StartCmd string `json:"startCmd"`
	// StartTimeout is how long a start command with a pid file may take; it is ended
	// then, with what it forked. 0 is the daemon's --start-timeout.
	StartTimeout time.Duration `json:"startTimeout,omitempty"`
	// StartGrace is how long the pid file is awaited after the success of the start
	// command, and followed when it is replaced.
	StartGrace time.Duration `json:"startGrace,omitempty"`
	StopCmd    string        `json:"stopCmd,omitempty"`
	// KillCmd is run in the place of SIGTERM.
	KillCmd string `json:"killCmd,omitempty"`
	// ReloadCmd makes the running process read its configuration again.
	ReloadCmd string `json:"reloadCmd,omitempty"`
	// Env is the whole environment, NAME=value. PATH and HOME are added when missing.
	Env []string `json:"env,omitempty"`
	// Sandbox is an absolute directory; its files stdout and stderr receive the output.
	Sandbox string `json:"sandbox"`
	// LogPath is where the process writes files of its own: a file, a directory, or a
	// pattern in the last element (path/filepath, Match). A relative one is below WorkPath.
	LogPath string `json:"logPath,omitempty"`
	URIs    []URI  `json:"uris,omitempty"`
	Limits  Limits `json:"limits"`
	// NewPrivileges is NewPrivilegesDeny (no_new_privs, see prctl(2)), NewPrivilegesAllow,
	// or empty: denied unless the user is root.
	NewPrivileges string `json:"newPrivileges,omitempty"`
	// Umask is octal; empty is 022.
	Umask string `json:"umask,omitempty"`
	// Nice is -20 to 19, see nice(2).
	Nice int `json:"nice,omitempty"`
	// OOMScoreAdj is -1000 to 1000, see proc_pid_oom_score_adj(5).
	OOMScoreAdj int      `json:"oomScoreAdj,omitempty"`
	Rlimits     []Rlimit `json:"rlimits,omitempty"`
	// NetNS is the file of the network namespace to run in, such as /run/netns/NAME
	// or /proc/PID/ns/net; empty is the agent's.
	NetNS string `json:"netNS,omitempty"`
	// NetNSInode is its inode number, so that no other namespace is taken for it; 0: not looked at.
	NetNSInode uint64 `json:"netNSInode,omitempty"`
}

// What NewPrivileges may be.
const (
	NewPrivilegesAllow = "allow"
	NewPrivilegesDeny  = "deny"
)

// Rlimit is a limit of each process, see getrlimit(2).
type Rlimit struct {
	// Name is nofile, nproc, core, ...: RLIMIT_ names in lower case.
	Name string `json:"name"`
	// Soft and Hard are in the resource's unit; -1 is none.
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// Limits of a task; zero means none.
type Limits struct {
	CPUs  float64 `json:"cpus,omitempty"`
	MemMB float64 `json:"memMB,omitempty"`
	// Pids is the most processes and threads, PidsNone for no limit. 0 is the daemon's
	// default, and for a task that runs it is what the task has.
	Pids int64 `json:"pids,omitempty"`
	// CPURequest is the task's share of the processors when all want more than
	// there is, in cores. On cgroup v1 it holds for tasks with a CPU limit only.
	CPURequest float64 `json:"cpuRequest,omitempty"`
}

// PidsNone is for any number of processes.
const PidsNone = -1

// URI is something to fetch.
type URI struct {
	// Value is a file, http or https URL, or an absolute path.
	Value    string `json:"value"`
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// OutputDir receives the content; it must be absolute. Empty is WorkPath.
	OutputDir string `json:"outputDir,omitempty"`
	// PullPolicy is Always or IfNotPresent (the default).
	PullPolicy string `json:"pullPolicy,omitempty"`
	// Mode is that of a file that is no archive, permission bits only; 0 is 0755.
	Mode uint32 `json:"mode,omitempty"`
	// Digest, sha256:hex, names content that an earlier fetch brought into the cache.
	Digest string `json:"digest,omitempty"`
}

// CreateAnew is in the failure of a task whose preparation a restart of the daemon
// interrupted and that needs what no record may hold: who deletes it, fetches and creates it
// again loses nothing.
const CreateAnew = "create the task anew"

// FetchRequest asks for content to be brought into the cache.
type FetchRequest struct {
	// User is the account of the task that it is for: files of the agent are read with
	// its rights. Empty is that of tasks that name none.
	User string `json:"user,omitempty"`
	URIs []URI  `json:"uris"`
}

// FetchEvent is one line of the answer to a fetch. The last one has Done or Error.
type FetchEvent struct {
	// Progress is a short text for people.
	Progress string `json:"progress,omitempty"`
	Done     bool   `json:"done,omitempty"`
	// Digests are those of the URIs, in their order.
	Digests []string `json:"digests,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// File is put in place before the task starts and removed when it is deleted.
// Its content never enters a record.
type File struct {
	// Path is absolute, or below WorkPath.
	Path    string `json:"path"`
	Content []byte `json:"content"`
	// Mode holds the permission bits; those of others are taken from a secret.
	Mode uint32 `json:"mode"`
	// User owns the file; empty is the task's user.
	User   string `json:"user,omitempty"`
	Secret bool   `json:"secret,omitempty"`
}

// LogFile is a file that logPath names.
type LogFile struct {
	Name string `json:"name"`
	// Size is in bytes.
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// StopRequest asks for the end of a task.
type StopRequest struct {
	// Grace is the time until SIGKILL. Zero kills at once.
	Grace time.Duration `json:"grace"`
}

// RestartRequest asks for the end of what runs and a new start in the same
// directories.
type RestartRequest struct {
	// Grace is as for a stop.
	Grace time.Duration `json:"grace"`
}

// Reload is a run of the reload command.
type Reload struct {
	// Number counts the reloads of the task.
	Number  int  `json:"number"`
	Running bool `json:"running,omitempty"`
	// Failure says why it failed; empty once it has succeeded.
	Failure string `json:"failure,omitempty"`
}

// SignalRequest sends a signal to the main process.
type SignalRequest struct {
	Signal int `json:"signal"`
}

// ExecRequest runs a command beside a running task, as its user, with its
// environment, in its workPath and control group. It ends with the request.
type ExecRequest struct {
	// Argv is the program, looked for in the task's PATH, and its arguments.
	Argv []string `json:"argv"`
	// Env is added to the task's environment, NAME=value.
	Env []string `json:"env,omitempty"`
}

// ExecEvent is one line of the answer. The first one says nothing but that the
// command runs; the last one has Result or Error.
type ExecEvent struct {
	Result *ExecResult `json:"result,omitempty"`
	Error  *Error      `json:"error,omitempty"`
}

// ExecResult tells how a command ended.
type ExecResult struct {
	// Code is the exit code, 128+n after signal n, 126 or 127 when it could not be run.
	Code int `json:"code"`
	// Output is the end of what it wrote to stdout and stderr.
	Output string `json:"output,omitempty"`
}

// SessionProtocol is the protocol that a connection changes to for a session.
const SessionProtocol = "tandem-exec"

// SessionRequest runs a command beside a running task as ExecRequest does, with
// input and output over the connection.
type SessionRequest struct {
	Argv []string `json:"argv"`
	// Env is added to the task's environment, NAME=value.
	Env []string `json:"env,omitempty"`
	// Stdin tells that it gets input; without it, it reads nothing.
	Stdin bool `json:"stdin,omitempty"`
	// TTY gives it a terminal of Width and Height characters; 0 leaves the size open.
	TTY    bool   `json:"tty,omitempty"`
	Width  uint16 `json:"width,omitempty"`
	Height uint16 `json:"height,omitempty"`
}

// Status is what the daemon knows about a task.
type Status struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// Phase says in the field's words what State says in the daemon's.
	Phase Phase `json:"phase"`
	State State `json:"state"`
	// Version changes with every change of the status but those of Progress and from
	// staging to fetching, which are in no record.
	Version uint64 `json:"version"`
	// Pid is the main process; 0 before there is one.
	Pid        int       `json:"pid,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Exit is set once the main process has ended.
	Exit *Exit `json:"exit,omitempty"`
	// Failure says why a task ended that could not be prepared or started.
	Failure string `json:"failure,omitempty"`
	// StopFailure says why the last stop command did not do, and SIGTERM was sent after it.
	StopFailure string `json:"stopFailure,omitempty"`
	// Progress is what is being done, for people.
	Progress string `json:"progress,omitempty"`
	// Restarts counts the restarts that were asked for and done.
	Restarts int `json:"restarts,omitempty"`
	// Reload is the last reload.
	Reload *Reload `json:"reload,omitempty"`
	// Notes say what was asked for and cannot be had on this agent.
	Notes []string `json:"notes,omitempty"`
	// Limits are those that the task has now, with the daemon's default of processes.
	Limits Limits `json:"limits,omitzero"`
}

// Started tells whether a main process was ever seen.
func (s *Status) Started() bool { return s.Pid != 0 }

// Exit tells how a main process ended.
type Exit struct {
	// Known is false when nobody could see the exit code, for example because the
	// daemon was killed meanwhile. Such an end is never a success.
	Known     bool `json:"known"`
	Code      int  `json:"code"`
	Signal    int  `json:"signal,omitempty"`
	OOMKilled bool `json:"oomKilled,omitempty"`
}

// Codes of errors.
const (
	// CodeNotFound: the daemon has no such task.
	CodeNotFound = "not_found"
	// CodeConflict: not in this state, or another task has this id.
	CodeConflict = "conflict"
	// CodeInvalid: the request makes no sense, and will not later.
	CodeInvalid = "invalid"
	// CodeInternal: the daemon could not, for example for lack of disk space.
	CodeInternal = "internal"
	// CodeUnavailable: the daemon is going away; ask its successor.
	CodeUnavailable = "unavailable"
)

// Error is the body of every answer that is not 2xx.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }
