package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
	"tandem/internal/safepath"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// act does what a transition asks for. What comes of it goes through the
// table as another event.
func (t *task) act(a action) error {
	switch a {
	case actNone:
	case actCancelPrepare:
		t.stopPreparing()
	case actSpawn:
		if t.rec.Restarts > 0 {
			// A group that was killed cannot be used again.
			if err := t.clear(); err != nil {
				t.happen(message{ev: evSpawnFailed, failure: fmt.Sprintf("process %q: %v", t.rec.Spec.Name, err)})
				return nil
			}
		}
		t.start()
	case actWatchPidFile:
		t.readPidFile()
	case actCheckPidFile:
		t.checkPidFile()
	case actStopCommand:
		t.runStopCommand()
	case actTerm:
		if !t.runKillCommand() && !t.emptied() {
			t.terminate()
		}
	case actTermRest:
		// A second SIGTERM would be taken by many programs for "at once".
		if !t.emptied() && !t.terminated {
			t.terminate()
		}
	case actKillAll:
		if !t.emptied() {
			t.killAll()
		}
	case actRemove:
		return t.remove()
	}
	return nil
}

// emptied goes on at once when there is nothing to wait for.
func (t *task) emptied() bool {
	if !t.empty() {
		return false
	}
	t.happen(message{ev: t.emptyEvent()})
	return true
}

// terminate sends SIGTERM, and SIGCONT so that a stopped process can act on it: to all of
// the task, because a script that waits for what it runs passes nothing on. The main
// process is the first, so that it does not take the end of its workers for a crash.
func (t *task) terminate() {
	t.terminated = true
	main := t.mainHandle()
	if in, err := t.group.Contains(t.rec.Main.Pid); in || err != nil || t.rec.Exit != nil {
		main = nil
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		err := t.group.SignalFrom(t.rec.Main.Pid, sig)
		if main != nil {
			// It has left the group, as root can.
			if mainErr := main.Signal(sig); !errors.Is(mainErr, procid.ErrGone) {
				err = errors.Join(err, mainErr)
			}
		}
		if err != nil {
			t.log.Error("cannot signal the task; it is killed at its deadline", "signal", sig, "err", err)
		}
	}
}

// killAll sends SIGKILL to the group and to the main process, which may have left it.
func (t *task) killAll() {
	err := t.group.Kill()
	if main := t.mainHandle(); main != nil && t.rec.Exit == nil {
		if mainErr := main.Signal(syscall.SIGKILL); !errors.Is(mainErr, procid.ErrGone) {
			err = errors.Join(err, mainErr)
		}
	}
	if err != nil {
		t.log.Error("cannot kill the task; it is tried again", "err", err)
	}
}

// prepare fetches beside the loop.
func (t *task) prepare() {
	ctx, cancel := context.WithCancel(t.ctx)
	t.cancelPrepare, t.prepareDone = cancel, make(chan struct{})
	spec, places := t.rec.Spec, t.rec.Places
	if t.fetching = len(spec.URIs) > 0; t.fetching {
		t.show()
	}
	t.work.Go(func() {
		defer cancel()
		digests, err := t.d.prepare(ctx, &spec, places, t.progress)
		close(t.prepareDone)
		if err != nil {
			t.post(message{ev: evPrepareFailed, failure: fmt.Sprintf("process %q: %v", spec.Name, err)})
			return
		}
		t.post(message{ev: evPrepared, digests: digests})
	})
}

// progress shows what the preparation is at.
func (t *task) progress(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shown.State != preparing {
		return
	}
	t.shown.Progress = text
	t.d.feed.publish(&t.shown)
}

func (t *task) stopPreparing() {
	if t.cancelPrepare != nil {
		t.cancelPrepare()
	}
}

// start runs the start command.
func (t *task) start() {
	r := t.rec
	t.terminated = false
	if r.Spec.PidFile != "" {
		if err := removeOldPidFile(r.Spec.PidFile, t.uid()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.log.Warn("what is in the place of the pid file stays", "path", r.Spec.PidFile, "err", err)
		}
	}
	const tries = 3
	var err error
	for range tries {
		var e keeper.Entry
		if e, err = t.run(r.Spec.StartCmd, "startCmd", r.StartKey); err == nil {
			t.started(e)
			return
		}
		if t.ctx.Err() != nil {
			// The next daemon asks whether it runs.
			return
		}
		if !errors.Is(err, errSpawnLost) {
			break
		}
		t.log.Warn("the start is tried again", "err", err)
		if err = t.clear(); err != nil {
			break
		}
	}
	t.happen(message{ev: evSpawnFailed, failure: fmt.Sprintf("process %q: %v", r.Spec.Name, err)})
}

// started goes on after the start command was started, now or by an earlier daemon.
func (t *task) started(e keeper.Entry) {
	r := t.rec
	if r.Spec.PidFile != "" {
		r.Command = e.ID
		t.watchCommand(r.StartKey, e.ID, evCommandOK, evCommandFailed, fmt.Sprintf("startCmd %q", r.Spec.StartCmd))
		t.happen(message{ev: evCommandSpawned})
	} else {
		r.Main, r.MainKey, r.StartedAt = e.ID, r.StartKey, t.d.now()
		t.watchMain()
		t.happen(message{ev: evMainSpawned})
	}
	if err := failpoint.Inject("processdaemon/recorded"); err != nil {
		t.log.Error("failpoint", "err", err)
	}
}

// clear kills what an interrupted start left in the task's group: a process that
// the kernel has not ended yet, though nothing of it has run.
func (t *task) clear() error {
	const limit = 5 * time.Second
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(pollFirst) {
		var empty bool
		if empty, err = t.group.Empty(); err == nil && empty {
			// A group that was killed cannot be used again.
			return t.group.Remove()
		}
		err = errors.Join(err, t.group.Kill())
	}
	return fmt.Errorf("an interrupted start left processes that cannot be killed: %w", err)
}

// makeDirs makes sure that the directories of the task exist.
func (t *task) makeDirs(as *account) error {
	spec := &t.rec.Spec
	if err := os.MkdirAll(spec.Sandbox, 0o755); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	st, err := os.Stat(spec.WorkPath)
	switch {
	case err == nil && !st.IsDir():
		return fmt.Errorf("workPath %s is not a directory", spec.WorkPath)
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("workPath: %w", err)
	}
	// Below the workspace the daemon is at home; elsewhere a missing directory
	// is more likely a mistake in the artifact.
	if rel, err := filepath.Rel(t.d.opts.Workspace, spec.WorkPath); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return fmt.Errorf("workPath %s: no such directory; create it, or choose one below ${work_base_dir}", spec.WorkPath)
	}
	root, err := safepath.OpenRoot(spec.WorkPath, true)
	if err != nil {
		return fmt.Errorf("workPath: %w", err)
	}
	defer root.Close()
	if as.cred == nil {
		return nil
	}
	// By its handle: by its name, a link that somebody put there meanwhile would be followed.
	self, err := root.Open(".")
	if err == nil {
		err = errors.Join(self.Chown(as.uid, as.gid), self.Close())
	}
	if err != nil {
		return fmt.Errorf("workPath: %w", err)
	}
	return nil
}

func (t *task) runStopCommand() {
	e, err := t.run(t.rec.Spec.StopCmd, "stopCmd", t.rec.StopKey)
	if err != nil {
		if t.ctx.Err() != nil {
			return
		}
		t.log.Warn("the stop command cannot be run; SIGTERM follows", "err", err)
		t.happen(message{ev: evStopCmdFailed, failure: fmt.Sprintf("process %q: %v", t.rec.Spec.Name, err)})
		return
	}
	t.watchCommand(t.rec.StopKey, e.ID, evStopCmdOK, evStopCmdFailed, t.stopCommandName())
}

func (t *task) stopCommandName() string { return fmt.Sprintf("stopCmd %q", t.rec.Spec.StopCmd) }

// stopTooSlow says that the stop command has not ended the process in its time. Whether it
// hangs or the process does cannot be told from here.
func (t *task) stopTooSlow() string {
	r := t.rec
	// As noteStop has it: three quarters of the grace.
	had := time.Duration((r.KillAt - r.TermAt) * 3)
	return fmt.Sprintf("process %q: %s had not ended it after %v, three quarters of the grace, and SIGTERM was sent%s",
		r.Spec.Name, t.stopCommandName(), had.Round(time.Millisecond), t.lastWords())
}

// remove takes away what the task left, and then its record.
func (t *task) remove() error {
	if t.cancelPrepare != nil {
		t.cancelPrepare()
		<-t.prepareDone
	}
	if err := failpoint.Inject("processdaemon/removing"); err != nil {
		return fail(protocol.CodeInternal, "%v", err)
	}
	t.keepLogs()
	var errs []error
	errs = append(errs, t.removeFiles())
	errs = append(errs, t.group.Remove())
	if err := errors.Join(errs...); err != nil {
		return fail(protocol.CodeInternal, "task %q is not wholly removed: %v", t.rec.Spec.ID, err)
	}
	// Before the record: keys that no record names are dropped by the next daemon, too.
	if err := t.d.parent.forget(t.ctx, t.hashedID+"."); err != nil {
		t.log.Warn("the keeper did not forget the task", "err", err)
	}
	if err := t.d.store.remove(t.rec.Spec.ID); err != nil {
		return fail(protocol.CodeInternal, "%v", err)
	}
	if t.d.fetcher != nil {
		t.d.fetcher.Release(t.rec.Spec.ID)
	}
	t.d.rotator.drop(t.sandbox)
	t.removed = true
	return nil
}
