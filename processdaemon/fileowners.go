package processdaemon

import (
	"path/filepath"
	"slices"
	"sync"
)

// fileOwners knows whose the files of secrets and configmaps are: the task's that was given
// them last. The next task of an instance may have its files in place before the one before is
// deleted, as after an executor's death or while a daemon hung, and must not lose them to that.
type fileOwners struct {
	// The lock is held while files are put in place and removed.
	mu sync.Mutex
	of map[string]string // path -> task id
}

// claim makes a task the owner. The lock is held.
func (o *fileOwners) claim(paths []string, id string) {
	if o.of == nil {
		o.of = map[string]string{}
	}
	for _, p := range paths {
		o.of[filepath.Clean(p)] = id
	}
}

// release returns which of the paths are a task's to remove: those that no later one was
// given. The lock is held.
func (o *fileOwners) release(paths []string, id string) (own []string) {
	for _, p := range paths {
		switch owner := o.of[filepath.Clean(p)]; owner {
		case id:
			delete(o.of, filepath.Clean(p))
			own = append(own, p)
		case "":
			own = append(own, p)
		}
	}
	return own
}

// claimRecorded is claim for the tasks of records.
func (o *fileOwners) claimRecorded(recs []*record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	recs = slices.Clone(recs)
	slices.SortStableFunc(recs, func(a, b *record) int { return a.Created.Compare(b.Created) })
	for _, r := range recs {
		o.claim(r.Files, r.Spec.ID)
	}
}
