package processdaemon

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// startTimeout is how long the start command may take. One that stays in the
// foreground has started as soon as it exists.
func (t *task) startTimeout() time.Duration {
	if s := &t.rec.Spec; s.PidFile != "" && s.StartTimeout > 0 {
		return s.StartTimeout
	}
	return t.d.opts.StartTimeout
}

// awaitsPidFile tells whether the grace period of a start runs.
func (t *task) awaitsPidFile() bool {
	return t.rec.State == settling || t.rec.State == running && t.rec.AliveBy != 0
}

// followPidFile is what the poll timer does during the grace period.
func (t *task) followPidFile() {
	t.readPidFile()
	switch {
	case t.early != nil && t.empty():
		t.endedEarly()
	case t.rec.State == settling && t.watching && time.Since(t.named) >= steady:
		t.happen(message{ev: evAlive})
	}
}

// successors is how many processes a pid file may name in one start, for the keeper
// remembers each: a launcher has one successor, and that may have another one.
const successors = 100

// readPidFile takes up the main process as soon as the pid file names it, so
// that its early end is noticed when it happens. Until the grace period is over, a
// file that is replaced by one that names another process of the task is followed.
func (t *task) readPidFile() {
	r := t.rec
	if t.watching {
		if word, _, err := pidFileText(r.Spec.PidFile); err != nil || word == strconv.Itoa(r.Main.Pid) {
			return
		}
	}
	if t.names >= t.d.successors {
		return
	}
	p, err := t.findMain()
	if err != nil {
		return
	}
	t.names++
	id := p.Identity()
	p.Close()
	if t.watching {
		t.log.Info("the pid file names another process", "pid", id.Pid, "was", r.Main.Pid)
		t.unwatchMain()
	}
	t.early, t.named = nil, time.Now()
	if r.State == running {
		r.Pid = id.Pid
	}
	r.Main, r.MainKey = id, fmt.Sprintf("%s.m%d-%d", r.StartKey, id.Pid, id.StartTime)
	t.group.Lead(id)
	if err := t.d.parent.claim(t.ctx, r.MainKey, id); err != nil {
		t.log.Error("the keeper does not know the main process; its exit code may be unknown", "err", err)
	}
	t.watchMain()
	if err := t.save(); err != nil {
		t.log.Error("the record cannot be written", "err", err)
	}
	if r.Spec.StartGrace <= 0 && r.State == settling {
		t.happen(message{ev: evAlive})
	}
}

// mayBeReplaced keeps the end of a process that the pid file named for later, while
// others of the task run: a launcher writes its own pid, and its successor writes
// another one. It tells whether it did.
func (t *task) mayBeReplaced(m message) bool {
	if !t.awaitsPidFile() || m.who != t.rec.Main {
		return false
	}
	if empty, err := t.group.Empty(); empty || err != nil {
		return false
	}
	// It stays in the record: a task that runs has a main process.
	if t.main != nil {
		t.main.Close()
	}
	t.main, t.watching, t.early = nil, false, &m
	t.readPidFile()
	return true
}

// endedEarly tells the end that mayBeReplaced kept, if there is one: nothing has
// taken the place of that process.
func (t *task) endedEarly() bool {
	m := t.early
	if m == nil || t.watching {
		return false
	}
	t.early = nil
	t.happen(*m)
	return true
}

// keepEarlyEnd records the end that mayBeReplaced kept, when the task is stopped.
func (t *task) keepEarlyEnd() {
	if t.early == nil || t.watching {
		return
	}
	exit := t.early.exit
	t.rec.Exit, t.early = &exit, nil
}

// checkPidFile decides at the end of the grace period.
func (t *task) checkPidFile() {
	t.readPidFile()
	switch {
	case t.rec.State == running && (t.watching || !t.endedEarly()):
		// Whom the file names now is the task's for good.
		t.rec.AliveBy = 0
		t.enter()
		return
	case t.rec.State != settling:
		return
	case t.watching:
		t.happen(message{ev: evAlive})
		return
	case t.endedEarly():
		return
	}
	_, err := t.findMain()
	if err == nil {
		err = errors.New("its process came too late")
	}
	how := "succeeded"
	if t.rec.CommandUnseen {
		how = "ended while the process daemon was restarted, nobody knows how"
	}
	t.happen(message{ev: evNotAlive, failure: fmt.Sprintf(
		"process %q: pidFile %s: %v (%v after startCmd %q %s); let the start command write the pid of the process, raise startGracePeriod, or leave pidFile out if it stays in the foreground%s",
		t.rec.Spec.Name, t.rec.Spec.PidFile, err, max(t.rec.Spec.StartGrace, leastSettle).Round(time.Millisecond), t.rec.Spec.StartCmd, how, t.lastWords())})
}
