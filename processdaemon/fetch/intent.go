package fetch

import (
	"os"
	"path/filepath"
	"strings"

	"tandem/internal/atomicfile"
	"tandem/internal/safepath"
)

// unpackPrefix starts the name of every directory that is being filled.
const unpackPrefix = ".tandem-unpack-"

// besides is the name of what is being filled for a directory, beside it. Another daemon
// of this machine that works in the same one has another name.
func (f *Fetcher) besides(dir string) string {
	return unpackPrefix + hash(f.dir + "\x00" + dir)[:16]
}

// The intents name the directories that are being filled, for they lie
// elsewhere, where nobody would look for them after the daemon was killed.
func (f *Fetcher) intents() string { return filepath.Join(f.dir, "unpacking") }

// intend records that a directory is about to be made. The result takes the
// record away, once the directory is gone.
func (f *Fetcher) intend(dir string) (done func(), err error) {
	intent := filepath.Join(f.intents(), hash(dir))
	if err := atomicfile.WriteVolatile(intent, []byte(dir), 0o600); err != nil {
		return nil, err
	}
	return func() {
		if _, err := os.Lstat(dir); os.IsNotExist(err) {
			err = os.Remove(intent)
			if err != nil && !os.IsNotExist(err) {
				f.log.Warn("the record of an unpacking cannot be removed", "path", intent, "err", err)
			}
		}
	}, nil
}

// discard removes what is left of a directory that was filled.
func (f *Fetcher) discard(parent *os.Root, name string) {
	if err := parent.RemoveAll(name); err != nil {
		f.log.Warn("an unpacked archive cannot be removed; the next start of the daemon tries again", "path", filepath.Join(parent.Name(), name), "err", err)
	}
}

// clearUnpacking removes what a daemon left that was killed while it unpacked.
// Its children were killed with it.
func (f *Fetcher) clearUnpacking() {
	entries, err := os.ReadDir(f.intents())
	if err != nil {
		f.log.Warn("half-unpacked archives cannot be looked for", "err", err)
		return
	}
	for _, e := range entries {
		intent := filepath.Join(f.intents(), e.Name())
		b, err := os.ReadFile(intent)
		if err != nil {
			f.log.Warn("a record of an unpacking cannot be read", "path", intent, "err", err)
			continue
		}
		dir, name := filepath.Split(string(b))
		// A torn record names nothing that may be removed.
		if filepath.IsAbs(dir) && strings.HasPrefix(name, unpackPrefix) && hash(string(b)) == e.Name() {
			if parent, err := safepath.OpenRoot(dir, false); err == nil {
				f.discard(parent, name)
				parent.Close()
			}
			if _, err := os.Lstat(string(b)); !os.IsNotExist(err) {
				continue
			}
		}
		os.Remove(intent)
	}
}
