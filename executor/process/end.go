package process

import (
	"context"
	"time"
)

// end is what is known of a task's end without the daemon.
type end struct {
	// doubt is set while the daemon may start something of the task, because it was
	// asked to and has not said what came of it.
	doubt bool
	// alone ends, by endAlone, once Stop has ended the task without the daemon.
	alone    context.Context
	endAlone context.CancelFunc
}

// end returns what is known of a task's end. The lock is held.
func (r *Runtime) end(taskID string) *end {
	e := r.ends[taskID]
	if e == nil {
		e = &end{}
		e.alone, e.endAlone = context.WithCancel(context.Background())
		r.ends[taskID] = e
	}
	return e
}

func (r *Runtime) setDoubt(taskID string, doubt bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(taskID).doubt = doubt
}

// How long the removal of a task that has ended for certain may hold up the report of
// its end. A daemon that is at work takes milliseconds; that one does not answer is known
// once a stop had to do without it.
const (
	removePatience      = 3 * time.Second
	removePatienceAlone = 100 * time.Millisecond
)

// Ended tells whether it is certain, also without the daemon, that nothing of a task
// runs and nothing of it will be started, and how long Remove may hold up the report.
func (r *Runtime) Ended(taskID string) (patience time.Duration, certain bool) {
	r.mu.Lock()
	e, g := r.ends[taskID], r.groups[taskID]
	doubt, alone := e != nil && e.doubt, e != nil && e.alone.Err() != nil
	r.mu.Unlock()
	switch {
	case doubt, g != nil && !r.isOver(taskID):
		return 0, false
	case alone:
		return removePatienceAlone, true
	}
	return removePatience, true
}

// endedAlone notes that Stop has ended a task without the daemon, and ends the waiting for
// what that will say.
func (r *Runtime) endedAlone(taskID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(taskID).endAlone()
}

// untilEndedAlone returns a context that ends with the task, should Stop have to end that
// without the daemon, or has. done is to be called in the end.
func (r *Runtime) untilEndedAlone(ctx context.Context, taskID string) (limited context.Context, done func()) {
	r.mu.Lock()
	alone := r.end(taskID).alone
	r.mu.Unlock()
	limited, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(alone, cancel)
	return limited, func() {
		stop()
		cancel()
	}
}
