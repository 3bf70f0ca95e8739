package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tandem/internal/atomicfile"
)

// Sweep removes the directories of dead owners that hold no record: that of one
// which was killed while it wrote its first, or after it deleted its last.
// Nobody else would ever look there, since there is no record to be found.
func (j *Journal) Sweep() error {
	dirs, err := os.ReadDir(j.records())
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		dir := filepath.Join(j.records(), d.Name())
		if !d.IsDir() || !bare(dir) {
			continue
		}
		lock, err := takeLock(filepath.Join(j.owners(), d.Name()+".lock"), rangeClaim)
		if errors.Is(err, ErrOwned) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("journal: owner %q: %w", d.Name(), err))
			continue
		}
		// Nobody writes here while the lock is held; a record that came meanwhile
		// keeps the directory.
		o := &Owner{j: j, name: d.Name(), lock: lock, dir: dir}
		errs = append(errs, atomicfile.RemoveTemp(dir), o.Close())
	}
	return errors.Join(errs...)
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
