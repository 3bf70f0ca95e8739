package agent

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tandem/localmesos/internal/flags"
)

// garbage are directories that will be removed: sandboxes of executors that have
// ended, and what earlier agents left. When one became garbage is its own time of
// change, so that the next agent finds all of it on the disk and nothing else has
// to be recorded.
type garbage struct {
	paths map[string]time.Time // when each became garbage
	stop  func()               // timer of the next look
	// removing are directories that are being removed beside the loop.
	removing        bool
	removed, failed int
}

// discardLater makes an executor's sandbox garbage.
func (a *Agent) discardLater(e *executor) {
	now := a.clock.Now()
	if err := os.Chtimes(e.directory, now, now); err != nil {
		return // there is none: it was never made
	}
	a.addGarbage(e.directory, now)
	a.planCollection()
}

func (a *Agent) addGarbage(path string, since time.Time) {
	if a.garbage.paths == nil {
		a.garbage.paths = map[string]time.Time{}
	}
	a.garbage.paths[path] = since
}

// recoverGarbage finds all sandboxes that no executor uses. Those of executors
// that ended while no agent was there become garbage when that is noticed.
func (a *Agent) recoverGarbage() {
	inUse := map[string]bool{}
	for _, fw := range a.frameworks {
		for _, e := range fw.executors {
			inUse[e.directory] = true
		}
	}
	for _, path := range a.store.Sandboxes(a.id()) {
		if st, err := os.Stat(path); err == nil && !inUse[path] {
			a.addGarbage(path, st.ModTime())
		}
	}
	a.loop.post(a.collect)
}

// planCollection sets the timer of the next look: there is none while there is
// nothing to remove, so that an idle agent sleeps.
func (a *Agent) planCollection() {
	if a.garbage.stop != nil || a.garbage.removing || len(a.garbage.paths) == 0 {
		return
	}
	wait := a.flags.DiskWatchInterval
	for _, since := range a.garbage.paths {
		wait = min(wait, max(0, since.Add(a.flags.GCDelay).Sub(a.clock.Now())))
	}
	a.garbage.stop = a.after(wait, func() {
		a.garbage.stop = nil
		a.collect()
	})
}

// collect removes what has been garbage for long enough, beside the loop.
func (a *Agent) collect() {
	usage := diskUsage(a.store.Work())
	age := maxAge(a.flags.GCDelay, a.flags.GCDiskHeadroom, usage)
	var due []string
	for path, since := range a.garbage.paths {
		if a.clock.Now().Sub(since) >= age {
			due = append(due, path)
			delete(a.garbage.paths, path)
		}
	}
	if len(due) == 0 {
		a.planCollection()
		return
	}
	a.log.Info("removing sandboxes", "count", len(due), "disk_usage", usage, "max_age", flags.FormatDuration(age.Round(time.Second)))
	a.garbage.removing = true
	a.work.Go(func() {
		errs := make([]error, len(due))
		for i, path := range due {
			if a.ctx.Err() != nil {
				return // the next agent finds the rest
			}
			errs[i] = os.RemoveAll(path)
		}
		a.loop.post(func() { a.collected(due, errs) })
	})
}

func (a *Agent) collected(paths []string, errs []error) {
	a.garbage.removing = false
	for i, path := range paths {
		if errs[i] != nil {
			a.garbage.failed++
			a.log.Error("a sandbox cannot be removed; the next agent tries again", "path", path, "error", errs[i])
			continue
		}
		a.garbage.removed++
		// Here, and not beside the loop, which may be making the next sandbox there.
		a.store.RemoveEmpty(path)
	}
	a.planCollection()
}

// maxAge is how long garbage stays: docs/sandbox.md of Apache Mesos.
func maxAge(delay time.Duration, headroom, usage float64) time.Duration {
	return time.Duration(float64(delay) * max(0, 1-headroom-usage))
}

// diskUsage is the used part of the file system, from 0 to 1; 0 if nobody can tell.
func diskUsage(dir string) float64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return 0
	}
	return float64(st.Blocks-st.Bfree) / float64(st.Blocks)
}
