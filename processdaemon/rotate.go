package processdaemon

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// rotator keeps the output of processes from filling the disk. A process writes to
// its files itself, so neither the daemon's end nor a slow disk elsewhere stops it;
// the rotator cuts the head off a file that has grown too long, see rotateFile.
//
// It costs nothing while nothing is written: each quiet file has an inotify watch
// that fires once, and only files that were written lately are looked at.
type rotator struct {
	limit int64 // bytes; 0: no file is cut
	files int   // how many older pieces are kept
	log   *slog.Logger
	in    *os.File // inotify; nil where there is none
	wake  chan struct{}

	// cutting is held while a file is cut, so that no reader loses its place.
	cutting sync.RWMutex

	mu     sync.Mutex
	byPath map[string]*outputFile
	// byWD are those that a watch is for. The kernel has one for a directory, however often it
	// is asked for, and two tasks may have their logPath in the same (inotify_add_watch(2)).
	byWD   map[int32][]*outputFile
	active map[*outputFile]struct{}
}

// outputFile is a file that a process writes to.
type outputFile struct {
	dir, name string
	last      int64 // size when last looked at
	quiet     int   // how often it was the same
	failed    bool  // told once
	skip      int   // looks to leave out
	flood     bool  // it grew faster than it is looked at usually
	ending    bool  // its task has ended: one more look
	// place is set when it stands for all files of a logPath.
	place *logPlace
}

const (
	// rotateTick is the pause between two looks at a file that is written to.
	rotateTick = 250 * time.Millisecond
	// floodTick is the pause while a file grows by more than its limit within rotateTick.
	floodTick = rotateTick / 16
	// quietTicks is after how many looks without change a file is left to its watch.
	quietTicks = 8
	// slowTick is the pause where files cannot be watched.
	slowTick = 5 * time.Second
)

func newRotator(limit int64, files int, log *slog.Logger) *rotator {
	r := &rotator{
		limit: limit, files: max(0, files), log: log, wake: make(chan struct{}, 1),
		byPath: map[string]*outputFile{}, byWD: map[int32][]*outputFile{}, active: map[*outputFile]struct{}{},
	}
	if limit <= 0 {
		return r
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		log.Warn("output files are looked at from time to time, for they cannot be watched", "err", err)
		return r
	}
	r.in = os.NewFile(uintptr(fd), "inotify")
	return r
}

// outputs are the files of a sandbox that processes write to.
var outputs = []string{"stdout", "stderr"}

// add begins to look after the output in a sandbox. It may be repeated.
func (r *rotator) add(sandbox string) {
	if r.limit <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range outputs {
		path := filepath.Join(sandbox, name)
		if f := r.byPath[path]; f != nil {
			f.ending = false
			r.activate(f)
			continue
		}
		f := &outputFile{dir: sandbox, name: name}
		r.byPath[path] = f
		r.activate(f)
	}
}

// activate is called with the lock held.
func (r *rotator) activate(f *outputFile) {
	f.quiet, f.skip = 0, 0
	r.active[f] = struct{}{}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// last looks once more at the output of a task that has ended.
func (r *rotator) last(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range []string{"stdout", "stderr", placeName} {
		if f := r.byPath[filepath.Join(sandbox, name)]; f != nil {
			f.ending = true
			r.activate(f)
		}
	}
}

// drop forgets the output of a task that is deleted.
func (r *rotator) drop(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range []string{"stdout", "stderr", placeName} {
		path := filepath.Join(sandbox, name)
		if f := r.byPath[path]; f != nil {
			r.leave(f)
			delete(r.byPath, path)
		}
	}
}

// leave looks at a file no more. The lock is held.
func (r *rotator) leave(f *outputFile) {
	delete(r.active, f)
	for wd, all := range r.byWD {
		if !slices.Contains(all, f) {
			continue
		}
		all = slices.DeleteFunc(all, func(other *outputFile) bool { return other == f })
		if r.byWD[wd] = all; len(all) == 0 {
			// An error means that it has fired.
			_, _ = unix.InotifyRmWatch(int(r.in.Fd()), uint32(wd))
			delete(r.byWD, wd)
		}
	}
}

// readAt reads an output from a place that is counted from the first byte that was
// ever written to it, wherever that is now, and returns the place after what was read; a
// place that is gone moves to the first one that is there. from < 0 is that many bytes before the end.
func (r *rotator) readAt(path string, from int64, buf []byte) (n int, next int64, err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return 0, from, err
	}
	defer root.Close()
	name := filepath.Base(path)
	if isCut(root, name) {
		// It waits for a cut under way; what a daemon left that was killed in the
		// middle would make every place wrong.
		r.cutting.Lock()
		settleOutput(root, name)
		r.cutting.Unlock()
	}
	r.cutting.RLock()
	defer r.cutting.RUnlock()
	return readOutput(root, name, from, buf, func(name string) (*os.File, int64, error) {
		return openRegular(root, name, os.O_RDONLY)
	})
}

// run looks after the files until the context ends.
func (r *rotator) run(ctx context.Context) {
	if r.limit <= 0 {
		return
	}
	var reader sync.WaitGroup
	if r.in != nil {
		reader.Go(r.readEvents)
		defer reader.Wait()
		defer r.in.Close()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		switch n, flood := r.lookAll(); {
		case flood:
			timer.Reset(floodTick)
		case n > 0:
			timer.Reset(rotateTick)
		default:
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
			// Not more often than the tick, however many files begin at once.
			select {
			case <-ctx.Done():
				return
			case <-time.After(rotateTick):
			}
		}
	}
}

// readEvents takes what the watches say until the file is closed.
func (r *rotator) readEvents() {
	buf := make([]byte, 4096)
	for {
		n, err := r.in.Read(buf)
		if err != nil {
			return
		}
		r.takeEvents(buf[:n])
	}
}

func (r *rotator) takeEvents(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		nameLen := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[min(len(b), unix.SizeofInotifyEvent+nameLen):]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			// The queue ran over: whose watches have fired is not known.
			for wd := range r.byWD {
				r.fired(wd)
			}
			continue
		}
		r.fired(wd)
	}
}

// fired is called with the lock held.
func (r *rotator) fired(wd int32) {
	for _, f := range r.byWD[wd] {
		r.activate(f)
	}
	delete(r.byWD, wd)
}

// lookAll looks at the files that were written to, and returns how many are left
// to be looked at again soon, and whether that is urgent.
func (r *rotator) lookAll() (n int, flood bool) {
	r.mu.Lock()
	files := make([]*outputFile, 0, len(r.active))
	for f := range r.active {
		files = append(files, f)
	}
	r.mu.Unlock()
	for _, f := range files {
		r.look(f)
		flood = flood || f.flood
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active), flood
}

func (r *rotator) look(f *outputFile) {
	r.mu.Lock()
	if f.skip > 0 {
		f.skip--
		r.mu.Unlock()
		return
	}
	// What is written while it is looked at is for another look.
	ending := f.ending
	r.mu.Unlock()
	path := filepath.Join(f.dir, f.name)
	size := f.size(path)
	if f.place != nil {
		r.lookAtPlace(f)
		size = f.size(path)
	} else if f.flood = size > 2*r.limit; size > r.limit {
		r.cutting.Lock()
		_, err := rotateFile(f.dir, f.name, r.limit, r.files)
		r.cutting.Unlock()
		if err != nil && !f.failed {
			f.failed = true
			r.log.Error("output cannot be rotated", "file", path, "size", size, "err", err)
		}
		size = sizeOf(path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, active := r.active[f]; !active {
		return // its task was deleted meanwhile
	}
	if ending {
		r.leave(f)
		return
	}
	if size != f.last {
		f.last, f.quiet = size, 0
		return
	}
	if f.quiet++; f.quiet < quietTicks {
		return
	}
	if !r.rest(f, path) {
		// Looked at less often instead.
		f.skip = int(slowTick / rotateTick)
		return
	}
	// What was written before the watch was there has not fired it.
	if f.size(path) == size {
		delete(r.active, f)
	}
}

// rest leaves a quiet file to a watch. The lock is held.
func (r *rotator) rest(f *outputFile, path string) bool {
	if r.in == nil {
		return false
	}
	mask := uint32(unix.IN_MODIFY | unix.IN_ONESHOT | unix.IN_DONT_FOLLOW)
	if f.place != nil {
		path, mask = f.place.watched(), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONESHOT
	}
	wd, err := unix.InotifyAddWatch(int(r.in.Fd()), path, mask)
	if err != nil {
		return false
	}
	if all := r.byWD[int32(wd)]; !slices.Contains(all, f) {
		r.byWD[int32(wd)] = append(all, f)
	}
	return true
}

func (f *outputFile) size(path string) int64 {
	if f.place != nil {
		return f.place.size()
	}
	return sizeOf(path)
}

// sizeOf returns the size of a regular file, and 0 for anything else.
func sizeOf(path string) int64 {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Size
}

// errAlien says that somebody put something else into an output file's place.
var errAlien = errors.New("it is not a regular file any more")

// openRegular opens a regular file in a directory that the task's user may own.
func openRegular(root *os.Root, name string, flags int) (*os.File, int64, error) {
	f, err := root.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errAlien
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
