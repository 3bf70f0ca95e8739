package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tandem/internal/atomicfile"
	"tandem/internal/failpoint"
	"tandem/internal/safepath"
)

// The outputs are the directories that appeared whole, with what they held then.
// As long as such a directory has not changed, nothing is lost with it: it can be
// had again from where it came. One in which anything was written, changed or
// removed holds somebody's data, and is never touched.

func (f *Fetcher) outputDirs() string { return filepath.Join(f.dir, "outputs") }

// output is what is known about one directory.
type output struct {
	Dir   string `json:"dir"`
	Print string `json:"print"`
}

func (f *Fetcher) outputFile(dir string) string { return filepath.Join(f.outputDirs(), hash(dir)) }

func (f *Fetcher) output(dir string) *output {
	b, err := os.ReadFile(f.outputFile(dir))
	o := new(output)
	if err != nil || json.Unmarshal(b, o) != nil || o.Dir != dir {
		return nil
	}
	return o
}

// unchanged tells whether a directory holds exactly what was put there.
func (f *Fetcher) unchanged(dir string) bool {
	o := f.output(dir)
	if o == nil {
		return false
	}
	now, err := fingerprint(dir)
	return err == nil && now == o.Print
}

// recordOutput remembers what a directory holds. A failure costs its collection alone.
func (f *Fetcher) recordOutput(dir string) {
	now, err := fingerprint(dir)
	var b []byte
	if err == nil {
		b, err = json.Marshal(output{Dir: dir, Print: now})
	}
	if err == nil {
		err = atomicfile.WriteVolatile(f.outputFile(dir), b, 0o600)
	}
	if err != nil {
		f.log.Warn("a directory will stay for ever", "dir", dir, "err", err)
	}
}

// fingerprint changes with every change below a directory: the time of a file's
// last change of any kind cannot be set (inode(7)).
func fingerprint(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	top, err := root.Stat(".")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	line := func(name string, st fs.FileInfo) error {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.New("no stat")
		}
		if st.IsDir() {
			// Its own times change with its place and its entries, which have lines of their own.
			fmt.Fprintf(sum, "%q %v %d %d %d\n", name, st.Mode(), sys.Ino, sys.Uid, sys.Gid)
			return nil
		}
		fmt.Fprintf(sum, "%q %v %d %d %d %d\n", name, st.Mode(), sys.Ino, sys.Size, sys.Mtim.Nano(), sys.Ctim.Nano())
		return nil
	}
	err = errors.Join(line(".", top), walk(root, line))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// inode is the number of a file's inode.
func inode(st fs.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// inUse tells whether a task has a directory, or one in it, among those it holds.
func (f *Fetcher) inUse(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		for _, d := range h.dirs {
			if d == dir || strings.HasPrefix(d, dir+"/") {
				return true
			}
		}
	}
	return false
}

// left marks the directories that a task no longer holds: their age begins.
func (f *Fetcher) left(dirs []string) {
	now := time.Now()
	for _, d := range dirs {
		_ = os.Chtimes(f.outputFile(d), now, now) // most are none that appeared whole
	}
}

// CollectOutputs removes the directories below a workspace that no task has used for
// OutputAge and that still hold exactly what was put there.
func (f *Fetcher) CollectOutputs(workspace string) {
	entries, err := os.ReadDir(f.outputDirs())
	if err != nil {
		f.log.Warn("directories that nobody uses cannot be looked for", "err", err)
		return
	}
	for _, e := range entries {
		file := filepath.Join(f.outputDirs(), e.Name())
		st, err := e.Info()
		if err != nil || strings.HasPrefix(e.Name(), atomicfile.TempPrefix) || time.Since(st.ModTime()) < f.limits.OutputAge {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var o output
		if json.Unmarshal(b, &o) != nil || f.outputFile(o.Dir) != file || !strings.HasPrefix(o.Dir, filepath.Clean(workspace)+"/") {
			os.Remove(file)
			continue
		}
		if err := f.collectOutput(o.Dir, file); err != nil {
			f.log.Warn("a directory that nobody uses cannot be removed; it is tried again", "dir", o.Dir, "err", err)
		}
	}
}

func (f *Fetcher) collectOutput(dir, file string) error {
	unlock, free := f.tryLockOutput(dir)
	if !free {
		return nil
	}
	defer unlock()
	if f.inUse(dir) {
		return nil
	}
	if !f.unchanged(dir) {
		// Gone, or somebody's data from now on.
		return os.Remove(file)
	}
	parentDir, name := filepath.Split(dir)
	parent, err := safepath.OpenRoot(parentDir, false)
	if err != nil {
		return err
	}
	defer parent.Close()
	// Away in one step, so that no task ever finds a half of it.
	tmp := f.besides(dir)
	done, err := f.intend(filepath.Join(parentDir, tmp))
	if err != nil {
		return err
	}
	defer done()
	if err := parent.RemoveAll(tmp); err != nil {
		return err
	}
	if err := parent.Rename(name, tmp); err != nil {
		return err
	}
	if err := failpoint.Inject("fetch/output-renamed"); err != nil {
		return err
	}
	if err := parent.RemoveAll(tmp); err != nil {
		return err
	}
	f.log.Info("removed a directory that nobody used and nobody had changed", "dir", dir)
	return os.Remove(file)
}
