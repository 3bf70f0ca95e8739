// Package updates is the agent's status-update manager: it hands the updates of
// each task to the master in order, one at a time, again and again until the
// framework has acknowledged them, and keeps those of checkpointing frameworks on
// disk so that none is lost with the agent.
//
// It is for the embedded agent's event loop and not safe for concurrent use. It
// must never forget an update that nobody acknowledged. Updates are durable when the
// group that they are noted in has been synced; the owner must send nothing before.
package updates

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/group"
	"tandem/localmesos/internal/taskstate"
)

// The intervals of repetition of an update that is not acknowledged.
const (
	RetryMin = 10 * time.Second
	RetryMax = 10 * time.Minute
)

// ErrDuplicate is returned by Add for an update whose uuid the stream has seen.
var ErrDuplicate = errors.New("duplicate update")

// Clock makes timers. Func must run f in the owner's event loop.
type Clock interface {
	// Func runs f after d, unless stop is called before.
	Func(d time.Duration, f func()) (stop func())
}

// Key names the task that a stream of updates is about.
type Key struct{ Framework, Task string }

// Update is one status on its way to a framework.
type Update struct {
	FrameworkID string
	ExecutorID  string
	Status      mesos.TaskStatus
}

// Manager holds the streams of all tasks.
type Manager struct {
	// Strict makes a damaged log an error of Recover; one that is only torn at its
	// end is none.
	Strict bool
	// Aside is where a damaged log is kept; nil is beside it.
	Aside func(path string) (string, error)

	clock   Clock
	forward func(Update)
	log     *slog.Logger
	group   *group.Group
	running bool
	streams map[Key]*stream
}

// stream is what is under way for one task. The first pending update is the
// one that the framework has been sent.
type stream struct {
	path     string // of the log; empty when the framework does not checkpoint
	pending  []Update
	received map[string]bool
	acked    map[string]bool
	stop     func()
	ended    bool // a terminal update was acknowledged
}

// New makes a manager that is paused. forward is called for each update that
// is to be sent to the master once g has been synced.
func New(clock Clock, log *slog.Logger, g *group.Group, forward func(Update)) *Manager {
	return &Manager{clock: clock, forward: forward, log: log, group: g, streams: map[Key]*stream{}}
}

// Take records a task that the agent has taken, before anything is known of it; it
// is durable when the group has been synced. path is the log of its executor's run,
// in a directory that exists; group is the same for all tasks of one LAUNCH_GROUP.
func (m *Manager) Take(info *mesos.TaskInfo, group, path string) error {
	if err := m.appendRecord(path, record{Task: info.TaskID.Value, Info: info, Group: group}); err != nil {
		return fmt.Errorf("recording task %q: %w", info.TaskID.Value, err)
	}
	return nil
}

// Forget records that a task, all of whose updates are acknowledged, is not even
// history any more. A loss of power may bring it back as that. The log is not
// smaller for it before Compact.
func (m *Manager) Forget(task, path string) error {
	if err := m.appendRecord(path, record{Task: task, Forget: true}); err != nil {
		return fmt.Errorf("forgetting task %q: %w", task, err)
	}
	return nil
}

// Add takes an update over: it is durable when the group has been synced. path is
// the log of its executor's run, in which the task is, or empty. The error is ErrDuplicate when the uuid is known.
func (m *Manager) Add(u Update, path string) error {
	key := Key{u.FrameworkID, u.Status.TaskID.Value}
	s := m.streams[key]
	if s == nil {
		s = newStream(path)
	}
	id := string(u.Status.UUID)
	if s.received[id] {
		return ErrDuplicate
	}
	if s.path != "" {
		if err := m.appendRecord(s.path, record{Task: key.Task, Executor: u.ExecutorID, Update: &u.Status}); err != nil {
			return fmt.Errorf("keeping an update of task %q: %w", key.Task, err)
		}
	}
	m.streams[key] = s
	s.received[id] = true
	s.pending = append(s.pending, u)
	if len(s.pending) == 1 {
		m.send(s, RetryMin)
	}
	return nil
}

// Ack takes a framework's acknowledgement. It returns the update and whether
// it ends the stream; ok is false, and nothing changes, when uuid is not that
// of the update under way.
func (m *Manager) Ack(key Key, uuid []byte) (u Update, last, ok bool, err error) {
	s := m.streams[key]
	if s == nil || len(s.pending) == 0 || s.acked[string(uuid)] || string(s.pending[0].Status.UUID) != string(uuid) {
		return Update{}, false, false, nil
	}
	if s.path != "" {
		if err := m.appendRecord(s.path, record{Task: key.Task, Ack: uuid}); err != nil {
			return Update{}, false, false, fmt.Errorf("keeping an acknowledgement of task %q: %w", key.Task, err)
		}
	}
	s.halt()
	u = s.pending[0]
	s.pending = s.pending[1:]
	s.acked[string(uuid)] = true
	if taskstate.Terminal(u.Status.GetState()) {
		if n := len(s.pending); n > 0 {
			m.log.Warn("updates after a terminal one are dropped", "task", key.Task, "count", n)
		}
		s.ended = true
		delete(m.streams, key)
		return u, true, true, nil
	}
	if len(s.pending) > 0 {
		m.send(s, RetryMin)
	}
	return u, false, true, nil
}

// Front returns the update of a task that waits for its acknowledgement.
func (m *Manager) Front(key Key) (Update, bool) {
	if s := m.streams[key]; s != nil && len(s.pending) > 0 {
		return s.pending[0], true
	}
	return Update{}, false
}

// Latest is the state of the newest update of a task that is not acknowledged.
func (m *Manager) Latest(key Key) mesos.TaskState {
	if s := m.streams[key]; s != nil && len(s.pending) > 0 {
		return s.pending[len(s.pending)-1].Status.GetState()
	}
	return mesos.TASK_UNKNOWN
}

// Keys lists the tasks with updates that are not acknowledged.
func (m *Manager) Keys() []Key {
	var out []Key
	for k, s := range m.streams {
		if len(s.pending) > 0 {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b Key) int {
		if a.Framework != b.Framework {
			return compare(a.Framework, b.Framework)
		}
		return compare(a.Task, b.Task)
	})
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Pause stops all sending, because there is no master to send to.
func (m *Manager) Pause() {
	m.running = false
	for _, s := range m.streams {
		s.halt()
	}
}

// Resume sends the update under way of each stream, at once.
func (m *Manager) Resume() {
	m.running = true
	for _, key := range m.Keys() {
		m.send(m.streams[key], RetryMin)
	}
}

// SendAgain sends the update under way of each stream of a framework, at once.
func (m *Manager) SendAgain(framework string) {
	for _, key := range m.Keys() {
		if key.Framework == framework {
			m.send(m.streams[key], RetryMin)
		}
	}
}

// Drop forgets the stream of a task, or all streams of a framework when the
// key has no task.
func (m *Manager) Drop(key Key) {
	for k, s := range m.streams {
		if k.Framework == key.Framework && (key.Task == "" || k.Task == key.Task) {
			s.halt()
			delete(m.streams, k)
		}
	}
}

// Close stops all timers.
func (m *Manager) Close() { m.Pause() }

func (m *Manager) send(s *stream, next time.Duration) {
	s.halt()
	if !m.running {
		return
	}
	s.stop = m.clock.Func(next, func() { m.send(s, min(2*next, RetryMax)) })
	m.forward(s.pending[0])
}

func newStream(path string) *stream {
	return &stream{path: path, received: map[string]bool{}, acked: map[string]bool{}}
}

func (s *stream) halt() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}
