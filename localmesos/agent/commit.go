package agent

import "context"

// commitFiles is how many files may wait for one commit; each is open meanwhile.
const commitFiles = 128

// out does what others will see: an answer, an event, a message. It waits until
// all that the agent has recorded so far is on disk, and keeps the order. Only the
// loop may call it.
func (a *Agent) out(f func()) {
	if a.group.Empty() && len(a.outputs) == 0 {
		f()
		return
	}
	a.outputs = append(a.outputs, f)
}

// commit puts everything recorded on disk and then lets out what waited for it.
// The loop calls it when it has nothing else to do, so that what came at the same
// moment shares the wait for the disk. Only the loop may call it.
func (a *Agent) commit() {
	if err := a.group.Sync(); err != nil {
		// The agent knows things now that the next one will not, so nobody may hear
		// of them from this one.
		a.log.Error("checkpoints cannot be brought to the disk; the agent ends, its executors go on", "error", err)
		a.outputs = nil
		a.end(err)
		return
	}
	outputs := a.outputs
	a.outputs = nil
	for _, f := range outputs {
		f()
	}
}

// afterEach is called by the loop after each function; idle tells that no other
// waits.
func (a *Agent) afterEach(idle bool) {
	if idle || a.group.Len() >= commitFiles {
		a.commit()
	}
}

// durably runs f in the loop and returns when what it recorded is on disk. It
// returns false when the loop or ctx ended first, as loop.do does.
func (a *Agent) durably(ctx context.Context, f func()) bool {
	ran := make(chan struct{})
	a.loop.post(func() {
		f()
		a.out(func() { close(ran) })
	})
	return a.loop.wait(ctx, ran)
}
