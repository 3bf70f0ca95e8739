package executor

import (
	"context"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// task is one task of the executor. Only the event loop touches it; work that
// runs beside the loop gets copies of what it needs.
type task struct {
	id    string
	info  mesos.TaskInfo
	group *group
	// spec is as the framework sent it; run has its variables expanded and is
	// nil until the task is prepared. foreign tells that spec was made from a
	// plain TaskInfo, whose texts are not ours to expand.
	spec    *api.TaskSpec
	foreign bool
	run     *Task
	runtime Runtime

	state state
	timer *timer

	// step is the number of the step under way; the result of an older one is
	// stale. cancelStep ends it early and is nil when there is none.
	step       uint64
	cancelStep context.CancelFunc
	// waitDone is closed once the result of Wait is in the inbox.
	waitDone  chan struct{}
	waitTries int
	// retries counts the pauses of the step under way.
	retries int

	// launched is set once Start was called: from then on there may be output.
	launched bool
	started  Started
	joined   *task

	// The first of these three that is set decides the terminal state.
	failure error
	killed  *killCause
	// hurry is the grace period of the last KILL that shortened it.
	hurry *time.Duration
	// ended is set when the task ended without having been told to.
	ended bool

	// healthy is what the checks say, nil while that is not known; checks is
	// their report once they have ended; checkFailed is set when one of them ended the task.
	healthy     *bool
	checks      []api.CheckReport
	checkFailed bool

	exit *Exit
	// unstoppable is why the runtime could not end the task.
	unstoppable error
	output      string
	finishedAt  time.Time

	// reported is the latest state told to the agent; progress is the latest
	// text told with TASK_STARTING, at progressAt.
	reported   mesos.TaskState
	hasReport  bool
	progress   string
	progressAt time.Time
	progressTo *timer
}

// killCause says why a task is told to end.
type killCause struct {
	// message is what the framework reads in the terminal update.
	message string
	reason  *mesos.TaskStatus_Reason
	// grace replaces the task's own grace period when it is not nil; the
	// shortest that was ever given counts.
	grace *time.Duration
}

// invalid is a failure that is the specification's fault: TASK_ERROR.
type invalid struct {
	err    error
	reason mesos.TaskStatus_Reason
}

func (e *invalid) Error() string { return e.err.Error() }
func (e *invalid) Unwrap() error { return e.err }

// name is what messages call the task.
func (t *task) name() string {
	if t.spec != nil && t.spec.Name != "" {
		return t.spec.Name
	}
	return t.id
}

// ending tells whether the task is on its way out, or out.
func (t *task) ending() bool { return t.state >= stateCancelling }

// grace is how long the task may take to end after it was asked to.
func (t *task) grace() time.Duration {
	if t.hurry != nil {
		return *t.hurry
	}
	return t.ownGrace()
}

// defaultGrace is what a task without a kill policy gets.
const defaultGrace = time.Second

func (t *task) ownGrace() time.Duration {
	if t.spec != nil && t.spec.KillPolicy.GracePeriodSeconds > 0 {
		// A period beyond any sense must not overflow when limits are added.
		return min(time.Duration(min(t.spec.KillPolicy.GracePeriodSeconds, 1<<30))*time.Second, 30*24*time.Hour)
	}
	if d, ok := policyGrace(t.info.KillPolicy); ok {
		return d
	}
	return defaultGrace
}

// policyGrace reads a Mesos kill policy; false when it says nothing.
func policyGrace(p *mesos.KillPolicy) (time.Duration, bool) {
	if p == nil || p.GracePeriod == nil {
		return 0, false
	}
	return min(max(0, time.Duration(p.GracePeriod.Nanoseconds)), 30*24*time.Hour), true
}

// succeeded tells whether the task ended by itself with exit code 0.
func (t *task) succeeded() bool {
	return t.ended && t.exit != nil && t.exit.Known && t.exit.Code == 0 && t.exit.Signal == 0
}

// failed tells whether the task's end is a failure rather than a success or a kill.
func (t *task) failed() bool {
	return t.failure != nil || t.unstoppable != nil || (t.ended && !t.succeeded())
}
