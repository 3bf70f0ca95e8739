// Package taskstate says what a task's state means for those who keep account of
// tasks. Master, agent and scenarios must never differ in it.
package taskstate

import mesos "github.com/mesos/mesos-go/api/v1/lib"

// Terminal tells whether a task in this state will never run again. One that is
// TASK_UNREACHABLE or TASK_UNKNOWN may still.
func Terminal(s mesos.TaskState) bool {
	switch s {
	case mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_ERROR,
		mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE, mesos.TASK_GONE_BY_OPERATOR:
		return true
	default:
		return false
	}
}
