package scheduler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/restart"
	"tandem/scheduler/wire"
)

// maxKillRetry bounds the pauses between KILLs of one taskgroup.
const maxKillRetry = time.Minute

// killsBeforeShutdown is how many KILLs an executor may leave unanswered.
const killsBeforeShutdown = 2

// generation is a digest of what a taskgroup is made of. A change of anything
// else (the number of instances, the restart policy, constraints) leaves
// running taskgroups alone.
func generation(a *api.Application, restarts int) string {
	b, err := json.Marshal(struct {
		Template api.PodTemplate
		Kill     api.KillPolicy
		Labels   map[string]string
		Restarts int
	}{a.Spec.Template, a.KillPolicy, a.Metadata.Labels, restarts})
	if err != nil {
		panic(err) // our own types: a programming error
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// decideAll brings every workload that was touched a step nearer to what is declared.
func (l *loop) decideAll(now time.Time) {
	for ref, slots := range l.slots {
		for _, sl := range slots {
			if at := l.nextLook(sl); !at.IsZero() {
				if at.After(now) {
					l.wakeAt(at)
				} else {
					l.touched[ref] = true
				}
			}
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(l.touched), refLess) {
		l.decide(ref, now)
	}
	clear(l.touched)
}

// nextLook is when time alone changes what is to be done with a slot.
func (l *loop) nextLook(sl *slot) time.Time {
	switch g := sl.Group; {
	case g == nil:
		return sl.NotBefore
	case g.ended():
		return time.Time{}
	case !g.Unreachable.IsZero() && !l.waitsFor(sl):
		return g.Unreachable.Add(l.s.o.ReplaceUnreachable)
	case g.Kill != "":
		return sl.killAgain
	}
	return time.Time{}
}

func (l *loop) decide(ref api.Ref, now time.Time) {
	o := l.objects[ref]
	if l.suspended && o != nil && !o.Deleting {
		l.decideSuspended(o, ref, now)
		return
	}
	want := 0
	if o != nil && o.app != nil && !o.Deleting {
		want = o.app.Spec.Instance
	}
	for i := range want {
		if l.slots[ref][i] == nil {
			l.adopt(&slot{slotRecord: slotRecord{Owner: ref, Index: i}, key: slotKey(ref, i), since: now})
		}
	}
	for _, sl := range l.sortedSlots(ref) {
		l.decideSlot(o, sl, sl.Index < want, now)
	}
	if o != nil && !o.Deleting {
		l.replaceOutdated(o, now)
	}
	if len(l.slots[ref]) == 0 {
		delete(l.slots, ref)
		if o != nil && o.Deleting {
			delete(l.objects, ref)
			l.drop(objectKey(ref))
			l.event(ref, "info", "Deleted", "nothing of it is left")
		}
	}
}

// decideSlot handles one instance. wanted tells whether it is to exist.
func (l *loop) decideSlot(o *object, sl *slot, wanted bool, now time.Time) {
	if g := sl.Group; g != nil && !g.ended() {
		l.decideLive(sl, wanted, now)
	}
	if g := sl.Group; g != nil && g.ended() {
		l.decideEnded(o, sl, wanted, now)
	}
	if sl.Group != nil {
		sl.pending = false
		return
	}
	if !wanted {
		l.removeSlot(sl)
		return
	}
	if sl.NotBefore.After(now) {
		sl.pending = false
		l.wakeAt(sl.NotBefore)
		return
	}
	sl.NotBefore = time.Time{}
	if !sl.pending {
		sl.pending, sl.tried, sl.since = true, false, now
	}
}

func (l *loop) removeSlot(sl *slot) {
	l.forgetTasks(sl)
	delete(l.slots[sl.Owner], sl.Index)
	l.drop(sl.key)
}

func (l *loop) forgetTasks(sl *slot) {
	if sl.Group == nil {
		return
	}
	for i := range sl.Group.Tasks {
		delete(l.tasks, sl.Group.Tasks[i].ID)
		delete(l.unanswered, sl.Group.Tasks[i].ID)
	}
}

func (l *loop) decideLive(sl *slot, wanted bool, now time.Time) {
	g := sl.Group
	switch {
	case !wanted && g.Kill != killSurplus:
		l.kill(sl, killSurplus, now)
	case g.Kill == "" && g.broken():
		l.kill(sl, killRest, now)
		// The executor ends the others by itself; this is for one that does not.
		sl.killAgain = now.Add(l.s.o.KillRetry)
	}
	if !g.Unreachable.IsZero() && !l.waitsFor(sl) {
		end := g.Unreachable.Add(l.s.o.ReplaceUnreachable)
		if end.After(now) {
			l.wakeAt(end)
		} else {
			// Should it come back, it is unknown then, and is killed.
			l.giveUp(sl, mesoslib.TASK_LOST, fmt.Sprintf("its agent %s was unreachable for %v", g.Hostname, l.s.o.ReplaceUnreachable), now)
			return
		}
	}
	if g.Kill == "" {
		return
	}
	if sl.killAgain.After(now) {
		l.wakeAt(sl.killAgain)
		return
	}
	for _, t := range g.inStopOrder() {
		if !terminal(t.State) {
			l.calls = append(l.calls, mesos.Kill(t.ID, g.AgentID, time.Duration(g.Grace)*time.Second))
		}
	}
	if sl.kills++; sl.kills > killsBeforeShutdown {
		// The executor does not answer: its agent ends it.
		l.calls = append(l.calls, mesos.Shutdown(g.ID, g.AgentID))
	}
	if sl.killEvery == 0 {
		// A task may take its whole grace; only then is a KILL likely to be lost.
		sl.killEvery = l.s.o.KillRetry + time.Duration(g.Grace+g.Drain)*time.Second
	} else {
		sl.killEvery = min(2*sl.killEvery, max(maxKillRetry, sl.killEvery))
	}
	sl.killAgain = now.Add(sl.killEvery)
	l.wakeAt(sl.killAgain)
}

// kill records that a taskgroup is to end; decideLive sends the calls, and repeats them.
func (l *loop) kill(sl *slot, why string, now time.Time) {
	g := sl.Group
	g.Kill = why
	g.derive(now)
	sl.killAgain, sl.killEvery, sl.kills = time.Time{}, 0, 0
	l.saveSlot(sl)
	l.event(sl.Owner, "info", "Killing", fmt.Sprintf("%s on %s (%s)", l.groupName(sl), g.Hostname, why))
}

// waitsFor tells whether an unreachable taskgroup is waited for without an end:
// when nothing would take its place, giving it up helps nobody.
func (l *loop) waitsFor(sl *slot) bool {
	o := l.objects[sl.Owner]
	return o != nil && o.app != nil && restart.Kind(o.app.RestartPolicy.Policy) == restart.Never &&
		sl.Group.Kill == "" && !sl.Group.Running.IsZero()
}

// giveUp ends a taskgroup that is not there any more, as far as anybody knows.
func (l *loop) giveUp(sl *slot, state mesoslib.TaskState, why string, now time.Time) {
	g := sl.Group
	for i := range g.Tasks {
		t := &g.Tasks[i]
		delete(l.unanswered, t.ID)
		if !terminal(t.State) {
			t.State, t.Message, t.Changed = state, why, now
		}
	}
	g.derive(now)
	g.Message = why
	l.saveSlot(sl)
}

// decideEnded applies the restart policy, or takes the instance away.
func (l *loop) decideEnded(o *object, sl *slot, wanted bool, now time.Time) {
	g := sl.Group
	switch {
	case !wanted:
		l.removeSlot(sl)
		sl.Group = nil
		l.event(sl.Owner, "info", "Removed", fmt.Sprintf("%s has ended: %s", l.groupName(sl), g.State))
		return
	case g.Kill == killReplace, g.Kill == killSurplus, sl.Done && g.Generation != o.generation:
		// Surplus and wanted: the instance is wanted again since it was killed.
		l.clear(sl)
		sl.startAfresh()
		l.saveSlot(sl)
		return
	case sl.Done:
		return
	}
	var ran time.Duration
	if !g.Running.IsZero() {
		ran = g.Ended.Sub(g.Running)
	}
	p := o.app.RestartPolicy
	d := restart.Policy{
		Kind: restart.Kind(p.Policy), Interval: time.Duration(p.Interval) * time.Second,
		Backoff: time.Duration(p.Backoff) * time.Second, MaxTimes: p.MaxTimes,
	}.Decide(cause(g), sl.Attempts, ran)
	sl.Attempts = d.Attempts
	if !d.Restart {
		sl.Done = true
		l.saveSlot(sl)
		l.event(sl.Owner, "info", "Ended", fmt.Sprintf("%s: %s; %s", l.groupName(sl), g.State, d.Reason))
		return
	}
	if g.State == wire.Lost && g.Running.IsZero() {
		// What was lost before it ran may be lost again at once: offers go stale in a row.
		d.Delay = max(d.Delay, time.Second)
	}
	if g.State != wire.Lost && p.HostRetainTime > 0 {
		sl.Host, sl.Retain = g.Hostname, now.Add(time.Duration(p.HostRetainTime)*time.Second)
	}
	sl.Restarts++
	l.s.metrics.restarts.Inc()
	sl.NotBefore = now.Add(d.Delay)
	l.event(sl.Owner, "warning", "Restarting", fmt.Sprintf("%s on %s: %s; attempt %d in %v%s", l.groupName(sl), g.Hostname, d.Reason, d.Attempts, d.Delay, suffix(g.why())))
	l.clear(sl)
	l.saveSlot(sl)
}

// startAfresh forgets what the restart policy has counted.
func (s *slotRecord) startAfresh() {
	s.Done, s.Attempts, s.NotBefore, s.Host, s.Retain = false, 0, time.Time{}, "", time.Time{}
}

func suffix(s string) string {
	if s == "" {
		return ""
	}
	return ": " + clip(s, 300)
}

// clip shortens a text to n bytes, and does not cut a character in two.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// clear makes room for the next taskgroup.
func (l *loop) clear(sl *slot) {
	l.forgetTasks(sl)
	sl.last, sl.Group = sl.Group, nil
	sl.pending = false
}

func cause(g *groupRecord) restart.Cause {
	switch {
	case g.invalid():
		return restart.Invalid
	case g.State == wire.Finished:
		return restart.Finished
	case g.State == wire.Lost:
		return restart.Lost
	default:
		// Killed by somebody else counts as a failure: it was to run.
		return restart.Failed
	}
}

// replaceOutdated ends taskgroups of an older generation, one at a time: the
// next only when every other instance stands as it should. Those that do not
// run cost nothing and go at once.
func (l *loop) replaceOutdated(o *object, now time.Time) {
	if o.app == nil {
		return
	}
	steady := true
	var oldest *slot
	for _, sl := range l.sortedSlots(o.ref) {
		g := sl.Group
		switch {
		case sl.Done:
		case g == nil || g.Kill != "":
			steady = false
		case g.Generation == o.generation:
			steady = steady && g.ready()
		case g.State != wire.Running:
			l.kill(sl, killReplace, now)
			l.decideLive(sl, true, now)
			steady = false
		case oldest == nil:
			oldest = sl
		}
	}
	if steady && oldest != nil {
		l.kill(oldest, killReplace, now)
		l.decideLive(oldest, true, now)
	}
}

func (l *loop) groupName(sl *slot) string { return fmt.Sprintf("%s-%d", sl.Owner.Name, sl.Index) }
