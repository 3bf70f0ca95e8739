// Package executor runs the tasks of one taskgroup for a Mesos agent: it
// subscribes with the agent, turns LAUNCH and LAUNCH_GROUP into containers and
// processes by way of its runtimes, reports what becomes of them, and exits
// when all is over and the agent knows it. cmd/tandem-executor is its only user.
//
// One event loop owns all state (Run). Whatever takes time runs beside it, can
// be cancelled, and comes back as a message; the life of a task is the table in
// machine.go. The package must never run a task that the agent did not launch,
// report success that nobody saw, or hand its own environment to a task.
package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
	"tandem/executor/agentlink"
	"tandem/executor/health"
)

// Options are what an Executor needs.
type Options struct {
	Config Config
	// Link is the connection to the agent; the Executor closes it.
	Link *agentlink.Client
	// Runtimes make the runtime of a kind when the first task of that kind
	// comes, so that an executor of processes never touches a container engine.
	// A function that failed is called again for the next task. A runtime that
	// has a Close method is closed at the end.
	Runtimes map[api.TaskKind]func() (Runtime, error)
	// Warm are the kinds whose runtimes are made at once and, if they are Warmable, get ready
	// for their first task while the executor subscribes.
	Warm []api.TaskKind
	// PublishAddress is where bridge ports are published; empty means all addresses.
	PublishAddress string
	// Abandoned tells whether something of a dead executor still waits to be
	// removed from this agent; ports may then become free by themselves. May be nil.
	Abandoned func() (bool, error)
	// Left returns the dead executors whose ids begin with a prefix and of whom
	// something still waits to be removed from this agent. May be nil.
	Left func(prefix string) ([]string, error)
	// Idle is called beside the loop when nothing is left to do but to wait for
	// the tasks, for example to give memory back. May be nil.
	Idle func()
	Log  *slog.Logger
}

// Executor is one executor of one framework on one agent.
type Executor struct {
	cfg  Config
	opts Options
	log  *slog.Logger

	inbox chan any
	// gone is closed when the loop has ended, so that nobody waits to post.
	gone   chan struct{}
	timers *timers

	// work is the context of everything beside the loop; it outlives the
	// context of Run, because stopping tasks is work too.
	work       context.Context
	cancelWork context.CancelFunc
	workers    sync.WaitGroup
	// beating is set while a heartbeat is under way.
	beating  atomic.Bool
	runtimes *runtimes
	health   *health.Monitor

	conn    connection
	updates updates
	// messages are those of the framework.
	messages messages

	tasks map[string]*task
	order []*task
	// late counts the removals that go on after the report of the end.
	late int

	// calm is running while all tasks run and no update waits; relaxed is set
	// once Idle was called for that.
	calm    *timer
	relaxed bool

	// closing is set once everything is to end; result is what Run returns.
	closing bool
	leaving bool
	result  error
}

// ErrAgentLost is wrapped by Run's error when the agent is gone for good.
var ErrAgentLost = errors.New("the agent is lost")

// idleLimit ends an executor that was never given a task. The agent always has
// one when it starts an executor, and says SHUTDOWN when that was killed since;
// but an event that is lost with its connection does not come again.
const idleLimit = time.Minute

// awaitTask gives the agent idleLimit from now to launch the first task.
func (e *Executor) awaitTask() {
	e.timers.stop(e.conn.idle)
	if len(e.tasks) > 0 {
		return
	}
	e.conn.idle = e.timers.after(idleLimit, func() {
		if len(e.tasks) == 0 {
			e.shutdown("no task came", fmt.Errorf("no task was launched within %s of subscribing", idleLimit))
		}
	})
}

// drainLimit bounds the wait for cancelled work at the very end.
const drainLimit = 2 * time.Second

// New returns an Executor; Run does the work.
func New(opts Options) *Executor {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	e := &Executor{
		cfg: opts.Config, opts: opts, log: opts.Log,
		inbox: make(chan any, 16), gone: make(chan struct{}),
		timers:   newTimers(),
		runtimes: &runtimes{make: opts.Runtimes, made: map[api.TaskKind]Runtime{}},
		tasks:    map[string]*task{},
	}
	e.work, e.cancelWork = context.WithCancel(context.Background())
	e.health = health.NewMonitor(health.Options{
		Context: e.work, Go: e.workers.Go, Log: opts.Log, Post: func(r health.Result) bool { return e.post(r) },
	})
	e.conn.agentID = opts.Config.AgentID
	e.updates.outbox = make(chan mesos.TaskStatus, 1)
	return e
}

// Run subscribes with the agent and runs what it launches. It returns nil when
// all tasks have ended and the agent has acknowledged that, or when the agent
// said SHUTDOWN; the end of ctx is taken as SHUTDOWN. Otherwise the error says
// why the executor had to give up; its tasks are stopped by then. Run may be
// called once.
func (e *Executor) Run(ctx context.Context) error {
	defer e.finish()
	e.workers.Add(1)
	go e.send()
	e.warm()
	e.connect()
	wake := time.NewTimer(0)
	defer wake.Stop()
	stop := ctx.Done()
	for !e.leaving {
		d, ok := e.timers.next()
		if check, due := e.health.Next(); due && (!ok || check < d) {
			d, ok = check, true
		}
		if ok {
			wake.Reset(d)
		} else {
			wake.Stop()
		}
		select {
		case m := <-e.inbox:
			e.handle(m)
		case <-wake.C:
			e.timers.fire()
			e.health.Run()
		case <-stop:
			stop = nil
			e.log.Info("told to end by a signal")
			e.shutdown("killed because the executor was told to end", nil)
		}
		e.flush()
		e.leaveWhenDone()
		e.idle()
	}
	return e.result
}

// finish ends all work beside the loop and waits for it, within drainLimit.
func (e *Executor) finish() {
	close(e.gone)
	e.cancelWork()
	done := make(chan struct{})
	go func() { e.workers.Wait(); close(done) }()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		e.log.Error("work did not end in time", "limit", drainLimit)
	}
	e.runtimes.close()
	e.opts.Link.Close()
}

// The messages of the inbox, beside those of connection.go and updates.go.
type (
	// stepResult is what became of a task's step.
	stepResult struct {
		task  *task
		step  uint64
		value any
		err   error
	}
	// waitResult is what Wait returned.
	waitResult struct {
		task *task
		exit Exit
		err  error
	}
	// progressText is news of a long preparation.
	progressText struct {
		task *task
		text string
	}
)

// post hands a message to the loop; it returns false when the loop has ended.
func (e *Executor) post(m any) bool {
	select {
	case e.inbox <- m:
		return true
	case <-e.gone:
		return false
	}
}

func (e *Executor) handle(m any) {
	switch m := m.(type) {
	case stepResult:
		e.stepEnded(m)
	case waitResult:
		e.waitEnded(m)
	case progressText:
		e.progress(m.task, m.text)
	case health.Result:
		e.checked(m)
	case opened:
		e.opened(m)
	case received:
		if m.generation == e.conn.generation {
			e.agentEvent(m.event)
		}
	case closed:
		e.closed(m)
	case sent:
		e.sent(m)
	case messageDone:
		e.messageDone(m)
	case restarting:
		e.restarting(m)
	case restarted:
		e.restarted(m)
	case boxEnded:
		e.boxGone(m)
	case lateRemoved:
		e.removedLate(m)
	default:
		e.log.Error("unknown message in the inbox", "type", fmt.Sprintf("%T", m))
	}
}

// agentEvent handles one event of the agent's stream.
func (e *Executor) agentEvent(ev *executor.Event) {
	switch ev.Type {
	case executor.Event_SUBSCRIBED:
		e.subscribed(ev.GetSubscribed())
	case executor.Event_LAUNCH:
		if l := ev.GetLaunch(); l != nil {
			e.launch([]mesos.TaskInfo{l.Task})
		}
	case executor.Event_LAUNCH_GROUP:
		if l := ev.GetLaunchGroup(); l != nil {
			e.launch(l.TaskGroup.Tasks)
		}
	case executor.Event_KILL:
		if k := ev.GetKill(); k != nil {
			e.killByAgent(k.TaskID.Value, k.KillPolicy)
		}
	case executor.Event_ACKNOWLEDGED:
		if a := ev.GetAcknowledged(); a != nil {
			e.acknowledged(a.TaskID.Value, a.UUID)
		}
	case executor.Event_MESSAGE:
		e.message(ev.GetMessage().GetData())
	case executor.Event_SHUTDOWN:
		e.log.Info("the agent says SHUTDOWN", "grace", e.cfg.ShutdownGrace)
		e.shutdown("killed because the agent shut the executor down", nil)
	case executor.Event_ERROR:
		msg := ev.GetError().GetMessage()
		e.log.Error("the agent says ERROR", "message", msg)
		e.shutdown("killed because the agent refused the executor: "+msg, fmt.Errorf("error from the agent: %s", msg))
	case executor.Event_HEARTBEAT:
		e.heartbeat()
	default:
		e.log.Warn("event of an unknown type, ignored", "type", ev.Type.String())
	}
}

func (e *Executor) killByAgent(id string, policy *mesos.KillPolicy) {
	t := e.tasks[id]
	if t == nil {
		e.log.Warn("KILL of a task that is not here, ignored", "task", id)
		return
	}
	cause := &killCause{message: "killed on request", planned: true}
	if d, ok := policyGrace(policy); ok {
		cause.grace = &d
	}
	e.log.Info("KILL", "task", id)
	e.kill(t, cause)
}

// kill tells a task to end. The first cause stays. The first may set any grace
// period; after that, and for a task that ends already, a kill can only shorten it.
func (e *Executor) kill(t *task, cause *killCause) {
	first := t.killed == nil && t.failure == nil && !t.ended
	if first {
		t.killed = cause
	}
	shorter := cause.grace != nil && (first || *cause.grace < t.grace())
	if shorter {
		t.hurry = cause.grace
		if !first {
			t.drainEnd = time.Now() // whoever shortens it does not want to wait
		}
	}
	if t.state == stateStopping && !shorter || e.holdBack(t) {
		return
	}
	e.deliver(t, eventKill)
}

// shutdown ends all tasks and then the executor, within the agent's grace period.
func (e *Executor) shutdown(why string, result error) {
	if e.closing {
		return
	}
	e.closing, e.result = true, result
	grace := e.cfg.ShutdownGrace
	// Removal, terminal updates and acknowledgements need time after the last task has ended.
	limit := grace - min(1500*time.Millisecond, grace*3/10)
	e.timers.after(grace-min(300*time.Millisecond, grace/10), func() {
		e.log.Error("leaving although not everything has ended", "grace", grace, "unacknowledged", len(e.updates.list))
		if e.result == nil {
			e.result = fmt.Errorf("not everything had ended and was acknowledged within %s of the agent's grace period; the rest is for the reaper", grace)
		}
		e.leaving = true
	})
	for _, t := range stopOrder(e.order) {
		g := min(limit, t.ownGrace())
		drain := limit - g
		e.kill(t, &killCause{message: why, grace: &g, planned: true, drainLimit: &drain})
	}
}

// calmFor is how long nothing must have happened before Idle is called.
const calmFor = time.Second

// idle calls Options.Idle once all tasks have been running for a moment.
func (e *Executor) idle() {
	calm := len(e.tasks) > 0 && len(e.updates.list) == 0
	for _, t := range e.order {
		calm = calm && (t.state == stateRunning || t.state == stateDone)
	}
	switch {
	case e.opts.Idle == nil:
	case !calm:
		e.timers.stop(e.calm)
		e.calm, e.relaxed = nil, false
	case e.calm == nil && !e.relaxed:
		e.calm = e.timers.after(calmFor, func() {
			e.calm, e.relaxed = nil, true
			e.workers.Go(e.opts.Idle)
		})
	}
}

// leaveWhenDone ends the loop once there is nothing left to do or to tell.
func (e *Executor) leaveWhenDone() {
	if len(e.tasks) == 0 && !e.closing || e.late > 0 {
		return
	}
	last := stateDone
	if e.conn.lost {
		last = stateEnded
	}
	for _, t := range e.order {
		if t.state < last {
			return
		}
	}
	e.leaving = true
}
