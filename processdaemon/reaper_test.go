package processdaemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"tandem/internal/journal"
)

// TestFailedCleanUpIsTriedAgain: what cannot be cleaned up is tried again, less and less
// often, until it succeeds, also where nothing else happens.
func TestFailedCleanUpIsTriedAgain(t *testing.T) {
	t.Parallel()
	const failures = 4
	var tries atomic.Int32
	d := newDaemon(t, func(o *Options) {
		o.ReapInterval = 10 * time.Millisecond
		o.Cleaners = map[string]Cleaner{"thing": func(context.Context, journal.Record) error {
			if tries.Add(1) <= failures {
				return errors.New("not yet")
			}
			return nil
		}}
	})
	began := time.Now()
	o, err := d.journal.Own("dead")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.PutVolatile("thing", "x", nil); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was cleaned up", func() bool {
		recs, err := d.journal.Records()
		return err == nil && len(recs) == 0
	})
	// 10, 20, 40 and 80 ms.
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("%d tries took %v only", tries.Load(), took)
	}
	eventually(t, "it is over", func() bool {
		return !d.reaper.failing() && !exists(filepath.Join(d.opts.DataDir, "journal/owners/dead.lock"))
	})
	if n := tries.Load(); n != failures+1 {
		t.Errorf("%d tries", n)
	}
}
