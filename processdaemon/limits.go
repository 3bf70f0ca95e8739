package processdaemon

import (
	"errors"

	"tandem/internal/cgroup"
	"tandem/processdaemon/protocol"
)

// SetLimits gives a running task other limits, without a restart; zero takes one
// away. They hold for restarts of the task as well.
func (d *Daemon) SetLimits(id string, l protocol.Limits) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	if l.CPUs < 0 || l.MemMB < 0 || l.CPURequest < 0 || l.CPUs > maxCores || l.CPURequest > maxCores || l.MemMB > maxMemoryMB {
		return protocol.Status{}, fail(protocol.CodeInvalid, "limits of %g cores, a request of %g cores and %g MiB are no sensible amounts", l.CPUs, l.CPURequest, l.MemMB)
	}
	return t.ask(message{limits: &l})
}

// The largest amounts that make any sense.
const (
	maxCores    = 1 << 20
	maxMemoryMB = 1 << 40
)

// setLimits sets them first and records them then: whoever asked and got no answer,
// because the daemon was killed in between, asks its successor again.
func (t *task) setLimits(l protocol.Limits) error {
	r := t.rec
	if r.State != running {
		return fail(protocol.CodeConflict, "task %q is %s: only a running one gets other limits", r.Spec.ID, r.State)
	}
	before := r.Spec.Limits
	if err := t.group.Update(groupLimits(&l)); err != nil {
		err = errors.Join(err, t.group.Update(groupLimits(&before)))
		return fail(protocol.CodeConflict, "task %q keeps its limits: %v", r.Spec.ID, err)
	}
	r.Spec.Limits = l
	if err := t.save(); err != nil {
		r.Spec.Limits = before
		err = errors.Join(err, t.group.Update(groupLimits(&before)))
		return fail(protocol.CodeInternal, "task %q keeps its limits: %v; free disk space or mend the data directory", r.Spec.ID, err)
	}
	return nil
}

func groupLimits(l *protocol.Limits) cgroup.Limits {
	return cgroup.Limits{CPUs: l.CPUs, CPURequest: l.CPURequest, MemoryBytes: int64(l.MemMB * (1 << 20))}
}
