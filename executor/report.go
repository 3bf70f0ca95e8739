package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// progressEvery is the least time between two TASK_STARTING with news of the
// preparation: each of them travels to the framework and is acknowledged.
const progressEvery = 3 * time.Second

// messageOutput is how much of a failed task's output goes into the message for people.
const messageOutput = 1 << 10

// tell makes a status update: state, message and reason, and with each of them
// the network and the report.
func (e *Executor) tell(t *task, state mesos.TaskState, message string, reason *mesos.TaskStatus_Reason) {
	source := mesos.SOURCE_EXECUTOR
	now := float64(time.Now().UnixNano()) / 1e9
	status := mesos.TaskStatus{
		TaskID: mesos.TaskID{Value: t.id}, State: &state, Source: &source, Reason: reason,
		ExecutorID: &mesos.ExecutorID{Value: e.cfg.ExecutorID},
		Timestamp:  &now, UUID: newUUID(),
		ContainerStatus: &mesos.ContainerStatus{NetworkInfos: []mesos.NetworkInfo{networkInfo(t)}},
	}
	if message != "" {
		status.Message = &message
	}
	if e.conn.agentID != "" {
		status.AgentID = &mesos.AgentID{Value: e.conn.agentID}
	}
	data, err := json.Marshal(e.taskReport(t))
	if err != nil {
		e.log.Error("report of the task cannot be encoded", "task", t.id, "error", err)
	}
	status.Data = data
	e.addHealth(t, &status)
	t.reported, t.hasReport = state, true
	e.add(t, status)
}

// tellStarting reports TASK_STARTING the first time, and later when there is
// something new to say and it was not said a moment ago.
func (e *Executor) tellStarting(t *task, text string) {
	if t.hasReport && text == t.progress {
		return
	}
	t.progress = text
	if wait := progressEvery - time.Since(t.progressAt); t.hasReport && wait > 0 {
		if t.progressTo == nil {
			t.progressTo = e.timers.after(wait, func() {
				t.progressTo = nil
				if t.state > stateStaged && t.state < stateRunning {
					t.progressAt = time.Now()
					e.tell(t, mesos.TASK_STARTING, t.progress, nil)
				}
			})
		}
		return
	}
	t.progressAt = time.Now()
	e.tell(t, mesos.TASK_STARTING, text, nil)
}

// progress takes a text of the preparing or the creating step.
func (e *Executor) progress(t *task, text string) {
	if t.state == statePreparing || t.state == stateCreating {
		e.tellStarting(t, text)
	}
}

// throttled returns the function by which a step tells of its
// progress; it keeps a talkative one from filling the inbox.
func (e *Executor) throttled(t *task) func(string) {
	var last time.Time
	var text string
	return func(s string) {
		if s == text || time.Since(last) < progressEvery/3 {
			return
		}
		last, text = time.Now(), s
		e.post(progressText{t, s})
	}
}

// tellKilling reports TASK_KILLING once for a task that was told to end.
func (e *Executor) tellKilling(t *task) {
	if t.killed != nil && !t.killed.complete && e.conn.killing && t.reported != mesos.TASK_KILLING {
		e.tell(t, mesos.TASK_KILLING, t.killed.message, nil)
	}
}

// tellEnd makes the terminal update.
func (e *Executor) tellEnd(t *task) {
	if t.finishedAt.IsZero() && t.launched {
		t.finishedAt = time.Now()
	}
	state, message, reason := verdict(t)
	e.log.Info("task is over", "task", t.id, "state", state.String())
	e.tell(t, state, message, reason)
}

// verdict is the terminal state of a task, what to say about it, and Mesos's reason.
func verdict(t *task) (mesos.TaskState, string, *mesos.TaskStatus_Reason) {
	var bad *invalid
	var refused *RefusedError
	switch {
	case errors.As(t.failure, &refused):
		reason := mesos.REASON_TASK_INVALID
		if refused.Policy {
			reason = mesos.REASON_TASK_UNAUTHORIZED
		}
		return mesos.TASK_ERROR, refused.Error(), &reason
	case errors.As(t.failure, &bad):
		reason := bad.reason
		if reason == 0 {
			reason = mesos.REASON_TASK_INVALID
		}
		return mesos.TASK_ERROR, bad.Error(), &reason
	case t.unstoppable != nil:
		return mesos.TASK_FAILED, t.unstoppable.Error(), nil
	case t.failure != nil:
		var reason *mesos.TaskStatus_Reason
		if t.started.At.IsZero() {
			r := mesos.REASON_CONTAINER_LAUNCH_FAILED
			reason = &r
		}
		return mesos.TASK_FAILED, withOutput(t.failure.Error(), t.output), reason
	case t.succeeded():
		return mesos.TASK_FINISHED, describeExit(t.exit), nil
	case t.ended:
		var reason *mesos.TaskStatus_Reason
		if t.exit.OOMKilled {
			r := mesos.REASON_CONTAINER_LIMITATION_MEMORY
			reason = &r
		}
		return mesos.TASK_FAILED, withOutput(describeExit(t.exit), t.output), reason
	case t.killed != nil && t.killed.complete:
		return mesos.TASK_FINISHED, t.killedMessage(), nil
	case t.killed != nil:
		reason := t.killed.reason
		if reason == nil && t.started.At.IsZero() {
			reason = killedDuringLaunch()
		}
		return mesos.TASK_KILLED, t.killedMessage(), reason
	}
	return mesos.TASK_FAILED, "ended for an unknown reason", nil
}

// killedMessage says why a task was ended, and what was not in good order then.
func (t *task) killedMessage() string {
	if t.exit != nil && t.exit.StopFailure != "" {
		return t.killed.message + "; " + t.exit.StopFailure
	}
	return t.killed.message
}

func killedDuringLaunch() *mesos.TaskStatus_Reason {
	r := mesos.REASON_TASK_KILLED_DURING_LAUNCH
	return &r
}

// describeExit says how a task ended, for people.
func describeExit(x *Exit) string {
	var text string
	switch {
	case x == nil || !x.Known:
		text = "ended, but nobody saw its exit code"
	case x.OOMKilled:
		text = "killed because it used more memory than its limit"
	case x.Signal != 0:
		text = fmt.Sprintf("ended by signal %d (%s)", x.Signal, syscall.Signal(x.Signal))
	default:
		text = fmt.Sprintf("exit code %d", x.Code)
	}
	if x != nil && x.Message != "" {
		text += ": " + x.Message
	}
	return text
}

// withOutput adds the last of the task's output to a message.
func withOutput(message, output string) string {
	output = strings.TrimSpace(output)
	if output == "" {
		return message
	}
	if cut := len(output) - messageOutput; cut > 0 {
		output = output[cut:]
		if _, rest, ok := strings.Cut(output, "\n"); ok {
			output = rest
		}
	}
	return strings.ToValidUTF8(message+"; last output:\n"+output, "?")
}

// taskReport is what the scheduler learns beyond the Mesos state.
func (e *Executor) taskReport(t *task) api.TaskReport {
	r := api.TaskReport{
		Version:     api.TaskSpecVersion,
		ContainerID: t.started.ContainerID, ImageDigest: t.started.ImageDigest, Pid: t.started.Pid,
		StartedAt: t.started.At, FinishedAt: t.finishedAt,
		IPs: t.addresses(), Output: strings.ToValidUTF8(t.output, "?"), Phases: t.phases,
	}
	if t.spec != nil {
		r.Kind, r.Ports = t.spec.Kind, t.spec.Ports
	}
	if t.run != nil {
		r.Sandbox = t.run.Sandbox
	}
	if r.Checks = t.checks; r.Checks == nil {
		r.Checks = e.health.Report(t.id)
	}
	if t.exit != nil {
		if t.exit.Known {
			code := t.exit.Code
			r.ExitCode = &code
		}
		r.Signal, r.OOMKilled = t.exit.Signal, t.exit.OOMKilled
	}
	return r
}

// addresses are those by which the task is reached: its own, the namespace
// owner's, or the node's; none for a container that has no address yet.
func (t *task) addresses() []string {
	switch {
	case len(t.started.IPs) > 0:
		return t.started.IPs
	case t.boxed && t.group.box.made != nil:
		return t.group.box.made.IPs
	case t.spec == nil || t.spec.NodeIP == "":
		return nil
	case !sharesNetwork(t.spec):
		return []string{t.spec.NodeIP}
	}
	return nil
}

// networkInfo describes the task's network for container_status. It is never
// left out: the agent would put its own address into an update without one.
func networkInfo(t *task) mesos.NetworkInfo {
	var info mesos.NetworkInfo
	for _, ip := range t.addresses() {
		protocol := mesos.IPv4
		if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
			protocol = mesos.IPv6
		}
		info.IPAddresses = append(info.IPAddresses, mesos.NetworkInfo_IPAddress{IPAddress: &ip, Protocol: &protocol})
	}
	if t.spec == nil {
		return info
	}
	name := strings.ToLower(t.spec.Network.Mode)
	if t.spec.Network.Name != "" {
		name = t.spec.Network.Name
	}
	info.Name = &name
	if sharesNetwork(t.spec) {
		for _, p := range t.spec.Ports {
			if p.HostPort > 0 {
				protocol := p.Protocol
				info.PortMappings = append(info.PortMappings, mesos.NetworkInfo_PortMapping{
					HostPort: uint32(p.HostPort), ContainerPort: uint32(p.ContainerPort), Protocol: &protocol,
				})
			}
		}
	}
	return info
}
