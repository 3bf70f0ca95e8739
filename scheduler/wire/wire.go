// Package wire holds the JSON of the scheduler's HTTP API, shared by the
// scheduler and its client. It must never hold behaviour.
package wire

import (
	"encoding/json"
	"time"

	"tandem/api"
)

// ApplyRequest declares documents, all or none.
type ApplyRequest struct {
	// Documents are as their authors wrote them, see api.Document.Raw.
	Documents []json.RawMessage `json:"documents"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Strict makes errors of warnings.
	Strict bool `json:"strict,omitempty"`
}

// ApplyResponse says what came of each document, in their order.
type ApplyResponse struct {
	Changes  []Change         `json:"changes"`
	Warnings []api.FieldError `json:"warnings,omitempty"`
}

// Change is what apply did, or would do, with one object.
type Change struct {
	api.Ref
	// Action is created, configured or unchanged.
	Action string `json:"action"`
}

// Actions of a Change.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
)

// Object is a declared object and, for workloads, how it stands.
type Object struct {
	api.Ref
	// Raw is what was applied; after a scale its instance is the new one.
	Raw     json.RawMessage `json:"raw"`
	Created time.Time       `json:"created"`
	Updated time.Time       `json:"updated"`
	// Deleting tells that the object goes as soon as nothing of it runs.
	Deleting bool    `json:"deleting,omitempty"`
	Status   *Status `json:"status,omitempty"`
}

// Status is how a workload stands.
type Status struct {
	Desired int `json:"desired"`
	// Current counts the taskgroups that are placed and not at their end.
	Current int `json:"current"`
	Running int `json:"running"`
	Ready   int `json:"ready"`
	// UpToDate are those that run what was applied last.
	UpToDate int `json:"upToDate"`
	Restarts int `json:"restarts"`
	// Settled tells that nothing is left to be done.
	Settled bool `json:"settled"`
	// Failed tells that it will not get better by itself; Message says why.
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`
}

// States of a taskgroup.
const (
	Pending     = "Pending"
	Launching   = "Launching"
	Starting    = "Starting"
	Running     = "Running"
	Killing     = "Killing"
	Unreachable = "Unreachable"
	Finished    = "Finished"
	Failed      = "Failed"
	Killed      = "Killed"
	Lost        = "Lost"
)

// Taskgroup is an instance of a workload. One that waits for a place has no ID.
type Taskgroup struct {
	ID        string   `json:"id,omitempty"`
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Owner     api.Ref  `json:"owner"`
	Index     int      `json:"index"`
	State     string   `json:"state"`
	Ready     bool     `json:"ready"`
	AgentID   string   `json:"agentID,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	NodeIP    string   `json:"nodeIP,omitempty"`
	Restarts  int      `json:"restarts"`
	UpToDate  bool     `json:"upToDate"`
	Message   string   `json:"message,omitempty"`
	Waiting   []string `json:"waiting,omitempty"`
	// NotBefore is when it is started again, when it waits for that.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Created   time.Time `json:"created,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Tasks     []Task    `json:"tasks,omitempty"`
}

// Task is a task of a taskgroup.
type Task struct {
	ID   string       `json:"id"`
	Name string       `json:"name"`
	Kind api.TaskKind `json:"kind"`
	// Lifecycle is the task's part in the taskgroup: init, sidecar, or main when it is empty.
	Lifecycle string `json:"lifecycle,omitempty"`
	// State is Mesos's, without TASK_.
	State   string          `json:"state"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	Healthy *bool           `json:"healthy,omitempty"`
	Ports   []api.TaskPort  `json:"ports,omitempty"`
	Report  *api.TaskReport `json:"report,omitempty"`
	Changed time.Time       `json:"changed,omitzero"`
}

// States of an agent. An unknown one has not come back to a master that was
// restarted, or is known by its taskgroups alone; an inactive one has lost its
// connection or is drained.
const (
	AgentActive      = "active"
	AgentInactive    = "inactive"
	AgentUnreachable = "unreachable"
	AgentUnknown     = "unknown"
)

// Agent is a machine, as the master tells of it. Used counts all frameworks.
// Where the master does not answer, it is what offers have shown, and Used
// counts this framework's taskgroups.
type Agent struct {
	ID         string            `json:"id"`
	Hostname   string            `json:"hostname"`
	Address    string            `json:"address"`
	State      string            `json:"state"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Total      api.TaskResources `json:"total"`
	Used       api.TaskResources `json:"used"`
	Ports      string            `json:"ports,omitempty"`
	Taskgroups int               `json:"taskgroups"`
}

// Event is something that happened to an object.
type Event struct {
	Time   time.Time `json:"time"`
	Object string    `json:"object"`
	// Level is info or warning.
	Level  string `json:"level"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// ScaleRequest sets the number of instances.
type ScaleRequest struct {
	Replicas int `json:"replicas"`
}

// ExecRequest opens a session in a task.
type ExecRequest struct {
	// Task is its name or id; it may be empty when the taskgroup has only one.
	Task string `json:"task,omitempty"`
	api.ExecRequest
}

// ExecProtocol is the protocol that a connection changes to for a session, see
// internal/execstream.
const ExecProtocol = "tandem-exec"

// Problem is the body of every answer that is not 2xx.
type Problem struct {
	// Code is invalid, forbidden, notFound, conflict, tooLarge, timeout, unavailable or internal.
	Code    string           `json:"code"`
	Message string           `json:"message"`
	Errors  []api.FieldError `json:"errors,omitempty"`
}

// Codes of a Problem.
const (
	CodeInvalid     = "invalid"
	CodeForbidden   = "forbidden"
	CodeNotFound    = "notFound"
	CodeConflict    = "conflict"
	CodeTooLarge    = "tooLarge"
	CodeTimeout     = "timeout"
	CodeUnavailable = "unavailable"
	CodeInternal    = "internal"
)
