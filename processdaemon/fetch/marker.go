package fetch

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tandem/internal/atomicfile"
	"tandem/internal/safepath"
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
	// The directory is a task's: anything may be in the marker's place.
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return mark{}
	}
	defer file.Close()
	const longest = 4 << 10
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > longest {
		return mark{}
	}
	b, err := io.ReadAll(io.LimitReader(file, longest))
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
	unlock, free := f.tryLockOutput(u.dir)
	if !free {
		f.unconfirmed(u.dir, u.name)
		return nil
	}
	defer unlock()
	m := readMarker(u.dir, u.name)
	if m.Boot == "" {
		return nil // gone, or confirmed
	}
	root, err := safepath.OpenRoot(u.dir, false)
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.Open(".")
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
	if err := replaceIn(root, u.name, b); err != nil {
		return err
	}
	if ours {
		f.recordOutput(u.dir)
	}
	return nil
}

func replaceIn(root *os.Root, name string, b []byte) error {
	tmp := ".tandem-" + rand.Text()
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}
