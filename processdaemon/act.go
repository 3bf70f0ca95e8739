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

	"tandem/internal/atomicfile"
	"tandem/internal/cgroup"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
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
		t.start()
	case actWatchPidFile:
		t.readPidFile()
	case actCheckPidFile:
		t.checkPidFile()
	case actStopCommand:
		t.runStopCommand()
	case actTermMain:
		t.terminate(t.main != nil && t.rec.Exit == nil && !t.rec.MainShell)
	case actTermAll:
		if !t.emptied() {
			t.terminate(false)
		}
	case actKillAll:
		if !t.emptied() {
			if err := t.group.Kill(); err != nil {
				t.log.Error("cannot kill the task; it is tried again", "err", err)
			}
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
	t.happen(message{ev: evEmpty})
	return true
}

// terminate sends SIGTERM, and SIGCONT so that a stopped process can act on it.
func (t *task) terminate(mainOnly bool) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		var err error
		if mainOnly {
			err = t.main.Signal(sig)
		} else {
			err = t.group.Signal(sig)
		}
		if err != nil && !errors.Is(err, procid.ErrGone) {
			t.log.Error("cannot signal the task; it is killed at its deadline", "signal", sig, "err", err)
		}
	}
}

// prepare fetches beside the loop.
func (t *task) prepare() {
	ctx, cancel := context.WithCancel(t.ctx)
	t.cancelPrepare, t.prepareDone = cancel, make(chan struct{})
	spec := t.rec.Spec
	t.work.Go(func() {
		defer cancel()
		err := t.d.prepare(ctx, &spec, t.progress)
		close(t.prepareDone)
		if err != nil {
			t.post(message{ev: evPrepareFailed, failure: fmt.Sprintf("process %q: %v", spec.Name, err)})
			return
		}
		t.post(message{ev: evPrepared})
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
}

func (t *task) stopPreparing() {
	if t.cancelPrepare != nil {
		t.cancelPrepare()
	}
}

// start runs the start command.
func (t *task) start() {
	r := t.rec
	if r.Spec.PidFile != "" {
		// One from an earlier run would name a process that is long gone, or a stranger.
		if err := os.Remove(r.Spec.PidFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.log.Warn("an old pid file cannot be removed", "err", err)
		}
	}
	p, shell, err := t.run(r.Spec.StartCmd, "startCmd", func(id procid.Identity, shell bool) error {
		if r.Spec.PidFile != "" {
			r.Command = id
			return t.d.store.save(r, false)
		}
		// One record for two steps: it is let go right after this, and from then on it is running.
		r.Main, r.MainShell, r.StartedAt = id, shell, time.Now().UTC()
		next := *r
		next.State, next.Pid, next.Version = running, id.Pid, r.Version+1
		return t.d.store.save(&next, false)
	})
	if err != nil {
		r.Main, r.Command, r.StartedAt = procid.Identity{}, procid.Identity{}, time.Time{}
		t.happen(message{ev: evSpawnFailed, failure: fmt.Sprintf("process %q: %v", r.Spec.Name, err)})
		return
	}
	if r.Spec.PidFile == "" {
		r.MainShell = shell
		t.watchMain(p)
		t.saved = true
		t.happen(message{ev: evMainSpawned})
		return
	}
	t.watchCommand(p, evCommandOK, evCommandFailed, fmt.Sprintf("startCmd %q", r.Spec.StartCmd))
	t.happen(message{ev: evCommandSpawned})
}

// run starts a command of the artifact as the task's user in its group.
func (t *task) run(line, what string, record func(id procid.Identity, shell bool) error) (*procid.Process, bool, error) {
	spec := &t.rec.Spec
	wrap := func(err error) error { return fmt.Errorf("%s %q: %w", what, line, err) }
	argv, shell, err := argvOf(line)
	if err != nil {
		return nil, false, wrap(err)
	}
	as, err := lookupAccount(spec.User)
	if err != nil {
		return nil, false, err
	}
	if err := t.makeDirs(as); err != nil {
		return nil, false, err
	}
	l := launch{argv: argv, dir: spec.WorkPath, env: fullEnv(spec.Env, as.home), as: as, group: t.group}
	if l.path, err = findProgram(argv[0], l.dir, l.env); err != nil {
		return nil, false, wrap(err)
	}
	if l.out, err = openOutput(spec.Sandbox, "stdout"); err != nil {
		return nil, false, err
	}
	defer l.out.Close()
	if l.err, err = openOutput(spec.Sandbox, "stderr"); err != nil {
		return nil, false, err
	}
	defer l.err.Close()
	notes, err := t.group.Create(cgroup.Limits{CPUs: spec.Limits.CPUs, MemoryBytes: int64(spec.Limits.MemMB * (1 << 20))})
	if err != nil {
		return nil, false, err
	}
	t.rec.Notes = notes
	l.record = func(id procid.Identity) error {
		t.group.Lead(id)
		return record(id, shell)
	}
	// The child is tracked before a collector may look at it.
	t.d.kids.fork.RLock()
	defer t.d.kids.fork.RUnlock()
	p, err := l.spawn()
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without #!: a shell runs it itself, and so do we.
		l.argv, l.path, shell = append([]string{"/bin/sh", l.path}, argv[1:]...), "/bin/sh", true
		p, err = l.spawn()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the interpreter that its first line or its ELF header names is not on this agent", err)
	}
	if errors.Is(err, fs.ErrPermission) && as.cred != nil {
		err = fmt.Errorf("%w: user %q may not enter workPath %s or run the file", err, spec.User, spec.WorkPath)
	}
	if err != nil {
		return nil, false, wrap(err)
	}
	t.d.kids.track(p.Identity().Pid)
	t.work.Go(func() {
		// The watcher tracks it too; this one only bridges until then.
		defer t.d.kids.untrack(p.Identity().Pid)
		_ = p.Wait(t.ctx)
	})
	return p, shell, nil
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
	if err := os.MkdirAll(spec.WorkPath, 0o755); err != nil {
		return fmt.Errorf("workPath: %w", err)
	}
	if as.cred != nil {
		if err := os.Chown(spec.WorkPath, as.uid, as.gid); err != nil {
			return fmt.Errorf("workPath: %w", err)
		}
	}
	return nil
}

func (t *task) runStopCommand() {
	p, _, err := t.run(t.rec.Spec.StopCmd, "stopCmd", func(procid.Identity, bool) error { return nil })
	if err != nil {
		t.log.Warn("the stop command cannot be run; SIGTERM follows", "err", err)
		t.happen(message{ev: evStopCmdFailed})
		return
	}
	t.watchCommand(p, evStopCmdOK, evStopCmdFailed, "stopCmd")
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
	var errs []error
	for _, f := range t.rec.Files {
		errs = append(errs, atomicfile.Remove(f))
	}
	errs = append(errs, t.group.Remove())
	if err := errors.Join(errs...); err != nil {
		return fail(protocol.CodeInternal, "task %q is not wholly removed: %v", t.rec.Spec.ID, err)
	}
	if err := t.d.store.remove(t.rec.Spec.ID); err != nil {
		return fail(protocol.CodeInternal, "%v", err)
	}
	t.removed = true
	return nil
}
