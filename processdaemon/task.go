package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// task is the loop that owns one task's state. Everything that happens comes
// in as a message; what takes long runs beside the loop and reports back.
type task struct {
	d   *Daemon
	log *slog.Logger

	// These never change.
	hash       string
	id         string
	hashedID   string
	owner      string
	sandbox    string
	leased     bool
	hasStopCmd bool
	group      *cgroup.Group
	created    bool // by this daemon, just now
	mail       chan message
	done       chan struct{} // closed when the loop has ended
	ctx        context.Context
	cancel     context.CancelFunc
	work       sync.WaitGroup

	// Only the loop touches these.
	rec           *record
	main          *procid.Process
	watching      bool      // the end of the main process will be told
	terminated    bool      // SIGTERM was sent to all
	early         *message  // the end of a process that the pid file named, until another one may take its place
	named         time.Time // since when it has named the main process
	names         int       // how many it has named since the start
	cancelPrepare context.CancelFunc
	prepareDone   chan struct{} // closed when no preparation works on the disk any more
	fetching      bool          // a preparation has something to fetch
	deadline      *time.Timer
	poll          *time.Timer
	pollEvery     time.Duration
	removed       bool

	mu      sync.Mutex
	shown   protocol.Status
	changed chan struct{}
}

// message is an event with what belongs to it, or a request without one.
type message struct {
	ev    event
	reply chan error // nil when nobody waits

	grace   time.Duration   // of a stop
	exit    protocol.Exit   // of a main process
	who     procid.Identity // whose end this is
	failure string
	unseen  bool // the command ended and nobody saw how
	again   bool // of a stop: a restart is what is asked for
	reload  bool // a reload is asked for
	// reloaded is the key of a reload command that has ended; failure says how.
	reloaded string
	signal   syscall.Signal
	files    []protocol.File
	digests  []string // of a preparation
	limits   *protocol.Limits
}

var errTaskDone = errors.New("the task was deleted meanwhile")

const (
	pollFirst = time.Millisecond
	pollMost  = 25 * time.Millisecond
	killAgain = time.Second
	// pollTrial is the pause between two looks at the pid file of a process that runs.
	pollTrial = 250 * time.Millisecond
	// steady is for how long a pid file must have named the same live process, unless its
	// grace is shorter: what ends at once has never run.
	steady = 100 * time.Millisecond
	// leastSettle is how long a pid file may be missing when no grace was asked for.
	leastSettle = time.Second
)

func (d *Daemon) newTask(r *record) *task {
	ctx, cancel := context.WithCancel(d.ctx)
	t := &task{
		d: d, rec: r, hash: r.Hash, id: r.Spec.ID, hashedID: shortHash(r.Spec.ID), owner: r.Spec.Owner, sandbox: r.Spec.Sandbox,
		leased: r.Spec.Leased, hasStopCmd: r.Spec.StopCmd != "",
		log:  d.log.With("task", r.Spec.ID, "process", r.Spec.Name),
		mail: make(chan message, 1), done: make(chan struct{}), changed: make(chan struct{}), ctx: ctx, cancel: cancel,
		deadline: time.NewTimer(time.Hour), poll: time.NewTimer(time.Hour),
		group: d.tree.Group(shortHash(r.Spec.ID)),
	}
	t.deadline.Stop()
	t.poll.Stop()
	t.show()
	return t
}

// resume starts the loop in the record's state.
func (t *task) resume() {
	t.d.wg.Go(t.loop)
}

func (t *task) loop() {
	defer func() {
		t.cancel()
		t.work.Wait()
		if t.main != nil {
			t.main.Close()
		}
		if t.removed {
			t.d.mu.Lock()
			delete(t.d.tasks, t.rec.Spec.ID)
			t.d.mu.Unlock()
		}
		close(t.done)
	}()
	t.enter()
	t.takeUp()
	if t.created && t.rec.State == ready {
		t.getReady()
	}
	for !t.removed {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.mail:
			err := t.handle(m)
			if m.reply != nil {
				m.reply <- err
			}
		case <-t.deadline.C:
			t.happen(message{ev: evDeadline})
		case <-t.poll.C:
			t.look()
		}
	}
}

// ask sends a request to the loop and waits for its answer.
func (t *task) ask(m message) (protocol.Status, error) {
	m.reply = make(chan error, 1)
	select {
	case t.mail <- m:
	case <-t.done:
		return t.status(), t.goneErr()
	}
	select {
	case err := <-m.reply:
		return t.status(), err
	case <-t.done:
		// The loop may have answered and ended.
		select {
		case err := <-m.reply:
			return t.status(), err
		default:
			return t.status(), t.goneErr()
		}
	}
}

// goneErr says why the loop has ended.
func (t *task) goneErr() error {
	if t.d.ctx.Err() != nil {
		return errShutdown
	}
	return errTaskDone
}

// post sends an event from beside the loop.
func (t *task) post(m message) {
	select {
	case t.mail <- m:
	case <-t.ctx.Done():
	}
}

func (t *task) handle(m message) error {
	switch {
	case m.ev == evMainExited && t.mayBeReplaced(m):
		return nil
	case m.ev != "":
		return t.fire(m)
	case m.signal != 0:
		main := t.mainHandle()
		if main == nil || t.rec.Exit != nil {
			return fail(protocol.CodeConflict, "task %q has no running process to signal (state %s)", t.rec.Spec.ID, t.rec.State)
		}
		if err := main.Signal(m.signal); err != nil {
			return fail(protocol.CodeConflict, "task %q: %v", t.rec.Spec.ID, err)
		}
		return nil
	case m.files != nil:
		return t.putFiles(m.files)
	case m.limits != nil:
		return t.setLimits(*m.limits)
	case m.reload:
		return t.reload()
	case m.reloaded != "":
		t.reloaded(m.reloaded, m.failure)
	}
	return nil
}

// happen is fire for what nobody asked for, so that nobody hears an error.
func (t *task) happen(m message) {
	if err := t.fire(m); err != nil {
		t.log.Error("event failed", "event", m.ev, "err", err)
	}
}

// fire takes one event through the table: record what will be done, then do it.
func (t *task) fire(m message) error {
	r := t.rec
	from := r.State
	c := lookup(from, m.ev)
	if m.ev == evStart && t.rec.StartBy != 0 && from != deleted {
		// The answer to the first request was lost, perhaps with a daemon.
		return nil
	}
	if stops := m.ev == evStop || m.ev == evStopByCommand || m.ev == evKill; stops && !m.again && r.Again {
		// The last word counts, also where the end is under way already.
		r.Again = false
		if err := t.save(); err != nil {
			t.log.Error("the record cannot be written", "err", err)
		}
	}
	if m.again && from != running && (!r.Again || !pollsEmpty[from]) {
		return fail(protocol.CodeConflict, "task %q is %s: only one that runs is restarted; start it when it is ready, delete it and create it anew when it has ended", r.Spec.ID, from)
	}
	switch {
	case c.refuse != "":
		return fail(protocol.CodeConflict, "task %q is %s: %s", t.rec.Spec.ID, from, c.refuse)
	case c.ignore:
		return nil
	}
	if !t.note(from, c.next, m) {
		return nil
	}
	t.rec.State = c.next
	if err := t.save(); err != nil {
		if m.ev == evStart {
			// Nothing was done yet, so nothing need be: the caller hears why.
			t.rec.State, t.rec.StartBy = from, 0
			t.show()
			return fail(protocol.CodeInternal, "task %q was not started: %v; free disk space or mend the data directory", t.rec.Spec.ID, err)
		}
		// An end must not wait for a full disk.
		t.log.Error("the record cannot be written", "state", c.next, "err", err)
	}
	if c.next == ended {
		t.d.rotator.last(t.sandbox)
	}
	if t.d.calm != nil {
		t.d.calm.Reset(calmTime)
	}
	if from != c.next {
		t.log.Info("task changes", "from", from, "to", c.next, "event", m.ev)
	}
	t.enter()
	return t.act(c.act)
}

// note puts what an event brings into the record. It returns false for an event
// that is about a process which is not the task's any more.
func (t *task) note(from, next protocol.State, m message) bool {
	r, now := t.rec, bootNow()
	switch m.ev {
	case evStart:
		r.StartBy = inTime(now, t.startTimeout())
		r.StartKey = t.newKey()
	case evPrepared:
		r.Spec.URIs, _ = seal(r.Spec.URIs, nil)
		r.Places = nil
		for i, digest := range m.digests {
			r.Spec.URIs[i].Digest = digest
		}
		t.d.hold(&r.Spec)
	case evPrepareFailed, evSpawnFailed, evCommandFailed, evNotAlive:
		r.Failure = m.failure
	case evCommandOK:
		r.CommandUnseen, t.names = m.unseen, 0
		r.AliveBy = inTime(now, max(r.Spec.StartGrace, leastSettle))
	case evAlive, evMainSpawned:
		r.Pid = r.Main.Pid
		if m.ev == evAlive && (r.Spec.StartGrace <= 0 || now >= r.AliveBy) {
			r.AliveBy = 0
		}
		if r.StartedAt.IsZero() {
			r.StartedAt = t.d.now()
		}
	case evMainExited:
		if m.who != r.Main {
			return false
		}
		exit := m.exit
		if from == killing {
			exit.OOMKilled = false // the SIGKILL was ours, whatever became of its children before
		}
		r.Exit, r.FinishedAt = &exit, later(r.StartedAt, t.d.now())
		if from == settling || from == running && r.AliveBy != 0 {
			r.Failure = fmt.Sprintf("process %q: it ended within startGracePeriod (%v): %s", r.Spec.Name, r.Spec.StartGrace, describeExit(exit))
		}
	case evStop, evStopByCommand, evKill:
		t.keepEarlyEnd()
		t.noteStop(m, now)
	case evStopCmdFailed:
		r.StopFailure = m.failure
	case evDeadline:
		if from == stopping {
			r.StopFailure = t.stopTooSlow()
		}
		if from == preparing {
			r.Failure = fmt.Sprintf("process %q: what its uris name was not fetched and unpacked within %v; look at their server, or raise --prepare-timeout of tandem-processd", r.Spec.Name, t.d.opts.PrepareTimeout)
		}
		if from == starting {
			r.Failure = fmt.Sprintf("process %q: startCmd %q did not end within %v (startTimeout) and is killed; with a pidFile it must put the process into the background and exit, without pidFile it stays in the foreground%s",
				r.Spec.Name, r.Spec.StartCmd, t.startTimeout(), t.lastWords())
		}
	case evEmptyAgain:
		t.beginAgain(now)
	case evEmpty:
		if r.FinishedAt.IsZero() {
			r.FinishedAt = later(r.StartedAt, t.d.now())
		}
	default:
		// The others bring nothing.
	}
	if next == stopping && from != stopping {
		r.StopKey, r.StopFailure = t.newKey(), ""
	}
	if next == killing {
		r.KillAgainAt = now + int64(killAgain)
	}
	if next == ended && r.FinishedAt.IsZero() {
		r.FinishedAt = later(r.StartedAt, t.d.now())
	}
	return true
}

// newKey names the next command for the keeper.
func (t *task) newKey() string {
	t.rec.Starts++
	return fmt.Sprintf("%s.%d", t.hashedID, t.rec.Starts)
}

// noteStop records the deadlines of an end. A later request can only bring
// them nearer. With a stop command, three quarters of the grace are its own and
// the process's; then SIGTERM follows, for the rest.
func (t *task) noteStop(m message, now int64) {
	r := t.rec
	r.Again = m.again
	killAt := inTime(now, m.grace)
	if r.KillAt == 0 || killAt < r.KillAt {
		r.KillAt = killAt
		r.TermAt = inTime(now, m.grace/4*3)
	}
	switch r.State {
	case preparing, ready, starting, settling:
		r.Failure = fmt.Sprintf("process %q was stopped before its start was complete", r.Spec.Name)
	default:
	}
}

func describeExit(e protocol.Exit) string {
	switch {
	case !e.Known:
		return "nobody saw its exit code"
	case e.OOMKilled:
		return "it was killed for lack of memory; raise its memory limit"
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d (%s)", e.Signal, syscall.Signal(e.Signal))
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// save makes the record durable against crashes and shows the new status.
func (t *task) save() error {
	t.rec.Version++
	if t.rec.State == running {
		// The keeper's record says so already, so whoever waits for the start need
		// not wait for this one, too.
		t.show()
		return t.d.store.save(t.rec, false)
	}
	err := t.d.store.save(t.rec, false)
	t.show()
	return err
}

// enter arms the timers of the state.
func (t *task) enter() {
	t.deadline.Stop()
	if at := t.rec.deadline(); at != 0 {
		t.deadline.Reset(time.Duration(max(0, at-bootNow())))
	}
	t.poll.Stop()
	if pollsEmpty[t.rec.State] || t.awaitsPidFile() {
		t.pollEvery = pollFirst
		t.poll.Reset(t.pollEvery)
	}
}

// look is what the poll timer does: is the task empty, is there a pid file?
func (t *task) look() {
	most := pollMost
	if t.rec.State == running {
		most = pollTrial
	}
	t.pollEvery = min(2*t.pollEvery, most)
	t.poll.Reset(t.pollEvery)
	if t.awaitsPidFile() {
		t.followPidFile()
		return
	}
	if pollsEmpty[t.rec.State] && t.empty() {
		t.happen(message{ev: t.emptyEvent()})
	}
}

func (t *task) emptyEvent() event {
	if t.rec.Again {
		return evEmptyAgain
	}
	return evEmpty
}

// empty tells whether nothing runs and nothing is to be learned any more: while
// the end of the main process is still on its way to the loop, it is not.
func (t *task) empty() bool {
	if t.watching && t.rec.Exit == nil {
		return false
	}
	empty, err := t.group.Empty()
	if err != nil {
		t.log.Error("cannot tell whether anything of the task still runs", "err", err)
		return false
	}
	return empty
}

// show publishes the record as a status.
func (t *task) show() { t.publish("") }

func (t *task) publish(progress string) {
	r := t.rec
	s := protocol.Status{
		ID: r.Spec.ID, Owner: r.Spec.Owner, Name: r.Spec.Name, Phase: t.phase(), State: r.State, Version: r.Version, Pid: r.Pid,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Exit: r.Exit, Failure: r.Failure, Notes: slices.Clone(r.Notes), Progress: progress,
		StopFailure: r.StopFailure, Restarts: r.Restarts, Reload: r.Reload, Limits: r.Spec.Limits,
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown = s
	close(t.changed)
	t.changed = make(chan struct{})
	t.d.feed.publish(&s)
}

func (t *task) status() protocol.Status {
	s, _ := t.watchStatus()
	return s
}

// watchStatus returns the status and a channel that is closed when it changes.
func (t *task) watchStatus() (protocol.Status, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown, t.changed
}
