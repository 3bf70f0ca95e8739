package processdaemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/internal/cgroup"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// recover takes up what an earlier daemon left.
func (d *Daemon) recover() {
	recs, complete := d.store.load()
	d.files.claimRecorded(recs)
	known := map[string]bool{}
	for _, r := range recs {
		known[shortHash(r.Spec.ID)] = true
		if r.BootID != d.boot {
			afterReboot(r, d.boot)
			d.endBeforeReboot(r)
			if err := d.store.save(r, false); err != nil {
				// The next daemon resolves it in the same way.
				d.log.Error("the record cannot be written", "task", r.Spec.ID, "err", err)
			}
		}
		d.hold(&r.Spec)
		t := d.newTask(r)
		d.tasks[r.Spec.ID] = t
		d.log.Info("task taken up", "task", r.Spec.ID, "state", r.State)
		t.resume()
	}
	if !complete {
		// What no record seems to name may have one.
		return
	}
	d.forgetUnknown(known)
	for _, g := range d.unknownGroups(known) {
		// The record was removed or unreadable: nothing will ever ask for these processes again.
		d.wg.Go(func() { d.endGroup(g) })
	}
}

// unknownGroups are the control groups that no record names. Without control groups they
// are the sessions of what the keeper started for nobody that is known.
func (d *Daemon) unknownGroups(known map[string]bool) (unknown []*cgroup.Group) {
	groups, err := d.tree.Groups()
	if err != nil {
		d.log.Warn("control groups without a task cannot be looked for", "err", err)
	}
	for _, name := range groups {
		if !known[name] {
			d.log.Warn("killing a control group that no record names", "group", name)
			unknown = append(unknown, d.tree.Group(name))
		}
	}
	if d.tree.Mode() != cgroup.ModeSession {
		return unknown
	}
	c, err := d.parent.client(d.ctx)
	if err != nil {
		return unknown
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		if id, _, ok := strings.Cut(e.Key, "."); ok && !known[id] && !e.Ended && e.ID.Alive() {
			d.log.Warn("killing a session that no record names", "key", e.Key, "pid", e.ID.Pid)
			g := d.tree.Group(id)
			g.Lead(e.ID)
			unknown = append(unknown, g)
		}
	}
	return unknown
}

// endGroup kills what is in a group, and removes it.
func (d *Daemon) endGroup(g *cgroup.Group) {
	const limit = 10 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end) && d.ctx.Err() == nil; time.Sleep(pollMost) {
		if err := g.Kill(); err != nil {
			d.log.Error("cannot kill what no record names", "err", err)
		}
		if empty, err := g.Empty(); empty && err == nil {
			break
		}
	}
	if err := g.Remove(); err != nil {
		d.log.Error("what no record names cannot be removed", "err", err)
	}
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
	r.State, r.FinishedAt = ended, later(r.StartedAt, time.Now().UTC())
}

// endBeforeReboot takes over from the keeper's records how a process ended of
// which this daemon's record knows only that it is gone.
func (d *Daemon) endBeforeReboot(r *record) {
	if r.Exit == nil || r.Exit.Known || r.MainKey == "" {
		return
	}
	if e, err := d.parent.find(d.ctx, r.MainKey); err == nil && e.Known && e.ID == r.Main {
		r.Exit = &protocol.Exit{Known: true, Code: e.Code, Signal: e.Signal}
		r.FinishedAt = e.At
	}
}

// forgetUnknown drops what the keeper knows about tasks that were deleted.
func (d *Daemon) forgetUnknown(known map[string]bool) {
	c, err := d.parent.client(d.ctx)
	if err != nil {
		return
	}
	gone := map[string]bool{}
	for i := range c.Entries {
		if id, _, ok := strings.Cut(c.Entries[i].Key, "."); ok && !known[id] && (c.Entries[i].Ended || c.Entries[i].ID.BootID != d.boot) {
			gone[id+"."] = true
		}
	}
	for prefix := range gone {
		if err := d.parent.forget(d.ctx, prefix); err != nil && !errors.Is(err, keeper.ErrBusy) {
			d.log.Warn("the keeper did not forget a task", "err", err)
		}
	}
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
	t.d.rotator.add(r.Spec.Sandbox)
	if as, err := lookupAccount(r.Spec.User); err == nil {
		t.d.rotator.addPlace(r.Spec.Sandbox, r.Spec.LogPath, as)
	}
	if !r.Main.IsZero() && r.Exit == nil {
		t.watchMain()
		if t.main != nil {
			t.log.Info("process adopted", "pid", r.Main.Pid)
		}
	}
	t.takeUpReload()
	switch r.State {
	case starting:
		t.takeUpStart()
	case stopping:
		t.takeUpStop()
	case terminating, draining:
		// Perhaps it was recorded and not sent; twice is better than never.
		t.terminate()
	case killing:
		t.killAll()
	default:
		// The deadlines and the watchers do the rest.
	}
}

// takeUpStart resolves a start that the end of the daemon interrupted.
func (t *task) takeUpStart() {
	r := t.rec
	what := fmt.Sprintf("startCmd %q", r.Spec.StartCmd)
	switch {
	case !r.Main.IsZero():
		// Recorded by a daemon that was its parent; the end comes after the start.
		t.happen(message{ev: evMainSpawned})
		return
	case !r.Command.IsZero():
		t.watchCommand(r.StartKey, r.Command, evCommandOK, evCommandFailed, what)
		return
	}
	var e keeper.Entry
	err := keeper.ErrUnknown
	if r.StartKey != "" {
		e, err = t.d.parent.find(t.ctx, r.StartKey)
	} else {
		r.StartKey = t.newKey()
	}
	if errors.Is(err, keeper.ErrUnknown) {
		// Nothing was recorded, so nothing has run. What the kernel has not cleared
		// yet is killed.
		if err = t.clear(); err == nil {
			t.start()
			return
		}
	}
	if err != nil {
		t.happen(message{ev: evSpawnFailed, failure: fmt.Sprintf("process %q: an interrupted start cannot be resolved: %v", r.Spec.Name, err)})
		return
	}
	t.group.Lead(e.ID)
	t.started(e)
}

// takeUpStop goes on with a stop command: it runs, it has ended, or it was never started.
func (t *task) takeUpStop() {
	key := t.rec.StopKey
	if key == "" {
		return
	}
	e, err := t.d.parent.find(t.ctx, key)
	switch {
	case err == nil:
		t.watchCommand(key, e.ID, evStopCmdOK, evStopCmdFailed, t.stopCommandName())
	case errors.Is(err, keeper.ErrUnknown):
		t.runStopCommand()
	default:
		t.log.Error("the stop command cannot be followed; SIGTERM comes at its deadline", "err", err)
	}
}
