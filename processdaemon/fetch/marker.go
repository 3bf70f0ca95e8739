package fetch

import (
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"
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

// Confirm writes what was unpacked to the disk, for good, and notes that in the
// markers. It may take long, and nobody has to wait for it: until it is done, a
// power cut has things unpacked again.
func (f *Fetcher) Confirm() {
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
