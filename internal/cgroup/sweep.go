package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweepAge is how long nothing may have changed in a subtree that is swept: a group
// that was made just now is about to get its first process.
const sweepAge = 5 * time.Second

// Hold keeps the subtree from being swept by others for as long as this process lives, or
// until Close. Like every flock(2), the lock on its directory goes with its holder,
// however that ends.
func (t *Tree) Hold() error {
	if t.mode == ModeSession || t.held != nil {
		return nil
	}
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := t.prepare(t.track); Gone(err) {
			continue // removed while it was made, see below
		} else if err != nil {
			return err
		}
		dir := filepath.Join(t.track.mount, t.base)
		f, err := lockDir(dir, unix.LOCK_SH)
		if err != nil {
			return fmt.Errorf("hold cgroup %s: %w", dir, err)
		}
		// A sweep may have removed it between our making it and our lock.
		if f != nil && sameDir(f, dir) {
			t.held = f
			return nil
		}
		if f != nil {
			unlock(f)
		}
	}
	return fmt.Errorf("hold cgroup %s: it is removed again and again", t.base)
}

func (t *Tree) release() {
	if t.held != nil {
		unlock(t.held)
		t.held = nil
	}
}

// unlock lets go of what lockDir locked. A child that is just being started shares the
// open file, and with it the lock, until its exec.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

// Sweep removes the subtrees beside this one whose names begin with one of the
// prefixes, that nobody holds, and in which nothing runs: they are left of programs that were
// killed and never came back. The kernel refuses to remove a group that has a process.
func (t *Tree) Sweep(prefixes ...string) error {
	left, err := t.Unheld(prefixes...)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range left {
		if t.age(name) >= sweepAge {
			errs = append(errs, t.sweep(name))
		}
	}
	return errors.Join(errs...)
}

// Unheld returns the names of the subtrees beside this one that begin with one of the
// prefixes, that nobody holds, and in which nothing runs.
func (t *Tree) Unheld(prefixes ...string) ([]string, error) {
	if t.mode == ModeSession {
		return nil, nil
	}
	seen := map[string]bool{filepath.Base(t.base): true}
	var out []string
	for _, h := range t.hierarchies() {
		entries, err := os.ReadDir(filepath.Join(h.mount, filepath.Dir(t.base)))
		if Gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for cgroups of dead programs: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() || seen[e.Name()] || !hasPrefix(e.Name(), prefixes) {
				continue
			}
			seen[e.Name()] = true
			if f := t.claim(e.Name()); f != nil {
				unlock(f)
				out = append(out, e.Name())
			}
		}
	}
	return out, nil
}

func hasPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// claim locks the first directory of a subtree that nobody holds and that is empty; nil otherwise.
func (t *Tree) claim(name string) *os.File {
	var lock *os.File
	for _, h := range t.hierarchies() {
		dir := filepath.Join(h.mount, filepath.Dir(t.base), name)
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if lock == nil {
			// Holders lock it in the hierarchy that tracks; where it is missing there, there is none.
			f, err := lockDir(dir, unix.LOCK_EX)
			if err != nil || f == nil {
				return nil
			}
			lock = f
		}
		if !idle(dir) {
			unlock(lock)
			return nil
		}
	}
	return lock
}

// age is how long nothing was made or removed in a subtree. When the clock was set back since,
// it is by how much.
func (t *Tree) age(name string) time.Duration {
	var newest time.Time
	look := func(dir string) {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && st.ModTime().After(newest) {
			newest = st.ModTime()
		}
	}
	for _, h := range t.hierarchies() {
		dir := filepath.Join(h.mount, filepath.Dir(t.base), name)
		look(dir)
		entries, _ := os.ReadDir(dir) // one that is gone is of no age
		for _, e := range entries {
			look(filepath.Join(dir, e.Name()))
		}
	}
	return time.Since(newest).Abs()
}

// idle tells whether nothing runs in a group and those below it.
func idle(dir string) bool {
	if pids, err := readPids(filepath.Join(dir, "cgroup.procs")); err != nil || len(pids) > 0 {
		return false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.IsDir() && !idle(filepath.Join(dir, e.Name())) {
			return false
		}
	}
	return true
}

// sweep removes one subtree everywhere, if it may still be removed.
func (t *Tree) sweep(name string) error {
	lock := t.claim(name)
	if lock == nil {
		return nil
	}
	defer unlock(lock)
	for _, h := range t.hierarchies() {
		// Busy: somebody has come to life in it. It is looked at again another time.
		if err := removeEmpty(filepath.Join(h.mount, filepath.Dir(t.base), name)); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("remove the cgroup of a dead program: %w", err)
		}
	}
	return nil
}

// removeEmpty removes a directory of groups from below, without insisting.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if Gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeEmpty(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !Gone(err) {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// lockDir opens a directory and locks it; nil when another has a lock that excludes this one.
func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		if Gone(err) {
			return nil, nil //nolint:nilnil // removed meanwhile, which is as good as locked by another
		}
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, nil //nolint:nilnil // see above
	default:
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
}

func sameDir(f *os.File, dir string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(dir)
	return err == nil && os.SameFile(a, b)
}
