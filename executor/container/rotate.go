package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// logFile is one of a task's two output files. When it has grown to its size it
// is renamed and a new one begun, at the end of a line.
//
// The name of a file that was rotated ends in the place of its first byte in all
// that was ever written, as stdout.000016777216. So no name ever changes its
// meaning, and whoever follows the output can tell which file comes next, and
// how much is gone.
type logFile struct {
	dir, name string
	// size is where a file is full, 0 for never; keep is how many full ones stay.
	size int64
	keep int

	// f is nil when the file could not be opened; the next Write tries again.
	f *os.File
	// begin is the place of the file's first byte, written how much it holds.
	begin, written int64
	// inLine is true while the last line has no end yet.
	inLine bool
	old    []int64
}

// openLog opens a log file. A symbolic link in its place would make a root
// process write wherever a task wants, so there is none followed.
func openLog(dir, name string, size int64, keep int) (*logFile, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	l := &logFile{dir: dir, name: name, size: size, keep: keep}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), name+".")
		begin, err := strconv.ParseInt(digits, 10, 64)
		info, ierr := e.Info()
		if !ok || err != nil || ierr != nil || e.Name() != l.rotated(begin) {
			continue
		}
		l.old = append(l.old, begin)
		l.begin = max(l.begin, begin+info.Size())
	}
	slices.Sort(l.old)
	return l, l.open()
}

func (l *logFile) rotated(begin int64) string { return fmt.Sprintf("%s.%012d", l.name, begin) }

func (l *logFile) open() error {
	f, err := os.OpenFile(filepath.Join(l.dir, l.name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("sandbox: %w", err)
	}
	l.f, l.written = f, info.Size()
	return nil
}

// Write appends, in a new file when this one is full.
func (l *logFile) Write(p []byte) (int, error) {
	if l.f == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	full := l.size > 0 && l.written > 0 && l.written+int64(len(p)) > l.size
	// A line without end must not keep the file from being rotated for ever.
	if full && (!l.inLine || l.written > 2*l.size) {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(p)
	l.written += int64(n)
	if n > 0 {
		l.inLine = p[n-1] != '\n'
	}
	return n, err
}

func (l *logFile) rotate() error {
	if err := os.Rename(filepath.Join(l.dir, l.name), filepath.Join(l.dir, l.rotated(l.begin))); err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	l.old = append(l.old, l.begin)
	l.begin, l.written = l.begin+l.written, 0
	l.f.Close()
	l.f = nil
	// Before the new file is made, for which a full disk may have no room.
	for len(l.old) > l.keep {
		if err := os.Remove(filepath.Join(l.dir, l.rotated(l.old[0]))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break // the next rotation tries again
		}
		l.old = l.old[1:]
	}
	return l.open()
}

// Close closes the file; a nil one has none.
func (l *logFile) Close() {
	if l != nil && l.f != nil {
		l.f.Close()
	}
}
