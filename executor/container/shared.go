package container

import (
	"context"
	"time"

	"tandem/executor/container/internal/engine"
	"tandem/internal/procid"
)

// Containers that share CPUs are kept off those that others have for themselves.
// When a lease comes or goes, each executor moves its own containers: nobody has
// to touch what is another's, and a launch does not wait for it.

const (
	// shareEvery is how often an executor looks whether a lease has come. It is one
	// small file that is read, and no file as long as nobody ever leased a CPU.
	shareEvery = time.Second
	// shareAgain is after how many looks it is found out without such a sign that a
	// lease has gone: the reaper leaves none.
	shareAgain = 15
)

// sharedCPUs are the CPUs that nobody has for himself; false means that no
// restriction is needed, or none possible: with every CPU leased, those who share
// have to run somewhere.
func (r *Runtime) sharedCPUs() (set string, leased bool) {
	if r.opt.Journal.LastExclusive(cpusetLock).IsZero() {
		return "", false
	}
	all, err := r.opt.Journal.All()
	if err != nil {
		return "", false
	}
	usable, err := r.usable()
	if err != nil {
		return "", false
	}
	boot, err := procid.BootID()
	if err != nil {
		return "", false
	}
	free := freeCPUs(usable, all, boot, "", "")
	if len(free) == 0 || len(free) == len(usable) {
		return joinCPUs(usable), false
	}
	return joinCPUs(free), true
}

// share moves the containers of this executor that share CPUs, until the runtime
// is closed.
func (r *Runtime) share() {
	tick := time.NewTicker(shareEvery)
	defer tick.Stop()
	var seen time.Time
	leased, looks := false, 0
	for {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
		last := r.opt.Journal.LastExclusive(cpusetLock)
		looks++
		if last.Equal(seen) && (!leased || looks < shareAgain) {
			continue
		}
		var set string
		set, leased = r.sharedCPUs()
		if looks = 0; set == "" || r.moveTo(set) {
			seen = last
		}
	}
}

// moveTo tells the engine where the containers that share may run; false when one
// could not be moved, and is to be tried again.
func (r *Runtime) moveTo(set string) bool {
	r.mu.Lock()
	var move []*task
	for _, t := range r.tasks {
		if t.cpus == 0 && t.run != nil && !over(t.run.ended) && t.containerID != "" && t.cpuset != set {
			move = append(move, t)
		}
	}
	r.mu.Unlock()
	ok := true
	for _, t := range move {
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		err := r.engine.Update(ctx, t.containerID, engine.Resources{CpusetCpus: set})
		cancel()
		if err != nil && !over(t.run.ended) {
			r.log.Warn("a container is not kept off the CPUs of others", "task", t.id, "cpus", set, "err", err)
			ok = false
			continue
		}
		r.mu.Lock()
		t.cpuset = set
		r.mu.Unlock()
	}
	return ok
}
