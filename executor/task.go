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
	// since is when the state began, phases are those before it with their times.
	since  time.Time
	phases []api.TaskPhase

	// step is the number of the step under way; the result of an older one is
	// stale. cancelStep ends it early and is nil when there is none.
	step       uint64
	cancelStep context.CancelFunc
	// waitDone is closed once the result of Wait is in the inbox.
	waitDone  chan struct{}
	waitTries int
	// waitErr is why the latest Wait could not tell.
	waitErr error
	// retries counts the pauses of the step under way.
	retries int

	// launched is set once Start was called: from then on there may be output.
	launched bool
	started  Started
	// boxed is set for a task in the group's sandbox.
	boxed bool
	// announced is set once TASK_RUNNING is told; held while the end of a sidecar
	// waits for that of the main tasks.
	announced bool
	held      *deferred
	// drainEnd is when the drain delay is over; zero before it has begun.
	drainEnd time.Time

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
	// late is set when the removal goes on after the report.
	late       bool
	finishedAt time.Time

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
	// planned asks for the task's drain delay; drainLimit bounds it where it is not nil.
	planned    bool
	drainLimit *time.Duration
	// complete tells that the task has done what it was for: TASK_FINISHED.
	complete bool
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

// drain is how long a task that is ended as planned goes on before its stop signal.
func (t *task) drain() time.Duration {
	if t.spec == nil || t.killed == nil || !t.killed.planned || t.ended || t.failure != nil || !t.announced {
		return 0
	}
	const most = 24 * time.Hour
	d := min(time.Duration(min(max(0, t.spec.KillPolicy.DrainSeconds), 1<<30))*time.Second, most)
	if l := t.killed.drainLimit; l != nil {
		d = min(d, *l)
	}
	return d
}

// drainLeft is what is left of the drain delay, which begins with the first call.
func (t *task) drainLeft() time.Duration {
	d := t.drain()
	if d <= 0 {
		return 0
	}
	if t.drainEnd.IsZero() {
		t.drainEnd = time.Now().Add(d)
	}
	return time.Until(t.drainEnd)
}

// await lets a while pass unless the task has ended before.
func await(ctx context.Context, ended <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
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
