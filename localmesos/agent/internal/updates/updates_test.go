package updates

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"pgregory.net/rapid"

	"tandem/localmesos/agent/internal/group"
)

// fakeClock runs timers when a test advances it.
type fakeClock struct {
	now    time.Duration
	timers []*fakeTimer
}

type fakeTimer struct {
	at      time.Duration
	f       func()
	stopped bool
}

func (c *fakeClock) Func(d time.Duration, f func()) func() {
	t := &fakeTimer{at: c.now + d, f: f}
	c.timers = append(c.timers, t)
	return func() { t.stopped = true }
}

func (c *fakeClock) advance(d time.Duration) {
	end := c.now + d
	for {
		var next *fakeTimer
		for _, t := range c.timers {
			if !t.stopped && t.at <= end && (next == nil || t.at < next.at) {
				next = t
			}
		}
		if next == nil {
			c.now = end
			return
		}
		next.stopped = true
		c.now = next.at
		next.f()
	}
}

func (c *fakeClock) live() int {
	n := 0
	for _, t := range c.timers {
		if !t.stopped {
			n++
		}
	}
	return n
}

func update(task string, n byte, state mesos.TaskState) Update {
	return Update{FrameworkID: "f", ExecutorID: "x", Status: mesos.TaskStatus{TaskID: mesos.TaskID{Value: task}, State: &state, UUID: bytes.Repeat([]byte{n}, 16)}}
}

type fixture struct {
	m    *Manager
	c    *fakeClock
	sent []string
}

func newFixture() *fixture {
	f := &fixture{c: &fakeClock{}}
	f.m = New(f.c, slog.New(slog.DiscardHandler), &group.Group{}, func(u Update) {
		f.sent = append(f.sent, fmt.Sprintf("%s%d@%s", u.Status.TaskID.Value, u.Status.UUID[0], f.c.now))
	})
	return f
}

func (f *fixture) take() []string { s := f.sent; f.sent = nil; return s }

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: sent %v, not %v", what, got, want)
	}
}

var key = Key{"f", "t"}

func TestOneAtATimeUntilAcknowledged(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.m.Resume()
	for i, s := range []mesos.TaskState{mesos.TASK_STARTING, mesos.TASK_RUNNING, mesos.TASK_FINISHED} {
		if err := f.m.Add(update("t", byte(i+1), s), ""); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "first", f.take(), "t1@0s")
	f.c.advance(75 * time.Second)
	want(t, "retries", f.take(), "t1@10s", "t1@30s", "t1@1m10s")
	if got := f.m.Latest(key); got != mesos.TASK_FINISHED {
		t.Errorf("latest %s", got)
	}
	for _, wrong := range []byte{2, 9} {
		if _, _, ok, err := f.m.Ack(key, bytes.Repeat([]byte{wrong}, 16)); ok || err != nil {
			t.Errorf("a wrong acknowledgement: %v %v", ok, err)
		}
	}
	for i := byte(1); i <= 3; i++ {
		u, last, ok, err := f.m.Ack(key, bytes.Repeat([]byte{i}, 16))
		if !ok || err != nil || last != (i == 3) || u.Status.UUID[0] != i {
			t.Errorf("acknowledgement %d: %v %v %v", i, last, ok, err)
		}
		if _, _, ok, _ := f.m.Ack(key, bytes.Repeat([]byte{i}, 16)); ok {
			t.Errorf("acknowledgement %d counted twice", i)
		}
	}
	want(t, "after acknowledgements", f.take(), "t2@1m15s", "t3@1m15s")
	f.c.advance(time.Hour)
	want(t, "the end", f.take())
	if f.c.live() != 0 || len(f.m.Keys()) != 0 {
		t.Error("something is left")
	}
}

func TestRetriesAreAtMostTenMinutesApart(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.m.Resume()
	_ = f.m.Add(update("t", 1, mesos.TASK_RUNNING), "")
	f.c.advance(2 * time.Hour)
	n := len(f.sent)
	// 10, 20, 40, 80, 160, 320 s and then every 600 s.
	if n < 16 || n > 18 {
		t.Errorf("%d retries in two hours: %v", n, f.sent)
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.m.Resume()
	_ = f.m.Add(update("t", 1, mesos.TASK_RUNNING), "")
	if err := f.m.Add(update("t", 1, mesos.TASK_RUNNING), ""); !errors.Is(err, ErrDuplicate) {
		t.Errorf("pending: %v", err)
	}
	_, _, _, _ = f.m.Ack(key, bytes.Repeat([]byte{1}, 16))
	if err := f.m.Add(update("t", 1, mesos.TASK_RUNNING), ""); !errors.Is(err, ErrDuplicate) {
		t.Errorf("acknowledged: %v", err)
	}
	want(t, "all", f.take(), "t1@0s")
}

func TestPause(t *testing.T) {
	t.Parallel()
	f := newFixture()
	_ = f.m.Add(update("t", 1, mesos.TASK_RUNNING), "")
	_ = f.m.Add(update("s", 2, mesos.TASK_RUNNING), "")
	f.c.advance(time.Hour)
	want(t, "paused", f.take())
	f.m.Resume()
	want(t, "resumed", f.take(), "s2@1h0m0s", "t1@1h0m0s")
	f.m.Pause()
	f.c.advance(time.Hour)
	want(t, "paused again", f.take())
	f.m.Drop(Key{Framework: "f", Task: "s"})
	f.m.Resume()
	want(t, "dropped", f.take(), "t1@2h0m0s")
	f.m.Drop(Key{Framework: "f"})
	f.c.advance(time.Hour)
	want(t, "all dropped", f.take())
}

// recovered takes a log up that is about one task at most.
func recovered(t *testing.T, path string) (*fixture, Recovered) {
	t.Helper()
	f := newFixture()
	tasks, err := f.m.Recover(key.Framework, path)
	if err != nil || len(tasks) > 1 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	f.m.Resume()
	return f, append(tasks, Recovered{})[0]
}

// takeTask records the task that the updates here are about.
func takeTask(t *testing.T, m *Manager, id, path string) {
	t.Helper()
	if err := m.Take(&mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}}, "group", path); err != nil {
		t.Fatal(err)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.log")
	f := newFixture()
	takeTask(t, f.m, "t", path)
	for i, s := range []mesos.TaskState{mesos.TASK_STARTING, mesos.TASK_RUNNING, mesos.TASK_FINISHED} {
		if err := f.m.Add(update("t", byte(i+1), s), path); err != nil {
			t.Fatal(err)
		}
	}
	_, _, _, _ = f.m.Ack(key, bytes.Repeat([]byte{1}, 16))
	g, r := recovered(t, path)
	if len(r.Statuses) != 3 || r.Ended || r.Info.Name != "t" || r.Group != "group" {
		t.Errorf("%+v", r)
	}
	want(t, "the second is under way", g.take(), "t2@0s")
	if err := g.m.Add(update("t", 1, mesos.TASK_STARTING), path); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a known uuid: %v", err)
	}
	for _, n := range []byte{2, 3} {
		_, _, _, _ = g.m.Ack(key, bytes.Repeat([]byte{n}, 16))
	}
	h, r := recovered(t, path)
	if !r.Ended || len(r.Statuses) != 3 {
		t.Errorf("%+v", r)
	}
	want(t, "all is done", h.take())
}

func TestDamagedLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	f := newFixture()
	takeTask(t, f.m, "t", whole)
	head, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(3) {
		if err := f.m.Add(update("t", i+1, mesos.TASK_RUNNING), whole); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	first := len(head) + (len(b)-len(head))/3 // where the second update begins
	for name, c := range map[string]struct {
		data  []byte
		n     int
		aside bool
	}{
		"torn last line": {b[:len(b)-5], 2, false},
		"second flipped": {append(append(slices.Clone(b[:first+20]), b[first+20]^1), b[first+21:]...), 2, true},
		"task flipped":   {append(append(slices.Clone(b[:20]), b[20]^1), b[21:]...), 0, true},
		"zeroes":         {make([]byte, 100), 0, false},
		"empty":          {nil, 0, false},
		"last flipped":   {append(slices.Clone(b[:len(b)-4]), 'x', 'x', 'x', '\n'), 2, true},
		"updates twice":  {append(slices.Clone(b), b[len(head):]...), 6, false},
		"all twice":      {append(slices.Clone(b), b...), 6, true},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		g, r := recovered(t, path)
		if len(r.Statuses) != c.n {
			t.Errorf("%s: %d statuses, not %d", name, len(r.Statuses), c.n)
		}
		if aside, _ := filepath.Glob(path + ".damaged-*"); (len(aside) == 1) != c.aside {
			t.Errorf("%s: set aside: %v", name, aside)
		}
		// The log goes on.
		if r.Info.Name == "" {
			takeTask(t, g.m, "t", path)
		}
		if err := g.m.Add(update("t", 100, mesos.TASK_RUNNING), path); err != nil {
			t.Fatal(err)
		}
		if _, r := recovered(t, path); len(r.Statuses) != c.n+1 {
			t.Errorf("%s: %d statuses after one more", name, len(r.Statuses))
		}
	}
}

func TestUpdateThatCannotBeKeptIsNotTaken(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.m.Resume()
	if err := f.m.Add(update("t", 1, mesos.TASK_RUNNING), "/no/such/dir/log"); err == nil {
		t.Fatal("taken")
	}
	want(t, "nothing", f.take())
	if err := f.m.Add(update("t", 1, mesos.TASK_RUNNING), ""); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestModel drives a manager at random, with crashes, against what must hold:
// the framework sees each update once acknowledged never again, in order, and
// none that was taken is lost.
func TestModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		path := filepath.Join(dir, strconv.Itoa(run))
		defer os.Remove(path)
		var sent []byte
		c := &fakeClock{}
		start := func() *Manager {
			return New(c, slog.New(slog.DiscardHandler), &group.Group{}, func(u Update) { sent = append(sent, u.Status.UUID[0]) })
		}
		m := start()
		if err := m.Take(&mesos.TaskInfo{TaskID: mesos.TaskID{Value: "t"}}, "", path); err != nil {
			rt.Fatal(err)
		}
		m.Resume()
		taken, acked := byte(0), byte(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"add", "ack", "wrong", "time", "pause", "crash"}).Draw(rt, "step") {
			case "add":
				if err := m.Add(update("t", taken+1, mesos.TASK_RUNNING), path); err != nil {
					rt.Fatal(err)
				}
				taken++
			case "ack":
				_, _, ok, _ := m.Ack(key, bytes.Repeat([]byte{acked + 1}, 16))
				if ok != (acked < taken) {
					rt.Fatalf("acknowledging %d of %d: %v", acked+1, taken, ok)
				}
				if ok {
					acked++
				}
			case "wrong":
				if _, _, ok, _ := m.Ack(key, bytes.Repeat([]byte{acked}, 16)); ok {
					rt.Fatal("an old acknowledgement counted")
				}
			case "time":
				c.advance(11 * time.Second)
			case "pause":
				m.Pause()
				m.Resume()
			case "crash":
				m.Close()
				m = start()
				if _, err := m.Recover(key.Framework, path); err != nil {
					rt.Fatal(err)
				}
				m.Resume()
			}
			for _, n := range sent {
				if n != acked+1 && n != acked {
					rt.Fatalf("sent %d while %d was to be acknowledged", n, acked+1)
				}
			}
			sent = nil
			if u, ok := m.Front(key); ok != (acked < taken) || ok && u.Status.UUID[0] != acked+1 {
				rt.Fatalf("front %v %v with %d of %d acknowledged", u.Status.UUID, ok, acked, taken)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	u := update("t", 1, mesos.TASK_RUNNING)
	b, _ := encode(record{Executor: "x", Update: &u.Status})
	f.Add(b)
	f.Add([]byte("00000000 {}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decode(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil && (r.Update == nil) == (r.Ack == nil) {
			t.Error("neither an update nor an acknowledgement")
		}
	})
}
