// Package journal keeps durable records of what a program is about to make, so
// that what it made can be removed when it dies. Whoever makes something that
// outlives a process (a container, a network namespace, a supervised process)
// puts a record first and deletes it last. A living owner holds a lock; the
// reaper in the process daemon walks the records whose lock is free.
//
// On disk, below the journal's directory:
//
//	owners/<owner>.lock             locked while the owner lives
//	records/<owner>/<kind>@<id>.json  {"kind","id","owner","bootID","created","data"}
//	corrupt/                        what could not be read, kept for people
//
// Liveness is the lock and nothing else: the kernel frees it when the owner
// dies, however it dies, and no pid can be mistaken for it. The locks are open
// file description locks (fcntl(2), F_OFD_SETLK): like flock's they belong to the
// open file, and unlike flock's they can be tested without being taken, so that
// a reaper that looks can never make an owner's start fail.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// ErrOwned says that a living process holds the owner's lock.
var ErrOwned = errors.New("the owner is alive")

// Record is one intent.
type Record struct {
	// Kind names who knows how to undo it, for example container or process.
	Kind string `json:"kind"`
	// ID is unique for the kind and owner.
	ID string `json:"id"`
	// Owner is the executor id.
	Owner string `json:"owner"`
	// BootID is the boot in which the record was written.
	BootID  string          `json:"bootID"`
	Created time.Time       `json:"created"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Journal is a directory of records, shared by all programs of an agent.
type Journal struct {
	dir  string
	boot string
	// told are the paths of unreadable records that could not be set aside.
	told sync.Map
}

// Open opens the journal and makes its directory when it is missing.
func Open(dir string) (*Journal, error) {
	boot, err := procid.BootID()
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	j := &Journal{dir: dir, boot: boot}
	if err := atomicfile.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w; choose a data directory that is writable", err)
	}
	// Records may hold secrets of the tasks they describe.
	for _, d := range []string{j.owners(), j.records()} {
		if err := atomicfile.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("journal: %w; choose a data directory that is writable", err)
		}
	}
	return j, nil
}

func (j *Journal) owners() string  { return filepath.Join(j.dir, "owners") }
func (j *Journal) records() string { return filepath.Join(j.dir, "records") }

// Own takes the owner's lock, so that its records are nobody else's to remove.
// It returns ErrOwned when a living process, the reaper included, holds it.
func (j *Journal) Own(owner string) (*Owner, error) { return j.own(owner, rangeOwner) }

func (j *Journal) own(owner string, length int64) (*Owner, error) {
	if owner == "" {
		return nil, errors.New("journal: the owner must have a name")
	}
	lock, err := takeLock(j.lockPath(owner), length)
	if err != nil {
		return nil, fmt.Errorf("journal: owner %q: %w", owner, err)
	}
	o := &Owner{j: j, name: owner, lock: lock, dir: filepath.Join(j.records(), encode(owner))}
	if err := atomicfile.RemoveTemp(o.dir); err != nil {
		releaseLock(lock)
		return nil, fmt.Errorf("journal: owner %q: %w", owner, err)
	}
	if err := failpoint.Inject("journal/owned"); err != nil {
		releaseLock(lock)
		return nil, err
	}
	return o, nil
}

// Claim is Own for a reaper: it takes over a dead owner's records. While the
// claim is held, a new process of the same name cannot start to own them.
func (j *Journal) Claim(owner string) (*Owner, error) { return j.own(owner, rangeClaim) }

// Owned tells whether a living process, the reaper included, holds the owner's lock.
func (j *Journal) Owned(owner string) (bool, error) {
	by, err := lockHolder(j.lockPath(owner))
	return by != nobody, err
}

// Left returns the owners whose names begin with prefix, who are dead, and after
// whom a reaper has not cleaned up to the end.
func (j *Journal) Left(prefix string) ([]string, error) {
	dirs, err := os.ReadDir(j.records())
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	// Names are encoded byte by byte, and long ones are cut.
	head := encode(prefix)
	head = head[:min(len(head), maxName-35)]
	var owners []string
	for _, d := range dirs {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), head) {
			continue
		}
		by, err := lockHolder(filepath.Join(j.owners(), d.Name()+lockSuffix))
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if by == anOwner {
			continue
		}
		recs, err := j.read(filepath.Join(j.records(), d.Name()))
		if err != nil {
			return nil, err
		}
		if len(recs) > 0 && strings.HasPrefix(recs[0].Owner, prefix) {
			owners = append(owners, recs[0].Owner)
		}
	}
	return owners, nil
}

// Records returns all records, ordered by owner and age.
func (j *Journal) Records() ([]Record, error) {
	owners, err := os.ReadDir(j.records())
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []Record
	for _, o := range owners {
		if !o.IsDir() {
			continue
		}
		recs, err := j.read(filepath.Join(j.records(), o.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, recs...)
	}
	return out, nil
}

// Abandoned returns the records whose owner is dead, those that a reaper is at
// work on included, and those from before the last reboot. Claim the owner
// before undoing anything: the answer is only a hint.
func (j *Journal) Abandoned() ([]Record, error) {
	all, err := j.Records()
	if err != nil {
		return nil, err
	}
	held := map[string]bool{}
	var out []Record
	for _, r := range all {
		alive, seen := held[r.Owner]
		if !seen {
			by, err := lockHolder(j.lockPath(r.Owner))
			if err != nil {
				return nil, fmt.Errorf("journal: owner %q: %w", r.Owner, err)
			}
			alive = by == anOwner
			held[r.Owner] = alive
		}
		if !alive || r.BootID != j.boot {
			out = append(out, r)
		}
	}
	return out, nil
}

// read returns the records of one owner's directory, oldest first. An
// unreadable one is set aside with a log line: one bad file must not keep
// the others from being cleaned up.
func (j *Journal) read(dir string) ([]Record, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []Record
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, err := atomicfile.Read(path, maxRecord)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			return nil, fmt.Errorf("journal: %w", err)
		}
		var r Record
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err == nil && (fileName(r.Kind, r.ID) != e.Name() || encode(r.Owner) != filepath.Base(dir)) {
			err = errors.New("kind, id or owner does not match the file's name")
		}
		if err != nil {
			j.quarantine(path, err)
			continue
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b Record) int { return a.Created.Compare(b.Created) })
	return out, nil
}

// maxRecord is more than any record has.
const maxRecord = 64 << 20

func (j *Journal) quarantine(path string, why error) {
	to, err := atomicfile.SetAside(path, filepath.Join(j.dir, "corrupt"))
	if err != nil {
		// It is looked at again and again; once is enough to say so.
		if _, said := j.told.LoadOrStore(path, true); !said {
			slog.Error("unreadable journal record cannot be set aside", "path", path, "reason", why, "err", err)
		}
		return
	}
	j.told.Delete(path)
	slog.Error("unreadable journal record set aside", "path", path, "to", to, "reason", why)
}
