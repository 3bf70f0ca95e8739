package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// recordFormat is the version of the records on disk. A keeper reads those of
// every earlier version.
const recordFormat = 1

// store keeps one small JSON file per key. A record is on its way to the disk the
// moment it is written, so no crash of a program loses it; it is synced beside,
// because whoever waits for an end need not wait for the disk: only a power
// cut in that moment costs the exit code, together with everything else that ran.
type store struct {
	dir  string
	boot string

	mu      sync.Mutex
	pending []string // names of records that are not synced
	signal  chan struct{}
}

// diskRecord is an entry on disk.
type diskRecord struct {
	Format int `json:"format"`
	Entry
}

func openStore(dir string) (*store, error) {
	boot, err := procid.BootID()
	if err != nil {
		return nil, err
	}
	s := &store{dir: filepath.Join(dir, "processes"), boot: boot, signal: make(chan struct{}, 1)}
	if err := atomicfile.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	return s, atomicfile.RemoveTemp(s.dir)
}

const suffix = ".json"

// maxKey keeps file names within what every file system takes.
const maxKey = 128

// checkKey refuses what could not be a file name.
func checkKey(key string) error {
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}
	if key == "" || len(key) > maxKey || key[0] == '.' || strings.ContainsFunc(key, bad) {
		return fmt.Errorf("key %q: want 1 to %d letters, digits, dots and dashes, no dot first", key, maxKey)
	}
	return nil
}

func (s *store) path(key string) string { return filepath.Join(s.dir, key+suffix) }

// create records a process that does not run yet, in one write: a record that is
// torn is about a process that the kernel killed with its keeper.
func (s *store) create(e *Entry) error {
	b, err := json.Marshal(diskRecord{recordFormat, *e})
	if err != nil {
		return err
	}
	if err := failpoint.Inject("keeper/save"); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(e.Key), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return s.save(e) // of a start that failed
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return err
}

func (s *store) save(e *Entry) error {
	b, err := json.Marshal(diskRecord{recordFormat, *e})
	if err != nil {
		return err
	}
	if err := failpoint.Inject("keeper/save"); err != nil {
		return err
	}
	if err := atomicfile.WriteVolatile(s.path(e.Key), b, 0o600); err != nil {
		return err
	}
	if e.Ended {
		s.sync(e.Key)
	}
	return nil
}

func (s *store) remove(key string) error {
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (s *store) sync(key string) {
	s.mu.Lock()
	s.pending = append(s.pending, key)
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// syncTime is how long ends are gathered before they are synced: a sync of each
// by itself would hold up whoever writes to the same file system meanwhile.
const syncTime = 200 * time.Millisecond

// syncer brings records to the disk, many at a time when many processes end.
func (s *store) syncer() {
	for range s.signal {
		time.Sleep(syncTime)
		s.flush()
	}
}

// flush brings all records to the disk that are not there yet.
func (s *store) flush() {
	const many = 16
	s.mu.Lock()
	keys := s.pending
	s.pending = nil
	s.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return
	}
	defer d.Close()
	if len(keys) > many {
		_ = unix.Syncfs(int(d.Fd()))
		return
	}
	for _, key := range keys {
		// One that was removed meanwhile needs no sync.
		if f, err := os.Open(s.path(key)); err == nil {
			_ = f.Sync()
			f.Close()
		}
	}
	_ = d.Sync()
}

// load reads all records. One that is unreadable is set aside: it is about one
// process, and must not keep the keeper from all others.
func (s *store) load(log func(string, ...any)) ([]Entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var out []Entry
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			continue
		}
		e, err := readRecord(filepath.Join(s.dir, f.Name()))
		if procid.Scarce(err) {
			return nil, fmt.Errorf("read records: %w", err) // it is none the worse for that
		}
		if err == nil && e.Key != key {
			err = fmt.Errorf("key %q does not belong to this file name", e.Key)
		}
		if err != nil {
			to, asideErr := atomicfile.SetAside(filepath.Join(s.dir, f.Name()), filepath.Join(filepath.Dir(s.dir), "corrupt"))
			log("unreadable record set aside as %s: %v", to, errors.Join(err, asideErr))
			continue
		}
		if e.ID.BootID == s.boot {
			e.ID.BootID = s.boot // one string for all
		}
		out = append(out, e)
	}
	return out, nil
}

func readRecord(path string) (Entry, error) {
	const most = 1 << 20 // it has some hundred bytes
	b, err := atomicfile.Read(path, most)
	if err != nil {
		return Entry{}, err
	}
	var r diskRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return Entry{}, err
	}
	if r.Format < 1 || r.Format > recordFormat {
		return Entry{}, fmt.Errorf("format %d, this keeper knows 1 to %d", r.Format, recordFormat)
	}
	if r.ID.IsZero() {
		return Entry{}, errors.New("it names no process")
	}
	return r.Entry, checkKey(r.Key)
}
