package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Mark is an owner as its files are called, which do not always tell its name.
type Mark string

// Watch tells a reaper whose death to look for, so that it need not look at all owners
// again and again. The kernel closes the files of a process that dies, and tells
// who watches their directory (inotify(7), IN_CLOSE_WRITE). It does so a moment
// before it lets go of the lock, and also when a lock was only tried: what comes here is
// a hint. Watches are lost with their directory, and file systems may lack them, so
// look at all owners from time to time, too.
type Watch struct {
	// C is ready when Take has something; it is closed when no more will come.
	C <-chan struct{}

	f    *os.File
	done chan struct{}

	mu    sync.Mutex
	marks map[Mark]struct{}
}

// Watch begins to watch all owners. Close ends it.
func (j *Journal) Watch() (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("journal: watch owners: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	const mask = unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, j.owners(), mask); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal: watch %s: %w", j.owners(), err)
	}
	c := make(chan struct{}, 1)
	w := &Watch{C: c, f: f, done: make(chan struct{}), marks: map[Mark]struct{}{}}
	go w.read(c)
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() {
	w.f.Close()
	<-w.done
}

// Take returns whose files were closed since it was called last, in no order.
func (w *Watch) Take() []Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Collect(maps.Keys(w.marks))
	clear(w.marks)
	return out
}

func (w *Watch) read(c chan<- struct{}) {
	defer close(w.done)
	defer close(c)
	buf := make([]byte, 4096) // an event has at most 16 + NAME_MAX + 1 bytes
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return
		}
		lost := w.note(buf[:n])
		select {
		case c <- struct{}{}:
		default:
		}
		if lost {
			return
		}
	}
}

// note takes events in and tells whether the watch was lost. A queue that ran over
// is as good as that: what it held is not known.
func (w *Watch) note(events []byte) (lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for b := events; len(b) >= unix.SizeofInotifyEvent; {
		mask := binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			return true
		}
		name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:end]), "\x00")
		b = b[end:]
		lost = lost || mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_Q_OVERFLOW) != 0
		if owner, ok := strings.CutSuffix(name, lockSuffix); ok {
			w.marks[Mark(owner)] = struct{}{}
		}
	}
	return lost
}

// Dead returns the names of owners who are dead, have records, and whom no reaper is at
// work on. Given marks, it looks at those alone, and returns which of
// them live, as far as can be told at this moment. What cannot be told of one owner
// is an error, and does not keep it from the others.
func (j *Journal) Dead(only ...Mark) (names []string, live []Mark, err error) {
	all := len(only) == 0
	if all {
		dirs, err := os.ReadDir(j.records())
		if err != nil {
			return nil, nil, fmt.Errorf("journal: %w", err)
		}
		for _, d := range dirs {
			if d.IsDir() {
				only = append(only, Mark(d.Name()))
			}
		}
	}
	var errs []error
	for _, m := range only {
		by, err := lockHolder(filepath.Join(j.owners(), string(m)+lockSuffix))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("journal: owner %s: %w", m, err))
			continue
		case by == anOwner && !all:
			live = append(live, m)
		}
		if by != nobody {
			continue
		}
		recs, err := j.read(filepath.Join(j.records(), string(m)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(recs) > 0 {
			names = append(names, recs[0].Owner)
		}
	}
	return names, live, errors.Join(errs...)
}
