package processdaemon

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	// groupsInterval is the pause between two looks for control groups of daemons that
	// were killed and never came back.
	groupsInterval = time.Minute
	// orphanGrace is what a process of a dead owner gets between SIGTERM and SIGKILL.
	orphanGrace = 3 * time.Second
)

// reapLoop looks for owners that have died and undoes what they left.
func (d *Daemon) reapLoop(ctx context.Context) {
	tick := time.NewTicker(d.opts.ReapInterval)
	defer tick.Stop()
	groups := time.NewTicker(groupsInterval)
	defer groups.Stop()
	// A complaint is made once, not twice a second.
	var mu sync.Mutex
	said := map[string]bool{}
	complain := func(what, owner string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if key := what + owner + err.Error(); !said[key] {
			said[key] = true
			d.log.Error(what, "owner", owner, "err", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	d.sweepGroups(complain)
	// At once: an earlier daemon may have been at it.
	d.reapOnce(ctx, &wg, complain)
	for {
		select {
		case <-ctx.Done():
			return
		case <-groups.C:
			d.sweepGroups(complain)
		case <-tick.C:
			d.reapOnce(ctx, &wg, complain)
		}
	}
}

// sweepGroups removes the empty control groups of daemons and keepers on other data
// directories that are no more. Those that live hold theirs.
func (d *Daemon) sweepGroups(complain complainFunc) {
	if err := d.tree.Sweep("p-", "k-"); err != nil {
		complain("control groups of dead daemons cannot be removed", "", err)
	}
}

// complainFunc says what went wrong, once.
type complainFunc func(what, owner string, err error)

func (d *Daemon) reapOnce(ctx context.Context, wg *sync.WaitGroup, complain complainFunc) {
	if err := d.journal.Sweep(); err != nil {
		complain("what owners without a record left cannot be removed", "", err)
	}
	recs, err := d.journal.Abandoned()
	if err != nil {
		complain("the journal cannot be read", "", err)
	}
	byOwner := map[string][]journal.Record{}
	for _, r := range recs {
		byOwner[r.Owner] = append(byOwner[r.Owner], r)
	}
	// A task can be here without a record there: its owner was killed between
	// sending the request and our taking it, or the journal was lost.
	for _, t := range d.leased() {
		if held, err := d.journal.Owned(t.owner); err == nil && !held {
			if _, ok := byOwner[t.owner]; !ok {
				byOwner[t.owner] = nil
			}
		}
	}
	for owner := range byOwner {
		claim, err := d.journal.Claim(owner)
		if errors.Is(err, journal.ErrOwned) {
			continue
		}
		if err != nil {
			complain("an owner cannot be claimed", owner, err)
			continue
		}
		// One owner whose containers hang must not keep the others waiting. The
		// claim also keeps the next look from working on the same owner.
		wg.Go(func() {
			d.reapOwner(ctx, claim, complain)
			if err := claim.Close(); err != nil {
				complain("a claim cannot be closed", owner, err)
			}
		})
	}
}

// reapOwner undoes everything of one dead owner while it holds the owner's lock.
func (d *Daemon) reapOwner(ctx context.Context, claim *journal.Owner, complain complainFunc) {
	// The records are read again under the lock: the owner may have come back and gone.
	recs, err := claim.Records()
	if err != nil {
		complain("the journal cannot be read", claim.Name(), err)
		return
	}
	undo := func(r journal.Record) {
		clean := d.opts.Cleaners[r.Kind]
		if r.Kind == KindProcess {
			clean = d.cleanProcess
		}
		if clean == nil {
			complain("nobody knows how to clean up after a record", claim.Name(), errors.New("kind "+r.Kind+" id "+r.ID))
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
			complain("clean-up failed and is tried again", claim.Name(), err)
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
			complain("clean-up failed and is tried again", claim.Name(), err)
		}
	})
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
