package fault

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// Options connect a set with its owner.
type Options struct {
	// Role is whose faults they are, Name how people call it: "master", or an agent's host:port.
	Role Role
	Name string
	// IP is the address at which the owner listens: faults on one that others may
	// reach are warned of.
	IP string
	// Logger takes a line for each fault and each time that it strikes.
	Logger *slog.Logger
	// Freeze stops all work of the owner until thawed is closed, or the owner ends.
	// It must not wait for either.
	Freeze func(thawed <-chan struct{})
	// Rescind takes offers back and returns how many; only a master has it.
	Rescind func(Fault) (int, error)
	// Process does Kill, Restart, Lose and Reboot, after the answer to whoever asked
	// for it is on its way. Without it these are refused.
	Process func(Fault)
}

// Set is the faults of one master or agent. All methods may be called from
// several goroutines, and those that ask whether something is to go wrong may be
// called on a nil set, which has no faults and never will.
type Set struct {
	o Options

	mu        sync.Mutex
	next      int
	active    []*active
	past      []Fault
	exchanges map[*exchange]struct{}
	thawed    chan struct{} // nil unless frozen
	closed    bool
	dialled   connections
}

// active is a fault that is in force.
type active struct {
	Fault
	timer *time.Timer
}

// maxPast bounds the history of faults that are over.
const maxPast = 100

// ErrRefused is wrapped by errors about faults that cannot be now.
var ErrRefused = errors.New("refused")

// ErrUnknown is wrapped by errors about faults that are not there.
var ErrUnknown = errors.New("not found")

// New makes an empty set.
func New(o Options) *Set {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if ip := net.ParseIP(o.IP); ip != nil && !ip.IsLoopback() {
		o.Logger.Warn("faults are enabled on an address that others may reach: every process of this machine can break this "+o.Name, "ip", o.IP)
	}
	return &Set{o: o, next: 1, exchanges: map[*exchange]struct{}{}}
}

// Add puts a fault in force and returns it as the set tells it. What acts at
// once, such as a one-time cut, has acted when Add returns; Kill, Restart, Lose and
// Reboot are left to Act, so that there may be an answer before.
func (s *Set) Add(f Fault) (Fault, error) {
	f, err := f.Check(s.o.Role)
	if err != nil {
		return f, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return f, fmt.Errorf("fault %s: %w: %s is ending", f.Kind, ErrRefused, s.o.Name)
	case f.Kind == Freeze && s.thawed != nil:
		return f, fmt.Errorf("fault freeze: %w: %s is frozen already; clear that first", ErrRefused, s.o.Name)
	case isProcess(f.Kind) && s.o.Process == nil:
		return f, fmt.Errorf("fault %s: %w: %s runs inside another program, which does not allow it", f.Kind, ErrRefused, s.o.Name)
	}
	now := time.Now()
	f.ID, f.On, f.Since, f.Hits, f.Ended = s.next, s.o.Name, now, 0, ""
	s.next++
	s.o.Logger.Warn("fault begins", "fault", f.ID, "what", f.String())
	if f.Kind == Rescind {
		return s.rescind(f)
	}
	if f.For == 0 {
		return s.instant(f), nil
	}
	f.Until = now.Add(time.Duration(f.For))
	a := &active{Fault: f}
	s.active = append(s.active, a)
	a.timer = time.AfterFunc(time.Duration(f.For), func() { s.expire(a) })
	switch f.Kind {
	case Cut:
		a.Hits += s.cut(f)
	case Freeze:
		thawed := make(chan struct{})
		s.thawed = thawed
		// Not under the lock: it waits for a turn in the loop, which may ask for faults.
		s.mu.Unlock()
		s.o.Freeze(thawed)
		s.mu.Lock()
	default:
	}
	return a.Fault, nil
}

// Act does what Add left to be done after the answer.
func (s *Set) Act(f Fault) {
	if isProcess(f.Kind) {
		s.o.Process(f)
	}
}

func isProcess(k Kind) bool { return k == Kill || k == Restart || k == Lose || k == Reboot }

// instant is a fault that is over as soon as it has begun.
func (s *Set) instant(f Fault) Fault {
	if f.Kind == Cut {
		f.Hits = s.cut(f)
	}
	f.Ended = "done"
	s.keep(f)
	return f
}

// rescind asks the owner, without the lock: its answer may take the owner's time.
func (s *Set) rescind(f Fault) (Fault, error) {
	s.mu.Unlock()
	n, err := s.o.Rescind(f)
	s.mu.Lock()
	if err != nil {
		return f, fmt.Errorf("fault rescind: %w", err)
	}
	f.Hits, f.Ended = n, "done"
	s.keep(f)
	return f, nil
}

func (s *Set) keep(f Fault) {
	s.past = append(s.past, f)
	if over := len(s.past) - maxPast; over > 0 {
		s.past = slices.Delete(s.past, 0, over)
	}
}

// List returns the faults in force, oldest first.
func (s *Set) List() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Fault, len(s.active))
	for i, a := range s.active {
		out[i] = a.Fault
	}
	return out
}

// Past returns the last faults that are over, oldest first.
func (s *Set) Past() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.past)
}

// Clear ends one fault.
func (s *Set) Clear(id int) error {
	if s.clear(func(f Fault) bool { return f.ID == id }) == 0 {
		return fmt.Errorf("fault %d: %w: it is not in force on %s", id, ErrUnknown, s.o.Name)
	}
	return nil
}

// ClearKind ends all faults of a kind and returns how many there were.
func (s *Set) ClearKind(k Kind) int {
	return s.clear(func(f Fault) bool { return f.Kind == k })
}

// ClearAll ends all faults and returns how many there were.
func (s *Set) ClearAll() int { return s.clear(func(Fault) bool { return true }) }

func (s *Set) clear(which func(Fault) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range slices.Clone(s.active) {
		if which(a.Fault) {
			s.end(a, "cleared")
			n++
		}
	}
	return n
}

// Close ends all faults for ever: what waits for one goes on.
func (s *Set) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ClearAll()
}

func (s *Set) expire(a *active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(a, "its time is over")
}

// end takes a fault out of force; once.
func (s *Set) end(a *active, why string) {
	i := slices.Index(s.active, a)
	if i < 0 {
		return
	}
	s.active = slices.Delete(s.active, i, i+1)
	a.timer.Stop()
	if a.Kind == Freeze {
		close(s.thawed)
		s.thawed = nil
	}
	a.Ended = why
	s.keep(a.Fault)
	s.o.Logger.Warn("fault ends", "fault", a.ID, "what", a.String(), "why", why, "hits", a.Hits)
}

// hit counts that a fault took effect, and ends it when that was the last time.
func (s *Set) hit(a *active, what ...any) {
	a.Hits++
	s.o.Logger.Warn("fault strikes", append([]any{"fault", a.ID, "kind", a.Kind}, what...)...)
	if a.Times > 0 && a.Hits >= a.Times {
		s.end(a, "it struck as often as it should")
	}
}

// Subject is what a message or a stream is about: each field has all the names
// by which somebody may call it.
type Subject struct {
	Framework, Agent, Executor []string
	Task                       string
	State                      mesos.TaskState
}

// matches tells whether a fault is about a subject.
func (f Fault) matches(x Subject) bool {
	names := func(want string, have []string) bool { return want == "" || slices.Contains(have, want) }
	return names(f.Framework, x.Framework) && names(f.Agent, x.Agent) && names(f.Executor, x.Executor) &&
		(f.Task == "" || f.Task == x.Task) && (f.State == "" || f.State == x.State.String())
}

// Copies is how often a message is to be passed on: 1 without a fault, 0 when it
// is to be lost, more when it is to come again.
func (s *Set) Copies(m Message, x Subject) int {
	if s == nil {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 1
	for _, a := range slices.Clone(s.active) {
		if a.Message != m || !a.matches(x) {
			continue
		}
		s.hit(a, "message", m, "task", x.Task, "state", x.State)
		if a.Kind == Drop {
			return 0
		}
		n++
	}
	return n
}

// OffersPaused tells that no offers are to be made.
func (s *Set) OffersPaused() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.active, func(a *active) bool { return a.Kind == PauseOffers })
}

func knownState(name string) bool {
	_, ok := mesos.TaskState_value[name]
	return ok
}
