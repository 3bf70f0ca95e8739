package processdaemon

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"tandem/internal/procid"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// Restart asks for the end of what runs, as Stop does, and a new start with the
// same specification in the same directories. It returns at once. While a restart is
// under way, asking again changes nothing; a stop makes a stop of it.
func (d *Daemon) Restart(id string, grace time.Duration) (protocol.Status, error) {
	return d.stop(id, grace, true)
}

// Reload runs the reload command of a running task. It returns at once; the result
// is in the status. While one runs, asking again changes nothing.
func (d *Daemon) Reload(id string) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	return t.ask(message{reload: true})
}

// beginAgain clears what the record knows about the process that was.
func (t *task) beginAgain(now int64) {
	r := t.rec
	t.unwatchMain()
	t.early = nil
	r.Command, r.CommandUnseen = procid.Identity{}, false
	r.Pid, r.Exit, r.Failure, r.StartedAt, r.FinishedAt = 0, nil, "", time.Time{}, time.Time{}
	r.AliveBy, r.TermAt, r.KillAt, r.KillAgainAt = 0, 0, 0, 0
	r.Again, r.StopKey = false, ""
	r.Restarts++
	r.StartBy, r.StartKey = inTime(now, t.startTimeout()), t.newKey()
}

// reload runs the reload command beside the process.
func (t *task) reload() error {
	r := t.rec
	switch {
	case r.Spec.ReloadCmd == "":
		return fail(protocol.CodeConflict, "task %q has no reloadCmd; give it one, or send the signal that it reloads on", r.Spec.ID)
	case r.State != running:
		return fail(protocol.CodeConflict, "task %q is %s: only a running one is reloaded", r.Spec.ID, r.State)
	case r.Reload != nil && r.Reload.Running:
		return nil
	}
	number := 1
	if r.Reload != nil {
		number = r.Reload.Number + 1
	}
	r.Reload, r.ReloadKey = &protocol.Reload{Number: number, Running: true}, t.newKey()
	if err := t.save(); err != nil {
		t.reloaded(r.ReloadKey, err.Error())
		return fail(protocol.CodeInternal, "%v", err)
	}
	e, err := t.run(r.Spec.ReloadCmd, "reloadCmd", r.ReloadKey)
	if err != nil {
		t.reloaded(r.ReloadKey, err.Error())
		return nil
	}
	t.watchReload(e)
	return nil
}

// reloadTimeout is how long a reload command may take. While one runs no other one does.
const reloadTimeout = 5 * time.Minute

func (t *task) watchReload(e keeper.Entry) {
	p, err := procid.Open(e.ID)
	if err != nil && !errors.Is(err, procid.ErrGone) {
		t.log.Error("the reload command cannot be watched; it is tried again", "err", err)
	}
	began := time.Now()
	limit := t.d.reloadTimeout
	t.awaitEnd(e.Key, p, e.ID, true, limit, func(exit protocol.Exit) {
		failure := ""
		switch {
		case exit.Signal == int(syscall.SIGKILL) && time.Since(began) >= limit:
			failure = fmt.Sprintf("reloadCmd did not end within %v and was killed%s", limit, t.lastWords())
		case !exit.Known || exit.Code != 0 || exit.Signal != 0:
			failure = "reloadCmd: " + describeExit(exit) + t.lastWords()
		}
		t.post(message{reloaded: e.Key, failure: failure})
	})
}

// reloaded records how a reload ended.
func (t *task) reloaded(key, failure string) {
	r := t.rec
	if r.ReloadKey != key || r.Reload == nil {
		return
	}
	// A new value, because the old one is shown in statuses that others hold.
	r.Reload = &protocol.Reload{Number: r.Reload.Number, Failure: failure}
	t.takeRoom()
	if err := t.save(); err != nil {
		t.log.Error("the record cannot be written", "err", err)
	}
}

// takeUpReload follows a reload command that the end of the daemon interrupted.
func (t *task) takeUpReload() {
	r := t.rec
	if r.Reload == nil {
		return
	}
	if !r.Reload.Running {
		t.takeRoom() // the daemon may have ended before it did
		return
	}
	e, err := t.d.parent.find(t.ctx, r.ReloadKey)
	if err != nil {
		t.reloaded(r.ReloadKey, fmt.Sprintf("the process daemon was restarted before reloadCmd was run: %v; ask again", err))
		return
	}
	t.watchReload(e)
}

// runKillCommand runs the kill command, if there is one, and tells whether it runs.
// SIGKILL follows at the deadline whatever it does.
func (t *task) runKillCommand() bool {
	r := t.rec
	if r.Spec.KillCmd == "" || !t.watching {
		return false
	}
	if _, err := t.run(r.Spec.KillCmd, "killCmd", t.newKey()); err != nil {
		t.log.Warn("the kill command cannot be run; SIGTERM follows", "err", err)
		return false
	}
	return true
}
