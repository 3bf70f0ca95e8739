package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/internal/atomicfile"
)

// Exclusive calls fn while no other program of the agent is in an Exclusive of
// the same name: it is for choosing among what all owners share, such as whole
// CPUs, by looking at the Records of all and putting one's own. The kernel frees
// the lock of a holder that dies. The wait for it ends with ctx. fn is given the
// time when the last one succeeded; it is zero when that is not known.
func (o *Owner) Exclusive(ctx context.Context, name string, fn func(last time.Time) error) error {
	return o.j.Exclusive(ctx, name, fn)
}

// All returns the records of all owners of the agent, as Journal.Records does.
func (o *Owner) All() ([]Record, error) { return o.j.Records() }

// Exclusive is Owner.Exclusive, for programs that own nothing.
func (j *Journal) Exclusive(ctx context.Context, name string, fn func(last time.Time) error) error {
	dir := filepath.Join(j.dir, "locks")
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("journal: lock %q: %w", name, err)
	}
	var lock *os.File
	for {
		var err error
		// The file stays when the lock goes: its name means nothing.
		if lock, err = takeLock(filepath.Join(dir, encode(name)), rangeOwner); err == nil {
			break
		}
		if !errors.Is(err, ErrOwned) {
			return fmt.Errorf("journal: lock %q: %w", name, err)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("journal: lock %q is held by another program of this agent: %w", name, ctx.Err())
		}
	}
	defer releaseLock(lock)
	var last time.Time
	text := make([]byte, 64)
	if n, _ := lock.ReadAt(text, 0); n > 0 {
		last, _ = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text[:n]))) // half of one is none
	}
	if err := fn(last); err != nil {
		return err
	}
	// For the next one to see; when it cannot be written, that one does not know.
	_, _ = lock.WriteAt(fmt.Appendf(nil, "%-40s\n", time.Now().Format(time.RFC3339Nano)), 0)
	return nil
}

// LastExclusive is when the last Exclusive of this name succeeded; zero when there
// was none, or when that is not known. It takes no lock.
func (o *Owner) LastExclusive(name string) time.Time {
	text, err := os.ReadFile(filepath.Join(o.j.dir, "locks", encode(name)))
	if err != nil {
		return time.Time{}
	}
	last, _ := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))) // half of one is none
	return last
}
