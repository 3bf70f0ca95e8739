package processdaemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// watchMain waits beside the loop for the end of the recorded main process.
// One that is gone already has its end told all the same.
func (t *task) watchMain() {
	id, key := t.rec.Main, t.rec.MainKey
	p, err := procid.Open(id)
	if err != nil && !errors.Is(err, procid.ErrGone) {
		t.log.Error("the main process cannot be watched; it counts as gone", "pid", id.Pid, "err", err)
	}
	t.main, t.watching = p, true
	t.awaitEnd(key, p, id, func(exit protocol.Exit) {
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
		t.log.Error("a command cannot be watched; it counts as gone", "pid", id.Pid, "err", err)
	}
	name := t.rec.Spec.Name
	t.awaitEnd(key, p, id, func(exit protocol.Exit) {
		if p != nil {
			p.Close()
		}
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

// awaitEnd tells how a process ended, unless the daemon ends before.
func (t *task) awaitEnd(key string, p *procid.Process, id procid.Identity, tell func(protocol.Exit)) {
	t.d.kids.track(id.Pid)
	t.work.Go(func() {
		defer t.d.kids.untrack(id.Pid)
		if p != nil && p.Wait(t.ctx) != nil {
			return
		}
		exit := t.d.parent.outcome(t.ctx, key, id, p)
		if t.ctx.Err() == nil {
			tell(exit)
		}
	})
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
