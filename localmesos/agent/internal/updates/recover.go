package updates

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/localmesos/internal/taskstate"
)

// Recovered is what a log told of one task.
type Recovered struct {
	Info mesos.TaskInfo
	// Group is the same for all tasks that came by one LAUNCH_GROUP, else empty.
	Group string
	// Statuses are all that were taken, oldest first.
	Statuses []mesos.TaskStatus
	// Ended tells that a terminal one was acknowledged: the task is history.
	Ended bool
}

// Recover reads the log of a run and takes the streams of its tasks up again. It
// returns the tasks in the order in which they were taken. A torn last line is
// what a crash leaves, and cut off: nobody was told of it. Anything worse is kept
// under another name, with an error in the log; the lines that are good are used.
func (m *Manager) Recover(framework, path string) ([]Recovered, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log of tasks: %w", err)
	}
	p := replay{framework: framework, path: path, tasks: map[string]*past{}}
	var good []byte
	bad, offset := -1, 0
	for line := range bytes.Lines(b) {
		body, whole := bytes.CutSuffix(line, []byte{'\n'})
		r, err := decode(body)
		switch {
		case whole && err == nil && p.apply(r):
			good = append(good, line...)
		case whole && bad < 0:
			bad = offset
		}
		offset += len(line)
	}
	if len(good) < len(b) {
		if err := m.repair(path, b, good, bad); err != nil {
			return nil, err
		}
	}
	var out []Recovered
	for _, id := range p.order {
		t := p.tasks[id]
		t.told.Ended = t.stream.ended
		if !t.stream.ended && len(t.stream.received) > 0 {
			m.streams[Key{framework, id}] = t.stream
		}
		out = append(out, t.told)
	}
	return out, nil
}

// replay is a log that is being read.
type replay struct {
	framework, path string
	tasks           map[string]*past
	order           []string
}

// past is what was read of a task so far.
type past struct {
	told   Recovered
	stream *stream
}

// apply takes a record. It returns false for one that cannot follow those before.
func (p *replay) apply(r record) bool {
	t := p.tasks[r.Task]
	if r.Info != nil {
		if t != nil {
			// The id may be used again once its task has ended.
			if !t.stream.ended {
				return false
			}
			p.drop(r.Task)
		}
		p.tasks[r.Task] = &past{told: Recovered{Info: *r.Info, Group: r.Group}, stream: newStream(p.path)}
		p.order = append(p.order, r.Task)
		return true
	}
	if t == nil {
		return false
	}
	s := t.stream
	switch {
	case r.Forget:
		p.drop(r.Task)
	case s.ended:
		return false
	case r.Update != nil:
		s.received[string(r.Update.UUID)] = true
		s.pending = append(s.pending, Update{FrameworkID: p.framework, ExecutorID: r.Executor, Status: *r.Update})
		t.told.Statuses = append(t.told.Statuses, *r.Update)
	default:
		// They are acknowledged in order; that of an earlier one may be lost.
		i := slices.IndexFunc(s.pending, func(u Update) bool { return bytes.Equal(u.Status.UUID, r.Ack) })
		if i < 0 {
			return false
		}
		for _, u := range s.pending[:i+1] {
			s.acked[string(u.Status.UUID)] = true
		}
		s.ended = taskstate.Terminal(s.pending[i].Status.GetState())
		s.pending = s.pending[i+1:]
	}
	return true
}

func (p *replay) drop(task string) {
	delete(p.tasks, task)
	p.order = slices.DeleteFunc(p.order, func(id string) bool { return id == task })
}

// repair leaves in a log what was good; bad is where something worse than a torn
// end begins, or -1.
func (m *Manager) repair(path string, b, good []byte, bad int) error {
	if bad >= 0 && m.Strict {
		return fmt.Errorf("the log of tasks %s is damaged at byte %d; start without --strict to have it set aside and go on without what is lost", path, bad)
	}
	if bad >= 0 {
		aside, err := m.aside(path)
		if err != nil {
			return err
		}
		m.log.Error("a log of tasks is damaged; it is set aside, and what cannot be read is lost", "file", path, "kept", aside, "offset", bad)
		if err := atomicfile.Write(aside, b, 0o600); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, good, 0o600)
}

func (m *Manager) aside(path string) (string, error) {
	if m.Aside != nil {
		return m.Aside(path)
	}
	return fmt.Sprintf("%s.damaged-%d", path, time.Now().UnixNano()), nil
}
