package processdaemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/internal/failpoint"
	"tandem/internal/journal"
)

// KindProcess is the kind of the journal records of process tasks. Their id is
// the task's id.
const KindProcess = "process"

// A Cleaner undoes what an abandoned record describes. It may find nothing
// there, and must then succeed: the owner may have died before it acted. It is
// called again after an error.
type Cleaner func(ctx context.Context, r journal.Record) error

const (
	// cleanTimeout bounds one cleaner's work on one record.
	cleanTimeout = 30 * time.Second
	// orphanGrace is what a process of a dead owner gets between SIGTERM and SIGKILL.
	orphanGrace = 3 * time.Second
)

// reapOwner undoes everything of one dead owner while it holds the owner's lock, and
// tells whether nothing is left.
func (r *reaper) reapOwner(ctx context.Context, claim *journal.Owner) bool {
	d := r.d
	var failed atomic.Bool
	complain := func(what string, err error) {
		failed.Store(true)
		r.complain(what, claim.Name(), err)
	}
	// The records are read again under the lock: the owner may have come back and gone.
	recs, err := claim.Records()
	if err != nil {
		complain("the journal cannot be read", err)
		return false
	}
	undo := func(r journal.Record) {
		clean := d.opts.Cleaners[r.Kind]
		if r.Kind == KindProcess {
			clean = d.cleanProcess
		}
		if clean == nil {
			complain("nobody knows how to clean up after a record", errors.New("kind "+r.Kind+" id "+r.ID))
			return
		}
		d.log.Info("cleaning up after a dead owner", "owner", r.Owner, "kind", r.Kind, "id", r.ID)
		cctx, cancel := context.WithTimeout(ctx, cleanTimeout)
		err := failpoint.Inject("reaper/clean/" + r.Kind)
		if err == nil {
			err = clean(cctx, r)
		}
		cancel()
		if err == nil {
			err = claim.Delete(r.Kind, r.ID)
		}
		if err != nil {
			complain("clean-up failed and is tried again", err)
		}
	}
	// Newest kind first: what was made last rests on what was made before it. Those of one
	// kind go side by side, so that all of a taskgroup are gone after one grace.
	slices.Reverse(recs)
	for len(recs) > 0 {
		n := 1
		for n < len(recs) && recs[n].Kind == recs[0].Kind {
			n++
		}
		inPlaces(n, func(i int) { undo(recs[i]) })
		recs = recs[n:]
	}
	var mine []*task
	for _, t := range d.leased() {
		if t.owner == claim.Name() {
			mine = append(mine, t)
		}
	}
	inPlaces(len(mine), func(i int) {
		t := mine[i]
		d.log.Info("cleaning up after a dead owner", "owner", t.owner, "kind", KindProcess, "id", t.id)
		cctx, cancel := context.WithTimeout(ctx, cleanTimeout)
		err := d.cleanProcess(cctx, journal.Record{ID: t.id})
		cancel()
		if err != nil {
			complain("clean-up failed and is tried again", err)
		}
	})
	return !failed.Load()
}

// inPlaces calls do for 0 to n-1, a few at a time, and returns when all have returned.
func inPlaces(n int, do func(i int)) {
	const places = 8
	slots := make(chan struct{}, places)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

func (d *Daemon) leased() []*task {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*task
	for _, t := range d.tasks {
		if t.leased {
			out = append(out, t)
		}
	}
	return out
}

// cleanProcess stops a task and deletes it.
func (d *Daemon) cleanProcess(ctx context.Context, r journal.Record) error {
	if _, err := d.Stop(r.ID, orphanGrace); err != nil && !isGone(err) {
		return err
	}
	if err := d.awaitEnd(ctx, r.ID); err != nil {
		return err
	}
	return d.Delete(ctx, r.ID)
}
