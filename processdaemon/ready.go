package processdaemon

import (
	"tandem/internal/atomicfile"
	"tandem/internal/cgroup"
	"tandem/internal/failpoint"
)

// getReady makes what the start of a task that has just been created will need: the file
// that its next record goes to, its output files, its control group. Whoever created it
// reads the answer and asks for the start meanwhile. The start makes sure of each again, and
// tells what is wrong; what is not used goes with the task. On a file system on which many
// files come and go a new one costs up to half a millisecond.
func (t *task) getReady() {
	if failpoint.Armed() {
		return // the points of a start are counted, and must be the same each time
	}
	_ = atomicfile.MakeEmpty(atomicfile.Spare(t.d.store.path(t.id)), recordMode)
	for _, name := range outputs {
		if f, err := openOutput(t.sandbox, name); err == nil {
			f.Close()
		}
	}
	_, _ = t.group.Create(t.limits())
}

// limits are those of the task's control group.
func (t *task) limits() cgroup.Limits {
	l := groupLimits(&t.rec.Spec.Limits)
	l.PidsIfPossible = t.rec.PidsUnasked
	return l
}
