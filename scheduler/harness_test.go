package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/scheduler/mesos"
	"tandem/scheduler/store"
	"tandem/scheduler/wire"
)

// memStore is a Store in memory that outlives its schedulers.
type memStore struct {
	epoch    store.Epoch
	revision uint64
	records  map[string]store.Record
	// fail is returned by the next commits when it is set.
	fail error
}

func newMemStore() *memStore { return &memStore{records: map[string]store.Record{}} }

func (s *memStore) Claim(context.Context) (store.Epoch, error) { s.epoch++; return s.epoch, nil }

func (s *memStore) Load(context.Context) ([]store.Record, uint64, error) {
	var out []store.Record
	for _, r := range s.records {
		out = append(out, r)
	}
	return out, s.revision, nil
}

func (s *memStore) Commit(_ context.Context, e store.Epoch, ops []store.Op) (uint64, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	if e != s.epoch {
		return 0, store.ErrDeposed
	}
	for _, op := range ops {
		if s.records[op.Key].Version != op.Expect {
			return 0, fmt.Errorf("%s: %w", op.Key, store.ErrConflict)
		}
	}
	s.revision++
	for _, op := range ops {
		if op.Value == nil {
			delete(s.records, op.Key)
		} else {
			s.records[op.Key] = store.Record{Key: op.Key, Value: op.Value, Version: s.revision}
		}
	}
	return s.revision, nil
}

func (s *memStore) Close() error { return nil }

// slots returns the stored instances.
func (s *memStore) slots() map[string]slotRecord {
	out := map[string]slotRecord{}
	for key, r := range s.records {
		if strings.HasPrefix(key, prefixSlot) {
			var rec slotRecord
			if json.Unmarshal(r.Value, &rec) == nil {
				out[key] = rec
			}
		}
	}
	return out
}

func (s *memStore) taskState(id string) (mesoslib.TaskState, bool) {
	for _, r := range s.records {
		if !strings.Contains(string(r.Value), id) {
			continue
		}
		var rec slotRecord
		if json.Unmarshal(r.Value, &rec) != nil || rec.Group == nil {
			continue
		}
		for i := range rec.Group.Tasks {
			if rec.Group.Tasks[i].ID == id {
				return rec.Group.Tasks[i].State, true
			}
		}
	}
	return 0, false
}

func (s *memStore) hasTask(id string) bool { _, ok := s.taskState(id); return ok }

// tb is what a test and a property test have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// harness is a loop on a fake clock with a store that stays and a cluster in memory.
type harness struct {
	tb
	now   time.Time
	store *memStore
	m     *sim
	l     *loop
	o     Options
}

func newHarness(t tb, agents int) *harness {
	h := &harness{tb: t, now: time.Unix(1_700_000_000, 0), store: newMemStore(), m: newSim(agents)}
	h.m.fatalf, h.m.store, h.m.now = t.Fatalf, h.store, func() time.Time { return h.now }
	h.o = Options{ExecutorCommand: "exec tandem-executor", Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now }}
	h.o.setDefaults()
	h.restart()
	return h
}

// connected is a harness that is subscribed and has settled.
func connected(t tb, agents int) *harness {
	h := newHarness(t, agents)
	h.m.subscribe(h.l.FrameworkID())
	h.settle()
	return h
}

// restart starts a scheduler on the store; the one before is dropped where it stands.
func (h *harness) restart() {
	h.Helper()
	s := &Scheduler{o: h.o, log: h.o.Logger, store: h.store, metrics: newMetrics(), out: h.m}
	l, err := newLoop(s)
	if err != nil {
		h.Fatalf("start on the store: %v", err)
	}
	s.loop, h.l = l, l
}

// handle hands an event on and makes a round.
func (h *harness) handle(e mesos.Event) {
	h.Helper()
	select {
	case <-h.l.wake: // left by an earlier input
	default:
	}
	done := make(chan error, 1)
	go func() { done <- h.l.Handle(context.Background(), e) }()
	<-h.l.wake
	h.round()
	if err := <-done; err != nil {
		h.Fatalf("handle %T: %v", e, err)
	}
}

func (h *harness) round() {
	h.Helper()
	if err := h.l.round(context.Background()); err != nil {
		h.Fatalf("round: %v", err)
	}
}

// deliver hands on the event that waits longest.
func (h *harness) deliver() bool {
	if len(h.m.events) == 0 {
		return false
	}
	e := h.m.events[0]
	h.m.events = h.m.events[1:]
	h.handle(e)
	return true
}

// settle hands on all that waits, offers included, until nothing comes any more. A storm fails the test.
func (h *harness) settle() {
	h.Helper()
	h.round()
	for n := 0; ; n++ {
		if n > 2000 {
			h.Fatalf("events and calls do not end: a storm")
		}
		if h.deliver() {
			continue
		}
		if h.m.allocate(); len(h.m.events) == 0 {
			return
		}
	}
}

// advance lets time pass, second by second, and settles.
func (h *harness) advance(d time.Duration) {
	h.Helper()
	for end := h.now.Add(d); h.now.Before(end); {
		h.now = h.now.Add(min(time.Second, end.Sub(h.now)))
		h.settle()
	}
}

// do runs a request of the API.
func (h *harness) do(f func() error) error {
	h.Helper()
	var result error
	h.l.post(input{do: f, reply: func(err error) { result = err }})
	h.round()
	return result
}

func (h *harness) apply(doc string) []wire.Change {
	h.Helper()
	docs, _, err := api.Decode(strings.NewReader(doc), "test", api.Options{})
	if err != nil {
		h.Fatalf("decode: %v", err)
	}
	var changes []wire.Change
	if err := h.do(func() (err error) { changes, err = h.l.apply(docs, false); return err }); err != nil {
		h.Fatalf("apply: %v", err)
	}
	return changes
}

func (h *harness) scale(n int) {
	h.Helper()
	if err := h.do(func() error { return h.l.scale(webRef, n) }); err != nil {
		h.Fatalf("scale: %v", err)
	}
}

// running settles until everything that is placed runs.
func (h *harness) running() {
	h.Helper()
	h.settle()
	h.m.run()
	h.settle()
}

func (h *harness) slot(i int) *slot {
	h.Helper()
	sl := h.l.slots[webRef][i]
	if sl == nil {
		h.Fatalf("there is no instance %d", i)
	}
	return sl
}

func (h *harness) status() *wire.Status {
	h.Helper()
	o := h.l.objects[webRef]
	if o == nil {
		h.Fatalf("%s is gone", webRef)
	}
	return h.l.status(o)
}

// task is the n-th task of an instance, as the cluster has it.
func (h *harness) task(index, n int) *simTask {
	h.Helper()
	g := h.slot(index).Group
	if g == nil {
		h.Fatalf("instance %d has no taskgroup", index)
	}
	t := h.m.tasks[g.Tasks[n].ID]
	if t == nil {
		h.Fatalf("the cluster does not know task %s", g.Tasks[n].ID)
	}
	return t
}

var webRef = api.Ref{Kind: api.KindProcess, Namespace: "test", Name: "web"}

// web is the process artifact test/web with further keys of the document and of its process.
func web(instances int, top, process string) string {
	return fmt.Sprintf(`{"kind":"process","metadata":{"name":"web","namespace":"test","labels":{"app":"web"}},%s"spec":{"instance":%d,"template":{"spec":{
		"processes":[{"procName":"sleep","startCmd":"sleep 9",%s"resources":{"limits":{"cpu":0.1,"memory":10}}}]}}}}`, top, instances, process)
}

// pair is the same with two tasks.
func pair(top string) string {
	return fmt.Sprintf(`{"kind":"process","metadata":{"name":"web","namespace":"test"},%s"spec":{"instance":1,"template":{"spec":{
		"processes":[{"procName":"one","startCmd":"one"},{"procName":"two","startCmd":"two"}]}}}}`, top)
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
