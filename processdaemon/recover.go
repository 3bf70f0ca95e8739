package processdaemon

import (
	"errors"
	"fmt"
	"time"

	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// recover takes up what an earlier daemon left.
func (d *Daemon) recover() error {
	recs, err := d.store.load()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range recs {
		known[shortHash(r.Spec.ID)] = true
		if r.BootID != d.boot {
			afterReboot(r, d.boot)
			if err := d.store.save(r, false); err != nil {
				return err
			}
		}
		t := d.newTask(r)
		d.tasks[r.Spec.ID] = t
		d.log.Info("task taken up", "task", r.Spec.ID, "state", r.State)
		t.resume()
	}
	groups, err := d.tree.Groups()
	if err != nil {
		d.log.Warn("control groups without a task cannot be looked for", "err", err)
	}
	for _, name := range groups {
		if known[name] {
			continue
		}
		// The record was removed or unreadable: nothing will ever ask for these processes again.
		d.log.Warn("killing a control group that no record names", "group", name)
		g := d.tree.Group(name)
		d.wg.Go(func() {
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && d.ctx.Err() == nil; time.Sleep(pollMost) {
				if err := g.Kill(); err != nil {
					d.log.Error("cannot kill", "group", name, "err", err)
				}
				if empty, err := g.Empty(); empty && err == nil {
					break
				}
			}
			if err := g.Remove(); err != nil {
				d.log.Error("cannot remove", "group", name, "err", err)
			}
		})
	}
	return nil
}

// afterReboot ends a record of an earlier boot: none of its processes exists,
// and the pids in it belong to strangers.
func afterReboot(r *record, boot string) {
	r.BootID = boot
	r.Version++
	if r.State == ended || r.State == deleted {
		return
	}
	if r.Pid != 0 && r.Exit == nil {
		r.Exit = &protocol.Exit{}
	}
	if r.Pid == 0 {
		r.Failure = fmt.Sprintf("process %q: the agent was rebooted before its start was complete", r.Spec.Name)
	}
	r.State, r.FinishedAt = ended, time.Now().UTC()
}

// takeUp puts the loop's helpers to work for the state that the record is in:
// the first one for a new task, any one after a restart of the daemon.
func (t *task) takeUp() {
	r := t.rec
	t.group.Lead(r.Command)
	t.group.Lead(r.Main)
	switch r.State {
	case preparing:
		t.prepare()
		return
	case ready, ended:
		return
	case deleted:
		if err := t.remove(); err != nil {
			t.log.Error("deletion cannot be completed", "err", err)
		}
		return
	default:
	}
	t.takeUpMain()
	switch r.State {
	case starting:
		t.takeUpStart()
	case terminating:
		// Perhaps it was recorded and not sent; twice does no harm.
		t.terminate(t.main != nil && !r.MainShell)
	case killing:
		if err := t.group.Kill(); err != nil {
			t.log.Error("cannot kill the task; it is tried again", "err", err)
		}
	default:
		// The deadlines and the watchers do the rest.
	}
}

// takeUpMain finds the main process again. One that is gone ended while no
// daemon looked, so nobody knows how.
func (t *task) takeUpMain() {
	r := t.rec
	if r.Main.IsZero() || r.Exit != nil {
		return
	}
	p, err := procid.Open(r.Main)
	if err == nil {
		t.log.Info("process adopted", "pid", r.Main.Pid)
		t.watchMain(p)
		return
	}
	if !errors.Is(err, procid.ErrGone) {
		t.log.Error("the main process cannot be watched; it counts as gone", "pid", r.Main.Pid, "err", err)
	}
	if r.State == starting {
		// The end is told after the start.
		return
	}
	t.happen(message{ev: evMainExited, who: r.Main, exit: protocol.Exit{}})
}

// takeUpStart resolves a start that the end of the daemon interrupted.
func (t *task) takeUpStart() {
	r := t.rec
	switch {
	case !r.Main.IsZero():
		t.happen(message{ev: evMainSpawned})
		if t.main == nil {
			t.happen(message{ev: evMainExited, who: r.Main, exit: protocol.Exit{}})
		}
	case !r.Command.IsZero():
		p, err := procid.Open(r.Command)
		if err != nil {
			// It has ended; whether well, shows in the pid file.
			t.happen(message{ev: evCommandOK, unseen: true})
			return
		}
		t.watchCommand(p, evCommandOK, evCommandFailed, fmt.Sprintf("startCmd %q", r.Spec.StartCmd))
	default:
		// Nothing was recorded, so nothing has run: a process is recorded
		// before its first instruction. What the kernel has not cleared yet is killed.
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(pollFirst) {
			if empty, err := t.group.Empty(); err == nil && empty {
				// A group that was killed cannot be used again.
				if err := t.group.Remove(); err != nil {
					t.log.Error("cannot clear an interrupted start", "err", err)
					continue
				}
				t.start()
				return
			}
			if err := t.group.Kill(); err != nil {
				t.log.Error("cannot clear an interrupted start", "err", err)
			}
		}
		t.happen(message{ev: evSpawnFailed, failure: fmt.Sprintf("process %q: an interrupted start left processes that cannot be killed", r.Spec.Name)})
	}
}
