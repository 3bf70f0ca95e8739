package processdaemon

import "tandem/processdaemon/protocol"

// details are what a phase depends on beside the state.
type details struct {
	// fetching: what the task's URIs name is being fetched, unpacked or put in place.
	fetching bool
	// asked: a client has asked for the end.
	asked   bool
	failure string
	exit    *protocol.Exit
}

// phaseOf says in the field's words where a task is. A task that is ready is staging:
// it waits for its start. An end that was asked for is no failure, whatever the exit
// code: SIGTERM ends most programs. One that nobody asked for is a failure unless
// the exit code says otherwise.
func phaseOf(s protocol.State, d details) protocol.Phase {
	switch s {
	case preparing:
		if d.fetching {
			return protocol.PhaseFetching
		}
		return protocol.PhaseStaging
	case ready:
		return protocol.PhaseStaging
	case starting, settling:
		return protocol.PhaseStarting
	case running:
		return protocol.PhaseRunning
	case stopping, terminating, draining, killing:
		return protocol.PhaseStopping
	case ended, deleted:
	}
	e := d.exit
	if !d.asked && (d.failure != "" || e != nil && (!e.Known || e.Code != 0 || e.Signal != 0)) {
		return protocol.PhaseFailed
	}
	return protocol.PhaseStopped
}

// phase is that of the task now.
func (t *task) phase() protocol.Phase {
	r := t.rec
	// A stop records when it kills at the latest; a start clears that.
	return phaseOf(r.State, details{fetching: t.fetching, asked: r.KillAt != 0, failure: r.Failure, exit: r.Exit})
}
