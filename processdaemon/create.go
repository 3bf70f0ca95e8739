package processdaemon

import (
	"slices"
	"time"

	"tandem/processdaemon/protocol"
)

// Create records a task and begins to prepare it. It may be repeated with
// the same spec; another spec under the same id is a conflict.
func (d *Daemon) Create(spec protocol.Spec) (protocol.Status, error) {
	spec.URIs = slices.Clone(spec.URIs)
	if err := validate(&spec); err != nil {
		return protocol.Status{}, err
	}
	hash, err := specHash(spec)
	if err != nil {
		return protocol.Status{}, err
	}
	if err := d.awaitDeletion(spec.ID); err != nil {
		return protocol.Status{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return protocol.Status{}, errShutdown
	}
	if t := d.tasks[spec.ID]; t != nil {
		s := t.status()
		if s.State == deleted {
			return s, errDeleting(spec.ID) // another one was quicker than we were
		}
		if t.hash != hash {
			return s, fail(protocol.CodeConflict, "task %q exists with another specification; delete it first", spec.ID)
		}
		return s, nil
	}
	if spec.User == "" {
		// Not part of the hash: the same request must stay the same under another default.
		spec.User = d.opts.DefaultUser
	}
	unasked := spec.Limits.Pids == 0 && !d.tree.CostsAMove("pids", groupLimits(&spec.Limits))
	if unasked {
		spec.Limits.Pids = d.opts.DefaultPids // as above
	}
	r := &record{
		Format: recordFormat, Spec: spec, Hash: hash, State: preparing, Version: 1, BootID: d.boot, Created: d.now(),
		PrepareBy: inTime(bootNow(), d.opts.PrepareTimeout), PidsUnasked: unasked,
	}
	if _, err := lookupAccount(spec.User); err == nil && len(spec.URIs) == 0 {
		// Nothing to prepare, so a record less to write.
		r.State = ready
	}
	if err := d.store.save(r, false); err != nil {
		return protocol.Status{}, fail(protocol.CodeInternal, "%v; free disk space or mend the data directory", err)
	}
	d.hold(&r.Spec)
	t := d.newTask(r)
	t.created = true
	d.tasks[spec.ID] = t
	t.resume()
	if t.leased {
		d.reaper.stir()
	}
	return t.status(), nil
}

// deletionTime is how long a creation waits for the end of a deletion under the same
// id, which takes milliseconds.
const deletionTime = 5 * time.Second

func errDeleting(id string) error {
	return fail(protocol.CodeConflict, "task %q is being deleted; ask again, and delete it again if that does not end", id)
}

// awaitDeletion waits until a task that is on its way out is gone: whoever creates
// one is not to be given that.
func (d *Daemon) awaitDeletion(id string) error {
	t, err := d.task(id)
	if err != nil || t.status().State != deleted {
		return nil
	}
	limit := time.NewTimer(d.deletionTime)
	defer limit.Stop()
	select {
	case <-t.done:
		return nil
	case <-limit.C:
		return errDeleting(id)
	case <-d.ctx.Done():
		return errShutdown
	}
}
