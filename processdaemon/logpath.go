package processdaemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"tandem/processdaemon/protocol"
)

// logPlace is where a process writes files of its own: one file, all files of a
// directory, or those that a pattern matches.
//
// The directory and all in it may belong to the task's user, and the daemon is root:
// for another user than root it looks into a directory of that user alone, and touches
// only files that are that user's, under one name, and no links. Then whatever the
// user puts in their place is something that it could have cut or read itself.
type logPlace struct {
	pattern string
	// owner is the user's id; 0 may have any file, and so may everybody where the daemon is not root.
	owner int

	// mu is held while a file is cut, so that no reader loses its place.
	mu sync.Mutex
}

func newLogPlace(pattern string, as *account) *logPlace {
	p := &logPlace{pattern: filepath.Clean(pattern)}
	if as.cred != nil {
		p.owner = as.uid
	}
	return p
}

// open opens the directory and tells which names in it are meant.
func (p *logPlace) open() (*os.Root, func(name string) bool, error) {
	dir, base := filepath.Split(p.pattern)
	if st, err := os.Stat(p.pattern); err == nil && st.IsDir() {
		dir, base = p.pattern, "*"
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, nil, err
	}
	if p.owner != 0 && int(st.Uid) != p.owner {
		return nil, nil, fmt.Errorf("directory %s belongs to uid %d and not to the task's user (uid %d); give it a directory of its own", dir, st.Uid, p.owner)
	}
	// The same directory, whatever has taken its name since.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return root, func(name string) bool {
		ok, err := filepath.Match(base, name)
		return ok && err == nil && !isPiece(name)
	}, err
}

// isPiece tells whether a file is what some rotation has put aside, this one's or the
// program's own.
func isPiece(name string) bool {
	if strings.HasPrefix(name, ".tandem-") {
		return true
	}
	digits := strings.TrimPrefix(filepath.Ext(name), ".")
	return digits != "" && strings.Trim(digits, "0123456789") == "" || slices.Contains([]string{cuttingEnd, ".gz", ".xz", ".bz2", ".zst"}, filepath.Ext(name))
}

// list returns the files, the one written to last first.
func (p *logPlace) list() ([]protocol.LogFile, error) {
	root, meant, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	var out []protocol.LogFile
	for _, e := range entries {
		if !meant(e.Name()) {
			continue
		}
		if st, err := root.Lstat(e.Name()); err == nil && p.check(st) == nil {
			out = append(out, protocol.LogFile{Name: e.Name(), Size: st.Size(), Modified: st.ModTime().UTC()})
		}
	}
	slices.SortStableFunc(out, func(a, b protocol.LogFile) int {
		return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name))
	})
	return out, err
}

func (p *logPlace) check(st fs.FileInfo) error {
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !st.Mode().IsRegular():
		return errAlien
	case p.owner != 0 && int(sys.Uid) != p.owner:
		return fmt.Errorf("it belongs to uid %d and not to the task's user", sys.Uid)
	case p.owner != 0 && sys.Nlink != 1:
		return errors.New("it has another name, too")
	}
	return nil
}

// file opens one of the files.
func (p *logPlace) file(root *os.Root, name string, flags int) (*os.File, fs.FileInfo, error) {
	f, _, err := openRegular(root, name, flags)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = p.check(st)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// size is what the files take on the disk. For a file that has holes it is less than its length.
func (p *logPlace) size() (sum int64) {
	root, meant, err := p.open()
	if err != nil {
		return 0
	}
	defer root.Close()
	entries, _ := fs.ReadDir(root.FS(), ".") // those that can be read count
	for _, e := range entries {
		if meant(e.Name()) {
			if st, err := root.Lstat(e.Name()); err == nil {
				sum += st.Size() + diskSize(st)
			}
		}
	}
	return sum
}

func diskSize(st fs.FileInfo) int64 {
	const unit = 512
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * unit
	}
	return st.Size()
}

// watched is the nearest directory that there is, where something has to change
// before there is more to look at.
func (p *logPlace) watched() string {
	dir := p.pattern
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() || dir == "/" {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// rotate cuts the files that have grown too long.
func (p *logPlace) rotate(limit int64, keep int) error {
	root, meant, err := p.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		if st, err := root.Lstat(e.Name()); err == nil && meant(e.Name()) && st.Mode().IsRegular() && min(st.Size(), diskSize(st)) > limit {
			if err := p.rotateOne(root, e.Name(), limit, keep); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", e.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *logPlace) rotateOne(root *os.Root, name string, limit int64, keep int) error {
	f, st, err := p.file(root, name, os.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err = rotateOpen(root, f, st.Size(), name, limit, keep)
	return err
}

// readAt is as rotator.readAt, for a file by its name.
func (p *logPlace) readAt(name string, from int64, buf []byte) (int, int64, error) {
	root, meant, err := p.open()
	if err != nil {
		return 0, from, err
	}
	defer root.Close()
	if !meant(name) {
		return 0, from, fs.ErrNotExist
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isCut(root, name) {
		settleOutput(root, name)
	}
	return readOutput(root, name, from, buf, func(name string) (*os.File, int64, error) {
		f, st, err := p.file(root, name, os.O_RDONLY)
		if err != nil {
			return nil, 0, err
		}
		return f, st.Size(), nil
	})
}

// addPlace begins to look after the files of a logPath. It may be repeated.
func (r *rotator) addPlace(sandbox, pattern string, as *account) {
	if r.limit <= 0 || pattern == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := filepath.Join(sandbox, placeName)
	f := r.byPath[key]
	if f == nil {
		f = &outputFile{dir: sandbox, name: placeName, place: newLogPlace(pattern, as)}
		r.byPath[key] = f
	}
	f.ending = false
	r.activate(f)
}

// placeName stands for a task's logPath among its outputs; it is no file.
const placeName = "/log"

// placeOf returns the place of a sandbox's task, nil if none is looked after.
func (r *rotator) placeOf(sandbox string) *logPlace {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.byPath[filepath.Join(sandbox, placeName)]; f != nil {
		return f.place
	}
	return nil
}

func (r *rotator) lookAtPlace(f *outputFile) {
	if err := f.place.rotate(r.limit, r.files); err != nil && !f.failed {
		f.failed = true
		r.log.Error("files of logPath cannot be rotated", "logPath", f.place.pattern, "err", err)
	}
}

// place returns where a task writes files of its own.
func (t *task) place() (*logPlace, error) {
	// These parts of the specification never change.
	spec := &t.rec.Spec
	if spec.LogPath == "" {
		return nil, fail(protocol.CodeInvalid, "task %q has no logPath; name one in its specification", spec.ID)
	}
	if p := t.d.rotator.placeOf(spec.Sandbox); p != nil {
		return p, nil
	}
	as, err := lookupAccount(spec.User)
	if err != nil {
		return nil, fail(protocol.CodeInternal, "%v", err)
	}
	return newLogPlace(spec.LogPath, as), nil
}

// LogFiles returns the files that a task's logPath names, the one written to last first.
func (d *Daemon) LogFiles(id string) ([]protocol.LogFile, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	p, err := t.place()
	if err != nil {
		return nil, err
	}
	out, err := p.list()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []protocol.LogFile{}, nil
	case err != nil:
		return nil, fail(protocol.CodeConflict, "logPath %s: %v", p.pattern, err)
	case out == nil:
		out = []protocol.LogFile{}
	}
	return out, nil
}

// reader returns what reads a stream of a task: stdout, stderr, or a file of its
// logPath, of which an empty name is the one written to last.
func (t *task) reader(stream, file string) (func(from int64, buf []byte) (int, int64, error), error) {
	if stream != streamLog {
		path := filepath.Join(t.sandbox, stream)
		return func(from int64, buf []byte) (int, int64, error) { return t.d.rotator.readAt(path, from, buf) }, nil
	}
	p, err := t.place()
	if err != nil {
		return nil, err
	}
	if file == "" {
		files, err := t.d.LogFiles(t.id)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fail(protocol.CodeNotFound, "logPath %s of task %q names no file yet", p.pattern, t.id)
		}
		file = files[0].Name
	}
	return func(from int64, buf []byte) (int, int64, error) { return p.readAt(file, from, buf) }, nil
}

// streamLog is the stream that the files of logPath are.
const streamLog = "log"
