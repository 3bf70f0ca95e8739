package processdaemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"tandem/internal/journal"
)

const (
	// groupsInterval is the pause between two looks for control groups of daemons that
	// were killed and never came back.
	groupsInterval = time.Minute
	// restInterval is the pause between two looks at all owners while nothing happens.
	restInterval = 30 * time.Second
	// awakeTime is how long after something happened the looks are as frequent as ReapInterval says.
	awakeTime = 3 * time.Second
	// suspectTime is how long an owner whose file was closed may still hold its lock: the
	// kernel needs microseconds, if the dying process is given the processor.
	suspectTime  = time.Second
	suspectPause = time.Millisecond
	// failPauses is by how much the pause after cleaning that failed may grow.
	failPauses = 10
)

// reaper undoes what dead owners left. Its loop learns of a death from the kernel,
// in milliseconds, and looks at those owners alone. It looks at all of them for some
// seconds after anything happened, for what no closed file tells, and rarely otherwise.
type reaper struct {
	d *Daemon
	// stirred makes it look at all owners for a while.
	stirred chan struct{}
	wg      sync.WaitGroup

	// Only the loop touches these.
	watch    *journal.Watch // nil where there is none
	suspects map[journal.Mark]time.Time

	mu   sync.Mutex
	said map[string]bool // complaints, each of which is made once
	// failed are the owners whose cleaning failed, until it succeeds.
	failed map[string]failure
	// busy are the owners that are being cleaned up after. Their claims keep them out of
	// what is found to be dead, which does not mean that somebody else has cleaned up.
	busy map[string]bool
}

type failure struct {
	notBefore time.Time
	pause     time.Duration
}

func newReaper(d *Daemon) *reaper {
	return &reaper{
		d: d, stirred: make(chan struct{}, 1), suspects: map[journal.Mark]time.Time{},
		said: map[string]bool{}, failed: map[string]failure{}, busy: map[string]bool{},
	}
}

// stir tells that an owner may be dead though none of its files was closed just now: one
// that was killed between sending a request and our taking it.
func (r *reaper) stir() {
	select {
	case r.stirred <- struct{}{}:
	default:
	}
}

func (r *reaper) run(ctx context.Context) {
	defer r.wg.Wait()
	defer func() {
		if r.watch != nil {
			r.watch.Close()
		}
	}()
	groups := time.NewTicker(groupsInterval)
	defer groups.Stop()
	// At once: an earlier daemon may have been at it.
	all, near := time.NewTimer(0), time.NewTimer(0)
	defer all.Stop()
	defer near.Stop()
	pause, resting := suspectPause, false
	awake := time.Now().Add(awakeTime)
	stir := func() {
		awake = time.Now().Add(awakeTime)
		if resting {
			resting = false
			all.Reset(r.d.opts.ReapInterval)
		}
	}
	r.sweepGroups()
	for {
		var news <-chan struct{}
		if r.watch != nil {
			news = r.watch.C
		}
		select {
		case <-ctx.Done():
			return
		case <-groups.C:
			r.sweepGroups()
		case <-r.stirred:
			stir()
		case _, ok := <-news:
			for _, m := range r.watch.Take() {
				r.suspects[m] = time.Now().Add(suspectTime)
			}
			if !ok {
				r.watch.Close()
				r.watch = nil
			}
			stir()
			pause = suspectPause
			near.Reset(0)
		case <-near.C:
			if r.lookAtSuspects(ctx); len(r.suspects) > 0 {
				near.Reset(pause)
				pause *= 2
			}
		case <-all.C:
			if r.watch == nil {
				r.rewatch()
			}
			r.lookAtAll(ctx)
			resting = r.watch != nil && time.Now().After(awake) && !r.failing()
			if all.Reset(r.d.opts.ReapInterval); resting {
				all.Reset(restInterval)
			}
		}
	}
}

// rewatch watches the owners, before they are looked at, so that none is missed.
func (r *reaper) rewatch() {
	w, err := r.d.journal.Watch()
	if err != nil {
		r.complain("owners are looked at all the time, for they cannot be watched", "", err)
		return
	}
	r.watch = w
}

// complain says what went wrong, once.
func (r *reaper) complain(what, owner string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := what + owner + err.Error(); !r.said[key] {
		r.said[key] = true
		r.d.log.Error(what, "owner", owner, "err", err)
	}
}

// failing tells whether cleaning has to be tried again, or may have to.
func (r *reaper) failing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failed)+len(r.busy) > 0
}

// mayTry tells whether it is time to clean up after an owner.
func (r *reaper) mayTry(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.busy[owner] && !time.Now().Before(r.failed[owner].notBefore)
}

// tried notes how cleaning up after an owner went.
func (r *reaper) tried(owner string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, owner)
	if ok {
		delete(r.failed, owner)
		return
	}
	every := r.d.opts.ReapInterval
	pause := min(max(every, 2*r.failed[owner].pause), failPauses*every)
	r.failed[owner] = failure{time.Now().Add(pause), pause}
}

// forgetFailures forgets all but these owners, for somebody else cleaned up after the others.
func (r *reaper) forgetFailures(but []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failed, func(owner string, _ failure) bool { return !r.busy[owner] && !slices.Contains(but, owner) })
}

// sweepGroups removes the empty control groups of daemons and keepers on other data
// directories that are no more. Those that live hold theirs.
func (r *reaper) sweepGroups() {
	if err := r.d.tree.Sweep("p-", "k-"); err != nil {
		r.complain("control groups of dead daemons cannot be removed", "", err)
	}
}

// lookAtSuspects looks at the owners whose files were closed.
func (r *reaper) lookAtSuspects(ctx context.Context) {
	if len(r.suspects) == 0 {
		return
	}
	dead, live, err := r.d.journal.Dead(slices.Collect(maps.Keys(r.suspects))...)
	if err != nil {
		r.complain("the journal cannot be read", "", err)
	}
	still := map[journal.Mark]time.Time{}
	for _, m := range live {
		if until := r.suspects[m]; time.Now().Before(until) {
			still[m] = until
		}
	}
	r.suspects = still
	for _, owner := range dead {
		r.reap(ctx, owner)
	}
}

func (r *reaper) lookAtAll(ctx context.Context) {
	if err := r.d.journal.Sweep(); err != nil {
		r.complain("what owners without a record left cannot be removed", "", err)
	}
	dead, _, err := r.d.journal.Dead()
	if err != nil {
		r.complain("the journal cannot be read", "", err)
	}
	// A task can be here without a record there: its owner was killed between
	// sending the request and our taking it, or the journal was lost.
	seen := map[string]bool{}
	for _, t := range r.d.leased() {
		if seen[t.owner] || slices.Contains(dead, t.owner) {
			continue
		}
		seen[t.owner] = true
		if held, err := r.d.journal.Owned(t.owner); err == nil && !held {
			dead = append(dead, t.owner)
		}
	}
	r.forgetFailures(dead)
	for _, owner := range dead {
		r.reap(ctx, owner)
	}
}

// reap begins to clean up after an owner, if it is dead.
func (r *reaper) reap(ctx context.Context, owner string) {
	if !r.mayTry(owner) {
		return
	}
	claim, err := r.d.journal.Claim(owner)
	if errors.Is(err, journal.ErrOwned) {
		r.tried(owner, true) // it came back, and its records are its own again
		return
	}
	if err != nil {
		r.complain("an owner cannot be claimed", owner, err)
		r.tried(owner, false)
		return
	}
	r.mu.Lock()
	r.busy[owner] = true
	r.mu.Unlock()
	// One owner whose containers hang must not keep the others waiting.
	r.wg.Go(func() {
		ok := r.reapOwner(ctx, claim)
		if err := claim.Close(); err != nil {
			r.complain("a claim cannot be closed", owner, err)
			ok = false
		}
		r.tried(owner, ok)
	})
}
