package processdaemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
	"tandem/processdaemon/protocol"
)

// recordFormat is the version of the record on disk.
const recordFormat = 1

// recordMode is that of a record's file: the environment may hold secrets.
const recordMode = 0o600

// record is all that the daemon knows about a task, and what it keeps on disk.
// Times with the suffix By or At are nanoseconds of CLOCK_BOOTTIME, which no
// clock adjustment moves and which BootID makes comparable after a restart.
type record struct {
	Format int `json:"format"`
	// Spec is on disk without the passwords and queries of the URIs, and in memory once
	// those were fetched. Places are those of the sealed URIs of a record that was
	// read, while they are fetched; see fetch.Seal.
	Spec    protocol.Spec  `json:"spec"`
	Places  []string       `json:"places,omitempty"`
	Hash    string         `json:"hash"`
	State   protocol.State `json:"state"`
	Version uint64         `json:"version"`
	BootID  string         `json:"bootID"`
	Created time.Time      `json:"created"`

	// Starts counts the commands that were issued; with the task's id it is the
	// name of each for the keeper.
	Starts uint64 `json:"starts,omitempty"`
	// StartKey, MainKey and StopKey are the keeper's keys of the start command, the
	// main process and the stop command. They are recorded before these are started.
	StartKey string `json:"startKey,omitempty"`
	MainKey  string `json:"mainKey,omitempty"`
	StopKey  string `json:"stopKey,omitempty"`
	// Again says that the task is started once more when it is empty; Restarts
	// counts how often it was.
	Again    bool `json:"again,omitempty"`
	Restarts int  `json:"restarts,omitempty"`
	// Reload is the last reload, ReloadKey its command's key.
	Reload    *protocol.Reload `json:"reload,omitempty"`
	ReloadKey string           `json:"reloadKey,omitempty"`
	// Command is the start command of a task with a pid file.
	Command procid.Identity `json:"command,omitzero"`
	// CommandUnseen says that no daemon saw how the start command ended.
	CommandUnseen bool            `json:"commandUnseen,omitempty"`
	Main          procid.Identity `json:"main,omitzero"`
	// Pid is the last main process, also after its end.
	Pid        int            `json:"pid,omitempty"`
	StartedAt  time.Time      `json:"startedAt,omitzero"`
	FinishedAt time.Time      `json:"finishedAt,omitzero"`
	Exit       *protocol.Exit `json:"exit,omitempty"`
	Failure    string         `json:"failure,omitempty"`
	Notes      []string       `json:"notes,omitempty"`
	// StopFailure says why the last stop command did not do.
	StopFailure string `json:"stopFailure,omitempty"`
	// PidsUnasked says that the limit of processes is the daemon's default: where it cannot
	// be had, nobody misses it.
	PidsUnasked bool `json:"pidsUnasked,omitempty"`
	// Files are those put in place, to be removed at the end; secrets are among them.
	Files []string `json:"files,omitempty"`

	PrepareBy   int64 `json:"prepareBy,omitempty"`
	StartBy     int64 `json:"startBy,omitempty"`
	AliveBy     int64 `json:"aliveBy,omitempty"`
	TermAt      int64 `json:"termAt,omitempty"`
	KillAt      int64 `json:"killAt,omitempty"`
	KillAgainAt int64 `json:"killAgainAt,omitempty"`
}

// deadline returns the deadline that holds in the record's state, or 0.
func (r *record) deadline() int64 {
	switch deadlineOf[r.State] {
	case "prepareBy":
		return r.PrepareBy
	case "startBy":
		return r.StartBy
	case "aliveBy":
		return r.AliveBy
	case "termAt":
		return r.TermAt
	case "killAt":
		return r.KillAt
	case "killAgainAt":
		return r.KillAgainAt
	}
	return 0
}

// store keeps one JSON file per task. Records are replaced atomically but not
// synced to the disk: all they describe, save the files of a task, ends with
// the boot, and a sync costs more than everything else in a start.
type store struct {
	dir string
	// trouble is told what is found damaged when the records are loaded.
	trouble func(what string, err error)
}

func (s *store) tasks() string { return filepath.Join(s.dir, "tasks") }

// path names a record by a hash, because ids may be long and hold any byte.
func (s *store) path(id string) string {
	return filepath.Join(s.tasks(), shortHash(id)+".json")
}

func shortHash(id string) string { return protocol.GroupName(id) }

func (s *store) save(r *record, durable bool) error {
	if err := failpoint.Inject("processdaemon/save/" + string(r.State)); err != nil {
		return err
	}
	sealed := *r
	sealed.Spec.URIs, sealed.Places = seal(r.Spec.URIs, r.Places)
	if r.State != preparing {
		sealed.Places = nil
	}
	b, err := json.Marshal(&sealed)
	if err != nil {
		return fmt.Errorf("record of task %q: %w", r.Spec.ID, err)
	}
	write := atomicfile.Swap
	switch {
	case durable:
		write = atomicfile.Write
		// No more of its records take turns, see below.
		_ = os.Remove(atomicfile.Spare(s.path(r.Spec.ID)))
	case len(r.Files) > 0:
		// After a power cut an older record could lack some of them.
		write = atomicfile.WriteVolatile
	}
	if err := write(s.path(r.Spec.ID), b, recordMode); err != nil {
		return fmt.Errorf("record of task %q: %w", r.Spec.ID, err)
	}
	return failpoint.Inject("processdaemon/saved/" + string(r.State))
}

func (s *store) remove(id string) error {
	if err := failpoint.Inject("processdaemon/remove"); err != nil {
		return err
	}
	// The record is what counts; a spare without one is removed by the next daemon.
	for _, path := range []string{s.path(id), atomicfile.Spare(s.path(id))} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("record of task %q: %w", id, err)
		}
	}
	return nil
}

// load reads all records. What is unreadable is set aside and told: it must not keep
// the daemon from looking after all the others. complete is false when there may be
// records that were not seen.
func (s *store) load() (recs []*record, complete bool) {
	if st, err := os.Lstat(s.tasks()); err == nil && !st.IsDir() {
		s.quarantine(s.tasks(), errors.New("it is not a directory"))
	}
	if err := atomicfile.MkdirAll(s.tasks(), 0o700); err != nil {
		s.trouble("no task can be recorded", err)
	}
	if err := atomicfile.RemoveTemp(s.tasks()); err != nil {
		s.trouble("what a killed daemon was writing cannot be removed", err)
	}
	entries, err := os.ReadDir(s.tasks())
	if err != nil {
		s.trouble("the records cannot be listed, so what they name is not looked after", err)
		return nil, false
	}
	complete = true
	limit := time.Now().Add(scarceTime)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(s.tasks(), e.Name())
		r, err := readPatiently(path, limit)
		if procid.Scarce(err) {
			// It is none the worse for that, and what it names must not be killed.
			s.trouble("a record cannot be read until the daemon is restarted, and its task is not looked after", err)
			complete = false
			continue
		}
		if err == nil && s.path(r.Spec.ID) != path {
			err = fmt.Errorf("task id %q does not belong to this file name", r.Spec.ID)
		}
		if err != nil {
			s.quarantine(path, err)
			continue
		}
		recs = append(recs, r)
	}
	return recs, complete
}

// scarceTime is how long a start waits for files and memory.
const scarceTime = 3 * time.Second

// readPatiently is readRecord that waits for files and memory, until limit.
func readPatiently(path string, limit time.Time) (*record, error) {
	for {
		r, err := readRecord(path)
		if !procid.Scarce(err) || time.Now().After(limit) {
			return r, err
		}
		time.Sleep(pollMost)
	}
}

// maxRecord is more than any record has: a request of the API is smaller.
const maxRecord = 64 << 20

func readRecord(path string) (*record, error) {
	b, err := atomicfile.Read(path, maxRecord)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("format %d, this daemon knows %d", r.Format, recordFormat)
	}
	if _, ok := table[r.State]; !ok {
		return nil, fmt.Errorf("unknown state %q", r.State)
	}
	if r.State == running && r.Main.IsZero() {
		return nil, errors.New("it says running and names no process")
	}
	return r, nil
}

func (s *store) quarantine(path string, why error) {
	to, err := atomicfile.SetAside(path, filepath.Join(s.dir, "corrupt"))
	if err != nil {
		s.trouble("an unreadable record cannot be set aside; its task, if any, is stopped", fmt.Errorf("%s: %w", path, errors.Join(why, err)))
		return
	}
	s.trouble("an unreadable record was set aside as "+to+"; its task, if any, is stopped", fmt.Errorf("%s: %w", path, why))
}

// now is the time of day, for people alone: the clock may be set at any moment, so no
// decision rests on it.
func (d *Daemon) now() time.Time { return d.clock().UTC() }

// later returns the second time, or the first when the clock was set back in between.
func later(first, second time.Time) time.Time {
	if second.Before(first) {
		return first
	}
	return second
}

// longest is more than any deadline needs, and small enough to be counted from any time.
const longest = 100 * 365 * 24 * time.Hour

// inTime is a deadline that is d from a time of bootNow.
func inTime(now int64, d time.Duration) int64 { return now + int64(min(max(0, d), longest)) }

// bootNow is the time since boot, suspension included.
func bootNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Cannot fail on Linux 2.6.39 and later; without a clock no deadline would hold.
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error())
	}
	return ts.Nano()
}
