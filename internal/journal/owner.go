package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
)

// Owner writes records while it holds its lock. Its methods may be called
// from several goroutines.
type Owner struct {
	j    *Journal
	name string
	dir  string

	mu   sync.Mutex
	lock *os.File // nil once closed
	// kept tells that the name of dir survives a power cut.
	kept bool
	// next is an empty file in dir for the next record; empty is none.
	next string
}

// errClosed is returned after Close.
var errClosed = errors.New("journal: the owner was closed")

// Name returns the owner's name.
func (o *Owner) Name() string { return o.name }

// Put writes a record durably, replacing one of the same kind and id. data is
// encoded as JSON. When Put returns nil, the record survives any crash.
func (o *Owner) Put(kind, id string, data any) error {
	return o.put(kind, id, data, true)
}

// PutVolatile is Put without waiting for the disk, which takes milliseconds.
// The record survives every crash of programs, but perhaps not a power cut:
// it is for things that a power cut ends too, such as processes and network
// namespaces, never for containers.
func (o *Owner) PutVolatile(kind, id string, data any) error {
	return o.put(kind, id, data, false)
}

func (o *Owner) put(kind, id string, data any, durable bool) error {
	if kind == "" || id == "" {
		return fmt.Errorf("journal: record %q %q: kind and id must not be empty", kind, id)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	b, err := json.Marshal(Record{Kind: kind, ID: id, Owner: o.name, BootID: o.j.boot, Created: time.Now().UTC(), Data: raw})
	if err != nil {
		return fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lock == nil {
		return errClosed
	}
	if err := failpoint.Inject("journal/put"); err != nil {
		return err
	}
	if err := o.makeDir(durable); err != nil {
		return fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	write := atomicfile.WriteVolatile
	switch {
	case durable:
		write = atomicfile.Write
	case o.next != "":
		// Whatever becomes of it, it is used once.
		next := o.next
		o.next = ""
		write = func(path string, data []byte, perm os.FileMode) error {
			return atomicfile.WriteBy(next, path, data, perm)
		}
	}
	if err := write(o.path(kind, id), b, 0o600); err != nil {
		return fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	return failpoint.Inject("journal/put/done")
}

// makeDir makes the owner's directory. Its name is synced with the first record
// that must survive a power cut, also where it was made for one that need not.
func (o *Owner) makeDir(durable bool) error {
	if err := os.Mkdir(o.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if !durable || o.kept {
		return nil
	}
	if err := atomicfile.SyncDir(filepath.Dir(o.dir)); err != nil {
		return err
	}
	o.kept = true
	return nil
}

// GetReady makes the directory of the owner's records and an empty file in it, so that the first
// volatile record need not wait for them. Close removes both.
func (o *Owner) GetReady() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lock == nil {
		return errClosed
	}
	err := o.makeDir(false)
	if err == nil && o.next == "" {
		next := filepath.Join(o.dir, atomicfile.TempPrefix+"next")
		if err = atomicfile.MakeEmpty(next, 0o600); err == nil {
			o.next = next
		}
	}
	if err != nil {
		return fmt.Errorf("journal: owner %q: %w", o.name, err)
	}
	return nil
}

// Delete removes a record; one that does not exist is no error. Call it only
// after the recorded thing is gone. It does not wait for the disk: a record that
// a power cut brings back makes the reaper look for a thing that is gone.
func (o *Owner) Delete(kind, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lock == nil {
		return errClosed
	}
	if err := failpoint.Inject("journal/delete"); err != nil {
		return err
	}
	if err := os.Remove(o.path(kind, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	return failpoint.Inject("journal/delete/done")
}

// Records returns the owner's records, oldest first.
func (o *Owner) Records() ([]Record, error) {
	return o.j.read(o.dir)
}

// Get decodes the data of one record into data and tells whether it exists.
func (o *Owner) Get(kind, id string, data any) (bool, error) {
	recs, err := o.Records()
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(recs, func(r Record) bool { return r.Kind == kind && r.ID == id })
	if i < 0 {
		return false, nil
	}
	if err := json.Unmarshal(recs[i].Data, data); err != nil {
		return true, fmt.Errorf("journal: record %s %q: %w", kind, id, err)
	}
	return true, nil
}

// Close frees the lock. Records that are left then count as abandoned. When
// none are left, nothing of the owner stays on disk.
func (o *Owner) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lock == nil {
		return nil
	}
	defer func() {
		releaseLock(o.lock)
		o.lock = nil
	}()
	if o.next != "" {
		_ = os.Remove(o.next) // the directory's removal tells
	}
	err := os.Remove(o.dir)
	switch {
	case err == nil, errors.Is(err, os.ErrNotExist):
		// The name goes while the lock is held: whoever opened the file before
		// finds after locking that its name is gone, and starts again.
		if err := os.Remove(o.lock.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("journal: owner %q: %w", o.name, err)
		}
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST):
	default:
		return fmt.Errorf("journal: owner %q: %w", o.name, err)
	}
	return nil
}

func (o *Owner) path(kind, id string) string {
	return filepath.Join(o.dir, fileName(kind, id))
}
