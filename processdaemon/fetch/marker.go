package fetch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
)

// mark is what the marker in an outputDir tells.
type mark struct {
	Digest string `json:"digest"`
	// Sum is the checksum that the URI gave.
	Sum string `json:"sum,omitempty"`
	// Boot is there until the content is known to be on the disk: after a power cut
	// (another boot id) such a marker tells nothing, for files may be empty.
	Boot string `json:"boot,omitempty"`
}

func (m *mark) has(want []checksum) bool {
	return len(want) == 0 || want[0].digest() == m.Digest || want[0].String() == m.Sum
}

func readMarker(dir, name string) (m mark) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return mark{}
	}
	defer root.Close()
	b, err := root.ReadFile(name)
	if err != nil || json.Unmarshal(b, &m) != nil || !validDigest(m.Digest) {
		return mark{}
	}
	return m
}

// marker is readMarker for who wants to rely on it.
func (f *Fetcher) marker(dir, name string) mark {
	m := readMarker(dir, name)
	switch m.Boot {
	case "":
	case f.boot:
		f.unconfirmed(dir, name)
	default:
		return mark{}
	}
	return m
}

// unsynced is a marker that is to be confirmed.
type unsynced struct{ dir, name string }

func (f *Fetcher) unconfirmed(dir, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsynced[unsynced{dir, name}] = true
}

// volatile names the contents in the cache that may not be on the disk, each with
// the boot in which they came.
func (f *Fetcher) volatile() string { return filepath.Join(f.dir, "volatile") }

// clearVolatile drops contents that an earlier boot did not write to the disk for
// sure. A record that is empty is from before a power cut, too: file systems
// keep the order of names, not that of content.
func (f *Fetcher) clearVolatile() error {
	entries, err := os.ReadDir(f.volatile())
	if err != nil {
		return err
	}
	for _, e := range entries {
		record := filepath.Join(f.volatile(), e.Name())
		if b, err := os.ReadFile(record); err == nil && string(b) == f.boot {
			continue
		}
		if digest := digestPrefix + e.Name(); validDigest(digest) {
			if err := os.Remove(f.blob(digest)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		if err := os.Remove(record); err != nil {
			return err
		}
	}
	return nil
}

// confirmCache writes the contents of the cache to the disk.
func (f *Fetcher) confirmCache() error {
	entries, err := os.ReadDir(f.volatile())
	if err != nil || len(entries) == 0 {
		return err
	}
	before := map[string]os.FileInfo{}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), atomicfile.TempPrefix) {
			before[e.Name()] = st
		}
	}
	dir, err := os.Open(f.blobs())
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		// One that came again meanwhile is another file.
		record := filepath.Join(f.volatile(), e.Name())
		now, statErr := os.Lstat(record)
		was := before[e.Name()]
		if statErr == nil && was != nil && os.SameFile(now, was) {
			err = errors.Join(err, os.Remove(record))
		}
	}
	return err
}

// Confirm writes what was fetched and unpacked to the disk, for good, and notes that in the
// markers. It may take long, and nobody has to wait for it: until it is done, a
// power cut has things fetched and unpacked again.
func (f *Fetcher) Confirm() {
	if err := f.confirmCache(); err != nil {
		f.log.Warn("the cache may not be on the disk; after a power cut things are fetched again", "err", err)
	}
	f.mu.Lock()
	todo := f.unsynced
	f.unsynced = map[unsynced]bool{}
	f.mu.Unlock()
	for u := range todo {
		if err := f.confirm(u); err != nil {
			f.log.Warn("unpacked content may not be on the disk; after a power cut it is unpacked again", "dir", u.dir, "err", err)
		}
	}
}

func (f *Fetcher) confirm(u unsynced) error {
	lock := f.lockOutput(u.dir)
	lock.Lock()
	defer lock.Unlock()
	m := readMarker(u.dir, u.name)
	if m.Boot == "" {
		return nil // gone, or confirmed
	}
	dir, err := os.Open(u.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	ours := f.unchanged(u.dir)
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return err
	}
	m.Boot = ""
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := replaceIn(u.dir, u.name, b); err != nil {
		return err
	}
	if ours {
		f.recordOutput(u.dir)
	}
	return nil
}
