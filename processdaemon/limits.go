package processdaemon

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"tandem/internal/cgroup"
	"tandem/processdaemon/protocol"
)

// SetLimits gives a running task other limits, without a restart; zero takes one
// away, but for that of processes, which stays. They hold for restarts of the task as well.
func (d *Daemon) SetLimits(id string, l protocol.Limits) (protocol.Status, error) {
	t, err := d.task(id)
	if err != nil {
		return protocol.Status{}, err
	}
	if what := nonsense(l); what != "" {
		return protocol.Status{}, fail(protocol.CodeInvalid, "%s", what)
	}
	return t.ask(message{limits: &l})
}

// The largest amounts that make any sense.
const (
	maxCores    = 1 << 20
	maxMemoryMB = 1 << 40
)

// nonsense says what cannot be meant, otherwise nothing.
func nonsense(l protocol.Limits) string {
	if l.CPUs < 0 || l.MemMB < 0 || l.CPURequest < 0 || l.CPUs > maxCores || l.CPURequest > maxCores || l.MemMB > maxMemoryMB || l.Pids < protocol.PidsNone {
		return fmt.Sprintf("limits of %g cores, a request of %g cores, %g MiB and %d processes are no sensible amounts", l.CPUs, l.CPURequest, l.MemMB, l.Pids)
	}
	return ""
}

// setLimits sets them first and records them then: whoever asked and got no answer,
// because the daemon was killed in between, asks its successor again.
func (t *task) setLimits(l protocol.Limits) error {
	r := t.rec
	if r.State != running {
		return fail(protocol.CodeConflict, "task %q is %s: only a running one gets other limits", r.Spec.ID, r.State)
	}
	before, unasked := r.Spec.Limits, r.PidsUnasked
	undo := groupLimits(&before)
	if undo.Pids == 0 {
		undo.Pids = protocol.PidsNone
	}
	if l.Pids == 0 {
		l.Pids = before.Pids
	} else {
		r.PidsUnasked = false
	}
	set := groupLimits(&l)
	if r.Reload != nil && r.Reload.Running {
		set.Pids = withRoom(set.Pids)
	}
	if err := t.group.Update(set); err != nil {
		r.PidsUnasked = unasked
		err = errors.Join(err, t.group.Update(undo))
		return fail(protocol.CodeConflict, "task %q keeps its limits: %v", r.Spec.ID, err)
	}
	r.Spec.Limits = l
	if err := t.save(); err != nil {
		r.Spec.Limits, r.PidsUnasked = before, unasked
		err = errors.Join(err, t.group.Update(undo))
		return fail(protocol.CodeInternal, "task %q keeps its limits: %v; free disk space or mend the data directory", r.Spec.ID, err)
	}
	return nil
}

// commandRoom is how many processes more than its limit a task may have while its stop, kill
// or reload command runs.
const commandRoom = 64

// withRoom is a limit of processes with room for a command, which could not fork, or not even
// start, in a task that stands at its limit. What the task itself takes of it meanwhile it keeps; a
// task that is on its way out has it to its end.
func withRoom(pids int64) int64 {
	if pids <= 0 {
		return pids
	}
	return pids + commandRoom
}

func (t *task) makeRoom() {
	if l := t.rec.Spec.Limits.Pids; l > 0 {
		if err := t.group.LimitPids(withRoom(l)); err != nil {
			t.log.Warn("a command has no room beside the processes of its task", "limit", l, "err", err)
		}
	}
}

// takeRoom gives a task that runs on after a command its own limit of processes again.
func (t *task) takeRoom() {
	if l := t.rec.Spec.Limits.Pids; l > 0 && t.rec.State == running {
		if err := t.group.LimitPids(l); err != nil {
			t.log.Warn("the limit of processes is higher than asked for", "limit", l, "err", err)
		}
	}
}

func groupLimits(l *protocol.Limits) cgroup.Limits {
	return cgroup.Limits{CPUs: l.CPUs, CPURequest: l.CPURequest, MemoryBytes: int64(l.MemMB * (1 << 20)), Pids: l.Pids}
}

// DefaultPids is what a daemon of an agent should have as Options.DefaultPids: 15 % of
// the processes that the machine can have, as systemd's DefaultTasksMax, so that a task which
// forks without end leaves room for all others. 0 where that cannot be read.
func DefaultPids() int64 {
	const share, hundred = 15, 100
	least := int64(0)
	for _, path := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		b, err := os.ReadFile(path)
		n, numErr := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || numErr != nil {
			continue
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least * share / hundred
}
