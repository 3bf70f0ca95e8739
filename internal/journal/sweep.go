package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/internal/atomicfile"
)

// lockAge is how old the lock of an owner without any directory must be to be
// taken for a dead one's: a file that was made just now is about to be locked. That
// takes microseconds; who finds it claimed by a sweep nevertheless tries again.
const lockAge = time.Second

// Sweep removes what dead owners left that hold no record: the directory of one
// which was killed while it wrote its first, or after it deleted its last, and the
// lock of one that was killed before that or in its Close. Nobody else would ever look
// there, since there is no record to be found.
func (j *Journal) Sweep() error {
	dirs, err := os.ReadDir(j.records())
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var errs []error
	known := map[string]bool{}
	for _, d := range dirs {
		known[d.Name()] = true
		if d.IsDir() && bare(filepath.Join(j.records(), d.Name())) {
			errs = append(errs, j.sweep(d.Name()))
		}
	}
	locks, err := os.ReadDir(j.owners())
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for _, l := range locks {
		name, ok := strings.CutSuffix(l.Name(), lockSuffix)
		if !ok || known[name] {
			continue
		}
		// A time to come is from before the clock was set back.
		if st, err := l.Info(); err == nil && time.Since(st.ModTime()).Abs() > lockAge {
			errs = append(errs, j.sweep(name))
		}
	}
	return errors.Join(errs...)
}

// sweep removes what an owner left, by its encoded name, if it is dead.
func (j *Journal) sweep(name string) error {
	lock, err := takeLock(filepath.Join(j.owners(), name+lockSuffix), rangeClaim)
	if errors.Is(err, ErrOwned) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: owner %q: %w", name, err)
	}
	// Nobody writes here while the lock is held; a record that came meanwhile
	// keeps the directory.
	o := &Owner{j: j, name: name, lock: lock, dir: filepath.Join(j.records(), name)}
	return errors.Join(atomicfile.RemoveTemp(o.dir), o.Close())
}

// bare tells whether a directory holds nothing but unfinished files.
func bare(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), atomicfile.TempPrefix) {
			return false
		}
	}
	return true
}
