// Package store keeps the agent's checkpoints and knows where sandboxes lie. The
// layout below the work directory is that of Apache Mesos:
//
//	meta/boot_id
//	meta/slaves/latest -> <agent>
//	meta/slaves/<agent>/slave.info
//	meta/slaves/<agent>/frameworks/<framework>/framework.info
//	meta/slaves/<agent>/frameworks/<framework>/executors/<executor>/executor.info
//	meta/slaves/<agent>/.../executors/<executor>/runs/<container>/tasks.log
//	meta/containers/<container>
//	meta/damaged/<path of a checkpoint>-<time>
//	slaves/<agent>/frameworks/<framework>/executors/<executor>/runs/<container>/   (the sandbox)
//
// A checkpoint is replaced atomically and synced, and carries a checksum. One that
// is damaged is set aside and counts as missing. The package must never decide
// what a checkpoint means for an executor or a task.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gogo/protobuf/proto"

	"tandem/internal/atomicfile"
	"tandem/internal/filelock"
	"tandem/localmesos/internal/wire"
)

// ErrMissing says that there is no such checkpoint, or none that can be used.
var ErrMissing = errors.New("no checkpoint")

// Store is a work directory, held by one agent at a time.
type Store struct {
	// Strict makes a damaged checkpoint an error, and leaves it where it is.
	Strict bool

	work string
	log  *slog.Logger
	lock *filelock.Lock
}

// Open makes the work directory and locks it. An error says so when another
// agent holds it.
func Open(work string, log *slog.Logger) (*Store, error) {
	work, err := filepath.Abs(work)
	if err != nil {
		return nil, fmt.Errorf("work_dir %q: %w", work, err)
	}
	meta := filepath.Join(work, "meta")
	if err := os.MkdirAll(filepath.Dir(meta), 0o755); err != nil {
		return nil, fmt.Errorf("work_dir %s: %w; give a directory that can be written", work, err)
	}
	if err := atomicfile.MkdirAll(meta, 0o700); err != nil {
		return nil, fmt.Errorf("work_dir %s: %w; give a directory that can be written", work, err)
	}
	// Executors compare the sandbox they are told with their working directory,
	// which the kernel resolves.
	if work, err = filepath.EvalSymlinks(work); err != nil {
		return nil, fmt.Errorf("work_dir: %w", err)
	}
	lock, err := filelock.Try(filepath.Join(meta, "lock"), 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		lock.Release()
		return nil, fmt.Errorf("work_dir %s: another agent uses it; stop that one or give another directory", work)
	}
	if err != nil {
		return nil, fmt.Errorf("work_dir %s: %w; give a directory that can be written", work, err)
	}
	return &Store{work: work, log: log, lock: lock}, nil
}

// Close gives the work directory free.
func (s *Store) Close() { s.lock.Release() }

// Work is the absolute path of the work directory.
func (s *Store) Work() string { return s.work }

// checksummed is a checkpoint's first line: CRC-32C of the second in hexadecimal.
const sumLen = 8

var table = crc32.MakeTable(crc32.Castagnoli)

// write replaces a checkpoint. Its directory is made.
func (s *Store) write(path string, body []byte) error {
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, withSum(body), 0o600)
}

func withSum(body []byte) []byte {
	return fmt.Appendf(nil, "%08x\n%s\n", crc32.Checksum(body, table), body)
}

// read returns a checkpoint, or ErrMissing.
func (s *Store) read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	sum, rest, ok := bytes.Cut(b, []byte{'\n'})
	body, end := bytes.CutSuffix(rest, []byte{'\n'})
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !ok || !end || len(sum) != sumLen || err != nil || crc32.Checksum(body, table) != uint32(want) {
		return nil, s.setAside(path, "its checksum does not match")
	}
	return body, nil
}

// setAside renames a checkpoint that cannot be used and returns ErrMissing.
func (s *Store) setAside(path, why string) error {
	if s.Strict {
		return fmt.Errorf("the checkpoint %s is damaged: %s; start without --strict to have it set aside and go on without it", path, why)
	}
	aside, err := s.Aside(path)
	if err == nil {
		err = os.Rename(path, aside)
	}
	s.log.Error("a checkpoint is damaged; it is set aside and what it told is lost", "file", path, "kept", aside, "why", why, "error", err)
	return fmt.Errorf("%s: %s: %w", path, why, ErrMissing)
}

// Aside is a place for a damaged file, where it stays for people to look at: what
// it lay beside may be removed because of it.
func (s *Store) Aside(path string) (string, error) {
	dir := filepath.Join(s.meta(), "damaged")
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(path, s.meta()+"/"), "/", "_")
	const longest = 200 // with the rest it must be a file's name
	if len(name) > longest {
		name = name[len(name)-longest:]
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%d", name, time.Now().UnixNano())), nil
}

func (s *Store) writeMessage(path string, m proto.Message) error {
	b, err := wire.MarshalJSON(m)
	if err != nil {
		return err
	}
	return s.write(path, b)
}

func (s *Store) readMessage(path string, m proto.Message) error {
	b, err := s.read(path)
	if err != nil {
		return err
	}
	if _, err := wire.UnmarshalJSON(b, m); err != nil {
		return s.setAside(path, err.Error())
	}
	return nil
}

func (s *Store) writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(path, b)
}

func (s *Store) readJSON(path string, v any) error {
	b, err := s.read(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return s.setAside(path, err.Error())
	}
	return nil
}

// remove deletes a directory of checkpoints: first the file that makes the
// others count, so that a crash leaves no half of it that looks whole.
func (s *Store) remove(dir, first string) error {
	if err := atomicfile.Remove(filepath.Join(dir, first)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing checkpoints: %w", err)
	}
	return nil
}

// list names the directories (or files) of a directory; none if it is missing.
func list(dir string, files bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading checkpoints: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() == !files && !strings.HasPrefix(name, atomicfile.TempPrefix) && !strings.Contains(name, ".damaged-") {
			out = append(out, name)
		}
	}
	return out, nil
}

// CheckID refuses ids that cannot be a name in a path.
func CheckID(kind, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s id is empty", kind)
	case id == "." || id == "..":
		return fmt.Errorf("%s id %q is not allowed", kind, id)
	case len(id) > 255:
		return fmt.Errorf("%s id %q is longer than 255 bytes", kind, id[:32]+"...")
	case strings.ContainsFunc(id, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r == 0x7f }):
		return fmt.Errorf("%s id %q has a slash, a backslash or a control character", kind, id)
	case strings.HasPrefix(id, atomicfile.TempPrefix), strings.Contains(id, ".damaged-"):
		return fmt.Errorf("%s id %q is reserved for checkpoints", kind, id)
	}
	return nil
}
