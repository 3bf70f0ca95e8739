package updates

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/localmesos/internal/wire"
)

// record is one line of a task's log: an update that was taken, or the
// acknowledgement of one.
type record struct {
	Executor string
	Update   *mesos.TaskStatus
	Ack      []byte
}

type recordJSON struct {
	Executor string          `json:"executor,omitempty"`
	Update   json.RawMessage `json:"update,omitempty"`
	Ack      []byte          `json:"ack,omitempty"`
}

var table = crc32.MakeTable(crc32.Castagnoli)

// errBad is the error of a line that is not what was written.
var errBad = errors.New("damaged record")

// appendRecord adds a line. An update is noted for the next sync; the loss of an
// acknowledgement in a power cut only makes an update come twice. A line is the
// CRC-32C of the rest in hexadecimal, a blank and JSON. After an error the file is
// as before, so that a half-written line never precedes a good one.
func (m *Manager) appendRecord(path string, r record) (err error) {
	line, err := encode(r)
	if err != nil {
		return err
	}
	f := m.group.Opened(path)
	if f == nil {
		if f, err = m.open(path); err != nil {
			return err
		}
		if r.Update == nil {
			defer f.Close()
		} else {
			m.group.File(path, f)
		}
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err = f.Write(line); err != nil {
		return errors.Join(err, f.Truncate(st.Size()))
	}
	return nil
}

// open opens a log, and notes the name of a new one.
func (m *Manager) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		m.group.Dir(filepath.Dir(path))
	}
	return f, err
}

func encode(r record) ([]byte, error) {
	j := recordJSON{Executor: r.Executor, Ack: r.Ack}
	if r.Update != nil {
		b, err := wire.MarshalJSON(r.Update)
		if err != nil {
			return nil, err
		}
		j.Update = b
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(b, table), b), nil
}

func decode(line []byte) (record, error) {
	sum, body, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(sum) != 8 {
		return record{}, errBad
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || crc32.Checksum(body, table) != uint32(want) {
		return record{}, errBad
	}
	var j recordJSON
	if err := json.Unmarshal(body, &j); err != nil {
		return record{}, errBad
	}
	r := record{Executor: j.Executor, Ack: j.Ack}
	if len(j.Update) > 0 {
		r.Update = &mesos.TaskStatus{}
		if _, err := wire.UnmarshalJSON(j.Update, r.Update); err != nil {
			return record{}, errBad
		}
	}
	if (r.Update == nil) == (r.Ack == nil) {
		return record{}, errBad
	}
	return r, nil
}

// Recovered is what a task's log told.
type Recovered struct {
	// Statuses are all that were taken, oldest first.
	Statuses []mesos.TaskStatus
	// Ended tells that a terminal one was acknowledged: the task is history.
	Ended bool
}

// Recover reads a task's log and takes up its stream again. A torn last line
// is what a crash leaves, and cut off: nobody was told of it. Anything worse is
// kept under another name, with an error in the log, and what was readable before
// it is used.
func (m *Manager) Recover(key Key, path string) (Recovered, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Recovered{}, nil
	}
	if err != nil {
		return Recovered{}, fmt.Errorf("reading the updates of task %q: %w", key.Task, err)
	}
	s := newStream(path)
	var out Recovered
	good := 0
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		r, err := decode(line)
		if !whole || err != nil || !s.replay(key, r, &out) {
			if err := m.repair(path, b, good, len(after) > 0 || whole); err != nil {
				return Recovered{}, err
			}
			break
		}
		good += len(line) + 1
		rest = after
	}
	out.Ended = s.ended
	if !s.ended && len(s.received) > 0 {
		m.streams[key] = s
	}
	return out, nil
}

// replay applies a record. It returns false for one that cannot follow those before.
func (s *stream) replay(key Key, r record, out *Recovered) bool {
	if r.Update != nil {
		if s.ended || r.Update.TaskID.Value != key.Task {
			return false
		}
		s.received[string(r.Update.UUID)] = true
		s.pending = append(s.pending, Update{FrameworkID: key.Framework, ExecutorID: r.Executor, Status: *r.Update})
		out.Statuses = append(out.Statuses, *r.Update)
		return true
	}
	if len(s.pending) == 0 || string(s.pending[0].Status.UUID) != string(r.Ack) {
		return false
	}
	s.acked[string(r.Ack)] = true
	s.ended = Terminal(s.pending[0].Status.GetState())
	s.pending = s.pending[1:]
	return true
}

// repair cuts the log after what was good; damaged tells that more than a torn
// line is lost.
func (m *Manager) repair(path string, b []byte, good int, damaged bool) error {
	if damaged && m.Strict {
		return fmt.Errorf("the log of updates %s is damaged at byte %d; start without --strict to have it set aside and go on without the rest", path, good)
	}
	if damaged {
		aside, err := m.aside(path)
		if err != nil {
			return err
		}
		m.log.Error("a task's log of updates is damaged; the rest of it is set aside and not sent",
			"file", path, "kept", aside, "offset", good)
		if err := atomicfile.Write(aside, b, 0o600); err != nil {
			return err
		}
	}
	return atomicfile.Write(path, b[:good], 0o600)
}

func (m *Manager) aside(path string) (string, error) {
	if m.Aside != nil {
		return m.Aside(path)
	}
	return fmt.Sprintf("%s.damaged-%d", path, time.Now().UnixNano()), nil
}
