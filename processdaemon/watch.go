package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// watchMain waits beside the loop for the end of the recorded main process.
// One that is gone already has its end told all the same; one that cannot be watched, for
// want of file descriptors perhaps, runs, as far as anybody knows.
func (t *task) watchMain() {
	id, key := t.rec.Main, t.rec.MainKey
	p, err := procid.Open(id)
	if err != nil && !errors.Is(err, procid.ErrGone) {
		t.log.Error("the main process cannot be watched; it is tried again", "pid", id.Pid, "err", err)
	}
	t.main, t.watching = p, true
	t.awaitEnd(key, p, id, false, 0, func(exit protocol.Exit) {
		exit.OOMKilled = exit.Signal == int(syscall.SIGKILL) && t.group.OOMKills() > 0
		t.post(message{ev: evMainExited, who: id, exit: exit})
	})
}

// unwatchMain forgets the main process, whose end is not to be told any more.
func (t *task) unwatchMain() {
	if t.main != nil {
		t.main.Close()
	}
	t.main, t.watching = nil, false
	t.rec.Main, t.rec.MainKey = procid.Identity{}, ""
}

// watchCommand waits beside the loop for the end of a start or stop command.
func (t *task) watchCommand(key string, id procid.Identity, ok, failed event, what string) {
	p, err := procid.Open(id)
	if err != nil && !errors.Is(err, procid.ErrGone) {
		t.log.Error("a command cannot be watched; it is tried again", "pid", id.Pid, "err", err)
	}
	name := t.rec.Spec.Name
	t.awaitEnd(key, p, id, true, 0, func(exit protocol.Exit) {
		switch {
		case !exit.Known:
			// What counts is whether the process lives, and that is looked at next.
			t.post(message{ev: ok, unseen: true})
		case exit.Code == 0 && exit.Signal == 0:
			t.post(message{ev: ok})
		default:
			t.post(message{ev: failed, failure: fmt.Sprintf("process %q: %s: %s%s", name, what, describeExit(exit), t.lastWords())})
		}
	})
}

// awaitEnd tells how a process ended, unless the daemon ends before. It closes p when
// that is its own, and kills the process with its group after the limit, 0 for none.
func (t *task) awaitEnd(key string, p *procid.Process, id procid.Identity, own bool, limit time.Duration, tell func(protocol.Exit)) {
	t.d.kids.track(id.Pid)
	t.work.Go(func() {
		defer t.d.kids.untrack(id.Pid)
		if p != nil && own {
			defer p.Close()
		}
		if p != nil && limit > 0 {
			defer time.AfterFunc(limit, func() { t.killCommand(p) }).Stop()
		}
		p, opened, ended := awaitGone(t.ctx, p, id)
		if opened {
			defer p.Close()
		}
		if !ended {
			return
		}
		exit := t.d.parent.outcome(t.ctx, key, id, p)
		if t.ctx.Err() == nil {
			tell(exit)
		}
	})
}

// watchPause is the pause before a process is watched again that could not be.
const watchPause = time.Second

// awaitGone waits for the end of a process by a handle on it, or, with none, by one that it
// opens itself: own. ended is false when the context or the handle was closed before.
func awaitGone(ctx context.Context, p *procid.Process, id procid.Identity) (handle *procid.Process, own, ended bool) {
	for {
		err := error(nil)
		if p == nil {
			p, err = procid.Open(id)
			own = err == nil
		}
		if errors.Is(err, procid.ErrGone) {
			return nil, false, true
		}
		if err == nil {
			if err = p.Wait(ctx); err == nil {
				return p, own, true
			}
		}
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return p, own, false
		}
		select {
		case <-ctx.Done():
			return p, own, false
		case <-time.After(watchPause):
		}
	}
}

// mainHandle returns the handle on the main process, nil when there is none to signal.
func (t *task) mainHandle() *procid.Process {
	if t.main == nil && t.watching && t.rec.Exit == nil {
		// It could not be opened before.
		if p, err := procid.Open(t.rec.Main); err == nil {
			t.main = p
		}
	}
	return t.main
}

// killCommand ends a command that hangs, with what it forked.
func (t *task) killCommand(p *procid.Process) {
	if err := p.SignalGroup(syscall.SIGKILL); err != nil && !errors.Is(err, procid.ErrGone) && !errors.Is(err, os.ErrClosed) {
		t.log.Error("a command that hangs cannot be killed", "pid", p.Identity().Pid, "err", err)
	}
}

// lastWords returns the end of what the task wrote to stderr, otherwise to stdout, for
// messages.
func (t *task) lastWords() string {
	const most = 512
	for _, name := range []string{"stderr", "stdout"} {
		if text, err := tailOutput(filepath.Join(t.rec.Spec.Sandbox, name), most); err == nil && text != "" {
			return "; its last words: " + text
		}
	}
	return ""
}
