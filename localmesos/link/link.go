// Package link is the private protocol between the embedded master and its
// agents. It takes the place of libprocess messages, whose contents it mirrors
// (src/messages/messages.proto of Apache Mesos); nothing but localmesos speaks it.
//
// An agent opens one long-lived request, POST Path+"/subscribe", with a
// Subscribe as its JSON body; the response is a RecordIO stream of Event. The
// agent's own messages go as JSON Calls, one to MaxCalls of them one after another
// and acted on in that order, to POST Path+"/call" with the header StreamHeader;
// the master answers 202, or 409 when the stream is not the agent's current one. The master knows an agent to be disconnected as soon as
// the stream breaks, exactly as Apache Mesos does with its socket.
package link

import (
	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// Path is the prefix of the protocol's two endpoints on the master.
const Path = "/internal/agent"

// MaxCalls is how many messages of an agent one request may hold.
const MaxCalls = 256

// StreamHeader carries the stream id given in the header of the subscribe response.
const StreamHeader = "Tandem-Agent-Stream"

// Subscribe registers an agent, or registers it again when AgentInfo has an id.
type Subscribe struct {
	AgentInfo mesos.AgentInfo `json:"agent_info"`
	// IP is the address that the agent listens on, for offers; the host name or
	// the connection's address is taken when it is empty.
	IP string `json:"ip,omitempty"`
	// Version and BootID of the agent's host, for people and for /state.
	Version string `json:"version"`
	BootID  string `json:"boot_id"`
	// What the agent holds; empty for a new agent.
	Frameworks []mesos.FrameworkInfo `json:"frameworks,omitempty"`
	Executors  []Executor            `json:"executors,omitempty"`
	Tasks      []Task                `json:"tasks,omitempty"`
	// CompletedFrameworks are ids of frameworks that ended on the agent, for the
	// master's log; it keeps a history of its own.
	CompletedFrameworks []mesos.FrameworkID `json:"completed_frameworks,omitempty"`
}

// Executor is an executor that lives on an agent.
type Executor struct {
	FrameworkID mesos.FrameworkID  `json:"framework_id"`
	Info        mesos.ExecutorInfo `json:"info"`
	ContainerID string             `json:"container_id"`
	Directory   string             `json:"directory"`
	// Generated tells that the executor was made for a command task.
	Generated bool `json:"generated,omitempty"`
}

// Task is a task that the agent holds: not terminal, or terminal and not yet acknowledged.
type Task struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	// ExecutorID is empty for a task without an executor of its own.
	ExecutorID string         `json:"executor_id,omitempty"`
	Info       mesos.TaskInfo `json:"info"`
	// State is the latest state; Statuses are what the agent has seen, newest
	// last; StatusUpdateState and StatusUpdateUUID are those of the update
	// that is being sent.
	State             mesos.TaskState    `json:"state"`
	Statuses          []mesos.TaskStatus `json:"statuses,omitempty"`
	StatusUpdateState *mesos.TaskState   `json:"status_update_state,omitempty"`
	StatusUpdateUUID  []byte             `json:"status_update_uuid,omitempty"`
}

// Call is a message from an agent; exactly one field beside Type is set.
type Call struct {
	Type     CallType          `json:"type"`
	Update   *StatusUpdate     `json:"update,omitempty"`
	Exited   *ExitedExecutor   `json:"exited,omitempty"`
	Message  *FrameworkMessage `json:"message,omitempty"`
	PongFor  *uint64           `json:"pong_for,omitempty"`
	Unregist *mesos.AgentID    `json:"unregister,omitempty"`
}

// CallType names an agent's message.
type CallType string

// The messages of an agent.
const (
	CallUpdate     CallType = "UPDATE"
	CallExited     CallType = "EXITED_EXECUTOR"
	CallMessage    CallType = "EXECUTOR_MESSAGE"
	CallPong       CallType = "PONG"
	CallUnregister CallType = "UNREGISTER"
)

// StatusUpdate is a status on its way to the framework.
type StatusUpdate struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	ExecutorID  string            `json:"executor_id,omitempty"`
	Status      mesos.TaskStatus  `json:"status"`
	// LatestState is the agent's newest state of the task; it may be ahead of Status.
	LatestState mesos.TaskState `json:"latest_state"`
}

// ExitedExecutor tells that an executor ended; Status is the raw wait status, -1 when it never started.
type ExitedExecutor struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	ExecutorID  string            `json:"executor_id"`
	Status      int32             `json:"status"`
}

// FrameworkMessage is a message between a framework and an executor, in either direction.
type FrameworkMessage struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	ExecutorID  string            `json:"executor_id"`
	Data        []byte            `json:"data"`
}

// Event is a message from the master; exactly one field beside Type is set.
type Event struct {
	Type              EventType            `json:"type"`
	Registered        *Registered          `json:"registered,omitempty"`
	Run               *Run                 `json:"run,omitempty"`
	Kill              *Kill                `json:"kill,omitempty"`
	Acknowledge       *Acknowledge         `json:"acknowledge,omitempty"`
	ShutdownExecutor  *ShutdownExecutor    `json:"shutdown_executor,omitempty"`
	ShutdownFramework *mesos.FrameworkID   `json:"shutdown_framework,omitempty"`
	Message           *FrameworkMessage    `json:"message,omitempty"`
	UpdateFramework   *mesos.FrameworkInfo `json:"update_framework,omitempty"`
	Reconcile         []ReconcileTask      `json:"reconcile,omitempty"`
	Ping              *uint64              `json:"ping,omitempty"`
	Shutdown          string               `json:"shutdown,omitempty"`
}

// EventType names a master's message.
type EventType string

// The messages of the master. Shutdown ends the agent and all it runs, with a
// text that says why. Reconcile asks the agent about tasks that the master
// believes to be there; the agent sends TASK_DROPPED or TASK_LOST for those it lacks.
const (
	EventRegistered        EventType = "REGISTERED"
	EventRun               EventType = "RUN"
	EventKill              EventType = "KILL"
	EventAcknowledge       EventType = "ACKNOWLEDGE"
	EventShutdownExecutor  EventType = "SHUTDOWN_EXECUTOR"
	EventShutdownFramework EventType = "SHUTDOWN_FRAMEWORK"
	EventMessage           EventType = "MESSAGE"
	EventUpdateFramework   EventType = "UPDATE_FRAMEWORK"
	EventReconcile         EventType = "RECONCILE"
	EventPing              EventType = "PING"
	EventShutdown          EventType = "SHUTDOWN"
)

// Registered is the first event of a stream.
type Registered struct {
	AgentID mesos.AgentID `json:"agent_id"`
	// TotalPingTimeoutSeconds is agent_ping_timeout times max_agent_ping_timeouts.
	TotalPingTimeoutSeconds float64 `json:"total_ping_timeout_seconds"`
}

// Run starts one task, or all tasks of a group at once.
type Run struct {
	Framework mesos.FrameworkInfo `json:"framework"`
	Executor  mesos.ExecutorInfo  `json:"executor"`
	Tasks     []mesos.TaskInfo    `json:"tasks"`
	// Group tells whether the tasks came by LAUNCH_GROUP, even if it is only one.
	Group bool `json:"group"`
	// Generated tells that the executor was made by the master for a command task.
	Generated bool `json:"generated,omitempty"`
}

// Kill passes a KILL on, with the policy of the call only.
type Kill struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	TaskID      string            `json:"task_id"`
	KillPolicy  *mesos.KillPolicy `json:"kill_policy,omitempty"`
}

// Acknowledge passes a framework's acknowledgement on.
type Acknowledge struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	TaskID      string            `json:"task_id"`
	UUID        []byte            `json:"uuid"`
}

// ShutdownExecutor asks for one executor's end.
type ShutdownExecutor struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	ExecutorID  string            `json:"executor_id"`
}

// ReconcileTask names a task that the master believes to be on the agent.
type ReconcileTask struct {
	FrameworkID mesos.FrameworkID `json:"framework_id"`
	ExecutorID  string            `json:"executor_id,omitempty"`
	TaskID      string            `json:"task_id"`
	State       mesos.TaskState   `json:"state"`
}
