package processdaemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tandem/processdaemon/protocol"
)

// moves is a log that keeps the changes of state which a task tells of.
type moves struct {
	slog.Handler
	mu   sync.Mutex
	list []string
}

func (m *moves) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "task changes" {
		return nil
	}
	text := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { text[a.Key] = a.Value.String(); return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, fmt.Sprintf("%s on %s to %s", text["from"], text["event"], text["to"]))
	return nil
}

func (m *moves) Enabled(context.Context, slog.Level) bool { return true }

// TestWalkEveryCell puts a task into each state, with a process where one runs in it, and lets
// each event happen: the record on disk says what the table says, a refusal and an ignored event change nothing.
func TestWalkEveryCell(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, s := range states {
		for _, e := range events {
			walk(t, d, s, e)
		}
	}
}

func walk(t *testing.T, d *Daemon, s protocol.State, e event) {
	t.Helper()
	id := fmt.Sprintf("%s-%s", s, e)
	failed := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s × %s: %s", s, e, fmt.Sprintf(format, args...))
	}
	sp := spec(d, id, "sleep 60")
	sp.StopCmd = "sleep 60"
	if s == settling {
		sp.PidFile = filepath.Join(sp.WorkPath, "pid")
	}
	far := bootNow() + int64(1e12)
	r := &record{Format: recordFormat, Spec: sp, State: s, Version: 7, BootID: d.boot, StartKey: shortHash(id) + ".1", Starts: 1,
		AliveBy: far, TermAt: far, KillAt: far, KillAgainAt: far}
	x := d.newTask(r) // without its loop: this is it
	log := &moves{}
	x.log = slog.New(log)
	if s == starting {
		r.StartBy = far
	}
	runs := e == evMainSpawned && s == starting || s == settling || s == running || pollsEmpty[s]
	if runs {
		p, err := x.run("sleep 60", "startCmd", r.StartKey)
		if err != nil {
			t.Fatal(err)
		}
		r.Main, r.MainKey, r.Pid = p.ID, r.StartKey, p.ID.Pid
		if s == settling {
			write(t, sp.PidFile, strconv.Itoa(r.Pid), 0o644)
		}
	}
	if err := d.store.save(r, false); err != nil {
		t.Fatal(err)
	}
	defer func() {
		x.cancel()
		x.work.Wait()
		if err := x.clear(); err != nil {
			failed("%v", err)
		}
		if err := d.store.remove(id); err != nil {
			failed("%v", err)
		}
		if err := d.parent.forget(context.Background(), shortHash(id)+"."); err != nil {
			eventually(t, "the keeper forgets", func() bool { return d.parent.forget(context.Background(), shortHash(id)+".") == nil })
		}
	}()

	err := x.fire(message{ev: e, who: r.Main, failure: "it failed"})
	c := lookup(s, e)
	stored, readErr := readRecord(d.store.path(id))
	switch {
	case c.refuse != "":
		if !isCode(err, protocol.CodeConflict) || !strings.Contains(err.Error(), c.refuse) {
			failed("answer %v, want %q", err, c.refuse)
		}
		fallthrough
	case c.ignore:
		if c.ignore && err != nil {
			failed("%v", err)
		}
		if readErr != nil || stored.State != s || stored.Version != 7 || r.Version != 7 || len(log.list) > 0 {
			failed("it changed: %+v, %v, %v", stored, readErr, log.list)
		}
		return
	}
	if err != nil {
		failed("%v", err)
	}
	if c.next != s {
		if want := fmt.Sprintf("%s on %s to %s", s, e, c.next); len(log.list) == 0 || log.list[0] != want {
			failed("moves %v, want %q", log.list, want)
		}
	} else if len(log.list) > 0 && c.act == actNone {
		failed("it moved: %v", log.list)
	}
	if c.act == actRemove {
		if !x.removed || readErr == nil {
			failed("the record is still there")
		}
		return
	}
	if readErr != nil || stored.State != r.State || stored.Version <= 7 {
		failed("the record says %+v, %v; the task is %s", stored, readErr, r.State)
	}
	if name := deadlineOf[r.State]; name != "" && r.deadline() == 0 && r.State != running {
		failed("%s has no %s", r.State, name)
	}
	switch c.act {
	case actSpawn:
		if r.State != running || r.Main.IsZero() {
			failed("the start command does not run: %s", r.State)
		}
	case actStopCommand:
		if pids, err := x.group.Pids(); err != nil || len(pids) != 2 {
			failed("the stop command does not run beside the process: %v, %v", pids, err)
		}
	case actTerm, actTermRest, actKillAll:
		eventually(t, fmt.Sprintf("%s × %s: the process ends", s, e), func() bool { return !r.Main.Alive() })
	default:
		if runs && c.next != ended && !r.Main.Alive() {
			failed("the process was ended")
		}
	}
}
