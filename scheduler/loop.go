package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	mesosapi "github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/api"
	"tandem/scheduler/store"
)

// caller sends calls to the master, in their order. It returns false when there
// is no connection; the call is lost then. *mesos.Session is one.
type caller interface {
	Send(call *mesosapi.Call) bool
}

// loop owns the scheduler's state. Everything that touches it runs in run:
// Mesos's events, requests of the API, and what is due by time. A round takes
// all that is waiting, changes the state in memory, commits what has changed,
// and only then sends calls and answers requests.
type loop struct {
	s   *Scheduler
	log *slog.Logger

	mu    sync.Mutex
	queue []input
	wake  chan struct{}
	// frameworkID is read by the session's goroutine, too.
	frameworkID string

	epoch    store.Epoch
	versions map[string]uint64
	objects  map[api.Ref]*object
	slots    map[api.Ref]map[int]*slot
	tasks    map[string]*slot
	agents   map[string]*agent
	// slaves are agents that the master has told of and that have offered nothing yet.
	slaves map[string]slave
	events *history
	stamp  int64
	// messages are those to executors that wait for their answers, by id.
	messages map[string]*message
	// suspended ends everything and places nothing, see Suspend.
	suspended bool

	connection

	// fetch asks a master for its agents; nil in tests. asking tells that it runs.
	fetch  func(ctx context.Context, master string) ([]slave, error)
	asking bool
	// placeBudget is the constant, except in tests.
	placeBudget time.Duration
	workers     sync.WaitGroup

	// What a round collects.
	dirty   map[string][]byte
	calls   []*mesosapi.Call
	replies []func(error)
	touched map[api.Ref]bool
	due     time.Time
}

// connection is what is true only as long as the session is up.
type connection struct {
	connected  bool
	master     string
	suppressed bool
	// agentsUnknown tells that an agent offers whose whole resources are not known.
	agentsUnknown bool
	// revived tells that a REVIVE is under way: offers will come.
	revived bool
	// unanswered are the tasks whose state Mesos was asked for, with their agents.
	unanswered    map[string]string
	askAgain      time.Time
	askEvery      time.Duration
	nextFullRound time.Time
}

// input is something to do in the loop; reply, if any, is called after its effect is stored.
type input struct {
	do    func() error
	reply func(error)
}

// object is a declared object in both its forms.
type object struct {
	objectRecord
	ref   api.Ref
	typed api.Object
	// app is what a workload runs; nil for other kinds.
	app *api.Application
	// generation changes when running taskgroups are out of date.
	generation string
}

// slot is an instance with what need not be stored.
type slot struct {
	slotRecord
	key string
	// last is the taskgroup before the present one, for people.
	last *groupRecord
	// waiting says why there is no place; pending that one is looked for;
	// tried that offers were seen since.
	waiting []string
	pending bool
	tried   bool
	since   time.Time
	// killAgain and killEvery pace the repeated KILL, kills counts them.
	killAgain time.Time
	killEvery time.Duration
	kills     int
}

func newLoop(s *Scheduler) (*loop, error) {
	l := &loop{
		s: s, log: s.log, wake: make(chan struct{}, 1),
		versions: map[string]uint64{}, objects: map[api.Ref]*object{}, slots: map[api.Ref]map[int]*slot{},
		tasks: map[string]*slot{}, agents: map[string]*agent{}, slaves: map[string]slave{}, placeBudget: placeBudget, events: newHistory(),
		messages: map[string]*message{},
		dirty:    map[string][]byte{}, touched: map[api.Ref]bool{},
		connection: connection{unanswered: map[string]string{}},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	if l.epoch, err = s.store.Claim(ctx); err != nil {
		return nil, err
	}
	records, _, err := s.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	for i := range records {
		if err := l.load(&records[i]); err != nil {
			return nil, fmt.Errorf("record %q of the store: %w", records[i].Key, err)
		}
	}
	for ref := range l.slots {
		l.touched[ref] = true
	}
	for ref := range l.objects {
		l.touched[ref] = true
	}
	return l, nil
}

func (l *loop) load(r *store.Record) error {
	l.versions[r.Key] = r.Version
	switch {
	case r.Key == keyFramework:
		var f frameworkRecord
		if err := json.Unmarshal(r.Value, &f); err != nil {
			return err
		}
		l.frameworkID = f.ID
	case strings.HasPrefix(r.Key, prefixObject):
		var rec objectRecord
		if err := json.Unmarshal(r.Value, &rec); err != nil {
			return err
		}
		o, err := newObject(rec)
		if err != nil {
			return err
		}
		l.objects[o.ref] = o
	case strings.HasPrefix(r.Key, prefixSlot):
		sl := &slot{key: r.Key}
		if err := json.Unmarshal(r.Value, &sl.slotRecord); err != nil {
			return err
		}
		l.adopt(sl)
	}
	return nil
}

func (l *loop) adopt(sl *slot) {
	if l.slots[sl.Owner] == nil {
		l.slots[sl.Owner] = map[int]*slot{}
	}
	l.slots[sl.Owner][sl.Index] = sl
	if sl.Group != nil {
		for i := range sl.Group.Tasks {
			l.tasks[sl.Group.Tasks[i].ID] = sl
		}
	}
}

// FrameworkID implements mesos.Handler.
func (l *loop) FrameworkID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.frameworkID
}

// post queues an input; it never blocks.
func (l *loop) post(in input) {
	l.mu.Lock()
	l.queue = append(l.queue, in)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// call runs f in the loop and returns its error after its effect is stored.
// When ctx ends first, f may run or not: what f writes must not be read then.
func (l *loop) call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	l.post(input{do: func() error {
		if ctx.Err() != nil {
			return ctx.Err() // nobody waits for it any more
		}
		return f()
	}, reply: func(err error) { done <- err }})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the loop. An error means that the store does not take what must be stored.
func (l *loop) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer l.workers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
		}
		if err := l.round(ctx); err != nil {
			return err
		}
		next := time.Hour
		if !l.due.IsZero() {
			next = max(l.due.Sub(l.s.o.Now()), time.Millisecond)
		}
		timer.Reset(next)
	}
}

func (l *loop) round(ctx context.Context) error {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for i := range queue {
		err := queue[i].do()
		if queue[i].reply != nil {
			l.replies = append(l.replies, func(failed error) { queue[i].reply(cmp.Or(err, failed)) })
		}
	}
	now := l.s.o.Now()
	l.due = time.Time{}
	l.decideAll(now)
	l.place(now)
	l.reconcile(now)
	l.learnAgents(ctx)
	err := l.commit(ctx)
	if err == nil {
		for _, c := range l.calls {
			if !l.s.out.Send(c) {
				break // there is no connection: reconciliation tells later what is true
			}
		}
	}
	for _, reply := range l.replies {
		reply(err)
	}
	l.calls, l.replies = nil, nil
	return err
}

// wakeAt makes sure that a round comes at t.
func (l *loop) wakeAt(t time.Time) {
	if l.due.IsZero() || t.Before(l.due) {
		l.due = t
	}
}

// put and drop mark a record for the round's commit.
func (l *loop) put(key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("record %s cannot be encoded: %v", key, err)) // our own types: a programming error
	}
	l.dirty[key] = b
}

func (l *loop) drop(key string) { l.dirty[key] = nil }

func (l *loop) saveSlot(sl *slot) { l.put(sl.key, &sl.slotRecord) }

func (l *loop) saveObject(o *object) { l.put(objectKey(o.ref), &o.objectRecord) }

// commit writes what the round has changed, in one transaction.
func (l *loop) commit(ctx context.Context) error {
	if len(l.dirty) == 0 {
		return nil
	}
	ops := make([]store.Op, 0, len(l.dirty))
	for _, key := range slices.Sorted(maps.Keys(l.dirty)) {
		value := l.dirty[key]
		if value == nil && l.versions[key] == 0 {
			continue
		}
		ops = append(ops, store.Op{Key: key, Value: value, Expect: l.versions[key]})
	}
	clear(l.dirty)
	if len(ops) == 0 {
		return nil
	}
	// The state in memory is ahead of the store now, so a commit is never given up half way.
	revision, err := l.s.store.Commit(context.WithoutCancel(ctx), l.epoch, ops)
	if err != nil {
		return err
	}
	l.s.metrics.commits.Inc()
	for i := range ops {
		if ops[i].Value == nil {
			delete(l.versions, ops[i].Key)
		} else {
			l.versions[ops[i].Key] = revision
		}
	}
	return nil
}

// newObject makes an object of its record.
func newObject(rec objectRecord) (*object, error) {
	typed, err := api.DecodeObject(rec.Raw)
	if err != nil {
		return nil, err
	}
	o := &object{objectRecord: rec, ref: api.RefOf(typed), typed: typed}
	switch t := typed.(type) {
	case *api.Application:
		o.app = t
	case *api.Deployment:
		if t.HasTemplate() {
			o.app = t.Application(t.Metadata.Name)
			api.SetDefaults(o.app)
		}
	}
	if o.app != nil {
		o.generation = generation(o.app, rec.Restarts)
	}
	return o, nil
}

// sortedSlots returns the slots of a workload by index.
func (l *loop) sortedSlots(ref api.Ref) []*slot {
	return slices.SortedFunc(maps.Values(l.slots[ref]), func(a, b *slot) int { return cmp.Compare(a.Index, b.Index) })
}

func refLess(a, b api.Ref) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

func equalUUID(a, b []byte) bool { return len(a) > 0 && bytes.Equal(a, b) }
