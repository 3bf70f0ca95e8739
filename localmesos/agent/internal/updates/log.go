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

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/atomicfile"
	"tandem/localmesos/internal/wire"
)

// record is one line of the log of an executor's run. Beside the task's id exactly
// one thing is set: a task that was taken, an update of it, the acknowledgement of
// one, or that the task was forgotten.
type record struct {
	Task     string
	Info     *mesos.TaskInfo
	Group    string // of Info
	Executor string // of Update
	Update   *mesos.TaskStatus
	Ack      []byte
	Forget   bool
}

type recordJSON struct {
	Task     string          `json:"task"`
	Info     json.RawMessage `json:"info,omitempty"`
	Group    string          `json:"group,omitempty"`
	Executor string          `json:"executor,omitempty"`
	Update   json.RawMessage `json:"update,omitempty"`
	Ack      []byte          `json:"ack,omitempty"`
	Forget   bool            `json:"forget,omitempty"`
}

var table = crc32.MakeTable(crc32.Castagnoli)

// errBad is the error of a line that is not what was written.
var errBad = errors.New("damaged record")

// appendRecord adds a line. A task or an update is noted for the next sync; the loss of
// an acknowledgement in a power cut only makes an update come twice. A line is the
// CRC-32C of the rest in hexadecimal, a blank and JSON. After an error the file is
// as before, so that a half-written line never precedes a good one.
func (m *Manager) appendRecord(path string, r record) error {
	line, err := encode(r)
	if err != nil {
		return err
	}
	f := m.group.Opened(path)
	if f == nil {
		if f, err = m.open(path); err != nil {
			return err
		}
		m.group.Keep(path, f)
	}
	if r.Info != nil || r.Update != nil {
		m.group.File(path, f)
	}
	n, err := f.Write(line)
	if err != nil {
		st, statErr := f.Stat()
		if statErr == nil {
			statErr = f.Truncate(st.Size() - int64(n))
		}
		return errors.Join(err, statErr)
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
	j := recordJSON{Task: r.Task, Group: r.Group, Executor: r.Executor, Ack: r.Ack, Forget: r.Forget}
	var err error
	if r.Info != nil {
		if j.Info, err = wire.MarshalJSON(r.Info); err != nil {
			return nil, err
		}
	}
	if r.Update != nil {
		if j.Update, err = wire.MarshalJSON(r.Update); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(b, table), b), nil
}

func decode(line []byte) (record, error) {
	j, err := decodeOuter(line)
	if err != nil {
		return record{}, err
	}
	r := record{Task: j.Task, Group: j.Group, Executor: j.Executor, Ack: j.Ack, Forget: j.Forget}
	kinds := 0
	if len(j.Info) > 0 {
		kinds++
		r.Info = &mesos.TaskInfo{}
		if _, err := wire.UnmarshalJSON(j.Info, r.Info); err != nil || r.Info.TaskID.Value != r.Task {
			return record{}, errBad
		}
	}
	if len(j.Update) > 0 {
		kinds++
		r.Update = &mesos.TaskStatus{}
		if _, err := wire.UnmarshalJSON(j.Update, r.Update); err != nil || r.Update.TaskID.Value != r.Task {
			return record{}, errBad
		}
	}
	if r.Ack != nil {
		kinds++
	}
	if r.Forget {
		kinds++
	}
	if kinds != 1 {
		return record{}, errBad
	}
	return r, nil
}

// decodeOuter checks a line and reads what it is about.
func decodeOuter(line []byte) (j recordJSON, err error) {
	sum, body, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(sum) != 8 {
		return j, errBad
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || crc32.Checksum(body, table) != uint32(want) || json.Unmarshal(body, &j) != nil {
		return recordJSON{}, errBad
	}
	return j, nil
}

// Compact rewrites the log of a run without the tasks that were forgotten. It is
// on disk when Compact returns; after an error the old one is still there.
func (m *Manager) Compact(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("compacting a log of tasks: %w", err)
	}
	type entry struct {
		task string
		line []byte
	}
	var all []entry
	forgotten := map[string]int{} // how many entries from the start are void, by task
	for line := range bytes.Lines(b) {
		j, err := decodeOuter(bytes.TrimSuffix(line, []byte{'\n'}))
		if err != nil {
			return fmt.Errorf("compacting a log of tasks: %s: %w", path, err)
		}
		all = append(all, entry{j.Task, line})
		if j.Forget {
			forgotten[j.Task] = len(all)
		}
	}
	var left []byte
	for i, e := range all {
		if i >= forgotten[e.task] {
			left = append(left, e.line...)
		}
	}
	if err := atomicfile.Write(path, left, 0o600); err != nil {
		return fmt.Errorf("compacting a log of tasks: %w", err)
	}
	// What is open is the old file, all of which was read.
	m.group.Forget(path)
	return nil
}
