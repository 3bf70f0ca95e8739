package agent

import (
	"context"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/link"
)

// framework is a framework that has executors here.
type framework struct {
	id        string
	info      mesos.FrameworkInfo
	executors map[string]*executor
	completed []*executor
	// ending is set by TEARDOWN: executors are shut down, and nobody is told.
	ending bool
}

func (fw *framework) checkpoint() bool { return fw.info.GetCheckpoint() }

func (fw *framework) partitionAware() bool {
	return slices.ContainsFunc(fw.info.Capabilities, func(c mesos.FrameworkInfo_Capability) bool {
		return c.Type == mesos.FrameworkInfo_Capability_PARTITION_AWARE
	})
}

// executor is one run of an executor.
type executor struct {
	fw        *framework
	id        string
	info      mesos.ExecutorInfo
	generated bool
	run       store.Run
	directory string
	state     executorState
	// subscribed tells that it has subscribed at least once, with any agent.
	subscribed bool
	// awaited tells that an earlier agent started it, and that it has not
	// subscribed with this one; vanished that it ended between the two.
	awaited, vanished bool

	stream      *wire.Stream
	tasks       map[string]*task
	order       []*task // of tasks, oldest first
	forgotten   int     // of tasks, since the log was rewritten
	container   *container.Container
	pid         int
	cancel      context.CancelFunc // of the launch under way
	killed      bool               // by the agent
	termination *termination       // what its tasks are told when it is gone
	stopWait    func()             // timer of the (re)registration
	stopGrace   func()             // timer of the grace period
	stopBeat    func()             // timer of the next heartbeat
	onExit      []func()
}

// termination is why the agent ended an executor.
type termination struct {
	state   mesos.TaskState
	reason  mesos.TaskStatus_Reason
	message string
}

// task is a task of an executor.
type task struct {
	info     mesos.TaskInfo
	group    string // the same for the tasks of one LAUNCH_GROUP, else empty
	state    mesos.TaskState
	phase    taskPhase
	statuses []mesos.TaskStatus
	// kill is the last that was asked for; the executor gets it again when it
	// subscribes again, because it may have been lost with the connection.
	kill *link.Kill
	// inherited tells that the task was launched by an earlier agent.
	inherited bool
}

func (t *task) id() string { return t.info.TaskID.Value }

// executorState is the state of an executor.
type executorState string

const (
	registering executorState = "REGISTERING"
	running     executorState = "RUNNING"
	terminating executorState = "TERMINATING"
	terminated  executorState = "TERMINATED"
)

// executorEvent is what can happen to an executor.
type executorEvent string

const (
	subscribes executorEvent = "subscribes"
	isShutDown executorEvent = "is asked to end"
	isKilled   executorEvent = "is killed"
	exits      executorEvent = "exits"
)

// executorTable says what follows; what it does not say does not happen.
var executorTable = map[executorState]map[executorEvent]executorState{
	registering: {subscribes: running, isShutDown: terminating, isKilled: terminating, exits: terminated},
	running:     {subscribes: running, isShutDown: terminating, isKilled: terminating, exits: terminated},
	terminating: {isKilled: terminating, exits: terminated},
	terminated:  {},
}

// step moves the executor on. It returns false, and nothing changes, when the
// event has no meaning in this state.
func (e *executor) step(ev executorEvent) bool {
	next, ok := executorTable[e.state][ev]
	if ok {
		e.state = next
	}
	return ok
}

// taskPhase is how far the agent is with a task.
type taskPhase string

const (
	// queued: not yet handed to the executor.
	queued taskPhase = "queued"
	// launched: handed over, not terminal.
	launched taskPhase = "launched"
	// ended: terminal, and the framework has not acknowledged it.
	ended taskPhase = "ended"
	// done: terminal and acknowledged; history.
	done taskPhase = "done"
)

// taskEvent is what can happen to a task.
type taskEvent string

const (
	delivered    taskEvent = "delivered"
	undelivered  taskEvent = "not known to its executor"
	updated      taskEvent = "updated"
	endUpdated   taskEvent = "updated to a terminal state"
	acknowledged taskEvent = "terminal state acknowledged"
)

// taskTable says what follows; what it does not say does not happen.
var taskTable = map[taskPhase]map[taskEvent]taskPhase{
	queued:   {delivered: launched, updated: launched, endUpdated: ended},
	launched: {delivered: launched, undelivered: queued, updated: launched, endUpdated: ended},
	ended:    {acknowledged: done},
	done:     {},
}

func (t *task) step(ev taskEvent) bool {
	next, ok := taskTable[t.phase][ev]
	if ok {
		t.phase = next
	}
	return ok
}

// live tells that the task may run now or later.
func (t *task) live() bool { return t.phase == queued || t.phase == launched }

func (e *executor) key() string { return e.fw.id + "/" + e.id }

func (e *executor) addTask(t *task) {
	e.tasks[t.id()] = t
	e.order = append(e.order, t)
}

// busy tells that some task is live, settled that none waits for anything.
func (e *executor) busy() bool {
	return slices.ContainsFunc(e.order, (*task).live)
}

// everSentTask tells whether the executor has told anything of a task, so has had one.
func (e *executor) everSentTask() bool {
	return slices.ContainsFunc(e.order, func(t *task) bool {
		return slices.ContainsFunc(t.statuses, func(s mesos.TaskStatus) bool { return s.GetSource() == mesos.SOURCE_EXECUTOR })
	})
}

func (e *executor) settled() bool {
	return !slices.ContainsFunc(e.order, func(t *task) bool { return t.phase != done })
}

// trim forgets the oldest of the tasks that are history and returns their ids.
func (e *executor) trim() (gone []string) {
	over := -maxCompletedTasks
	for _, t := range e.order {
		if t.phase == done {
			over++
		}
	}
	e.order = slices.DeleteFunc(e.order, func(t *task) bool {
		if over <= 0 || t.phase != done {
			return false
		}
		over--
		gone = append(gone, t.id())
		delete(e.tasks, t.id())
		return true
	})
	return gone
}

// grace is the time between the executor's SHUTDOWN and its end.
func (e *executor) grace(f Flags) time.Duration {
	if p := e.info.ShutdownGracePeriod; p != nil && p.Nanoseconds > 0 {
		return time.Duration(p.Nanoseconds)
	}
	return f.ExecutorShutdownGracePeriod
}

func (e *executor) stopTimers() {
	for _, stop := range []func(){e.stopWait, e.stopGrace, e.stopBeat} {
		if stop != nil {
			stop()
		}
	}
	e.stopWait, e.stopGrace, e.stopBeat = nil, nil, nil
}

// findTask returns the task of a framework that is not history, if any has it.
func (fw *framework) findTask(id string) (*executor, *task) {
	for _, e := range fw.executors {
		if t := e.tasks[id]; t != nil && t.phase != done {
			return e, t
		}
	}
	return nil, nil
}
