package fetch

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// hold is what one holder holds.
type hold struct{ digests, dirs []string }

// Hold keeps contents in the cache, and directories and what is above them where
// they are, until the holder is released: what the tasks name that this agent
// has. It replaces what the holder held before.
func (f *Fetcher) Hold(holder string, digests, dirs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[holder] = hold{slices.Clone(digests), slices.Clone(dirs)}
}

// Release ends a Hold.
func (f *Fetcher) Release(holder string) {
	f.mu.Lock()
	was := f.held[holder]
	delete(f.held, holder)
	f.mu.Unlock()
	f.left(was.dirs)
}

func (f *Fetcher) isHeld() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]bool{}
	for _, h := range f.held {
		for _, d := range h.digests {
			out[d] = true
		}
	}
	return out
}

// young is how long content stays that was just used: its task may be about to hold it.
const young = 10 * time.Minute

// Collect removes from the cache what nobody holds: all that was not used for
// CacheAge, and beyond CacheBytes what was used longest ago. What is held, named
// here or was used in the last minutes stays. One that is open meanwhile stays
// readable (unlink(2)).
func (f *Fetcher) Collect(keep ...string) {
	type blob struct {
		name string
		size int64
		used time.Time
	}
	entries, err := os.ReadDir(f.blobs())
	if err != nil {
		f.log.Warn("the cache cannot be cleared", "err", err)
		return
	}
	held := f.isHeld()
	for _, k := range keep {
		held[k] = true
	}
	var all []blob
	var sum int64
	for _, e := range entries {
		if !validDigest(digestPrefix + e.Name()) {
			continue // being downloaded
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			all = append(all, blob{e.Name(), st.Size(), st.ModTime()})
			sum += st.Size()
		}
	}
	slices.SortFunc(all, func(a, b blob) int { return a.used.Compare(b.used) })
	gone := 0
	for _, b := range all {
		age := time.Since(b.used)
		if sum <= f.limits.CacheBytes && age < f.limits.CacheAge {
			break // so are all that follow
		}
		if held[digestPrefix+b.name] || age < young {
			continue
		}
		if os.Remove(filepath.Join(f.blobs(), b.name)) == nil {
			sum -= b.size
			gone++
		}
	}
	if gone > 0 {
		f.log.Info("removed from the cache", "contents", gone, "bytes_left", sum)
		f.collectIndex()
	}
}

// collectIndex removes what the index knows about content that is gone.
func (f *Fetcher) collectIndex() {
	entries, err := os.ReadDir(f.index())
	if err != nil {
		return
	}
	for _, e := range entries {
		old := f.entry(e.Name())
		if old == nil {
			continue
		}
		if _, err := os.Lstat(f.blob(old.Digest)); os.IsNotExist(err) {
			// A download that ends meanwhile writes a new one: then it is asked for again.
			_ = os.Remove(filepath.Join(f.index(), e.Name()))
		}
	}
}
