// Package group lets many small writes share their fsync(2): files are written at
// once and noted here, and one Sync later puts all of them on disk, beside one
// another, so that the file system has one commit of its journal for many of them.
//
// It is for the agent's checkpoints. Whoever notes a file must let nobody know of
// its contents before Sync has returned.
package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"tandem/internal/atomicfile"
)

// Group holds what was written and is not known to be on disk. The zero value is
// empty. It is not safe for concurrent use.
type Group struct {
	files map[string]*file
	dirs  map[string]struct{}
	dirty int // of files, how many have to be synced
}

type file struct {
	*os.File
	dirty bool
}

// syncers is how many files are synced at a time. More make a larger commit, and
// each needs a thread meanwhile.
const syncers = 32

// Keep takes a file over that was opened under a path, so that it can be written
// again until the next Sync, which closes it. An earlier one of the same path must
// be the same file.
func (g *Group) Keep(path string, f *os.File) {
	if g.files == nil {
		g.files = map[string]*file{}
	}
	if old := g.files[path]; old != nil {
		if old.File != f {
			old.Close()
			old.File = f
		}
		return
	}
	g.files[path] = &file{File: f}
}

// File is Keep of a file that was written and has to be on disk.
func (g *Group) File(path string, f *os.File) {
	g.Keep(path, f)
	if x := g.files[path]; !x.dirty {
		x.dirty = true
		g.dirty++
	}
}

// Opened is the file that is open for a path, or nil: it can be written again.
func (g *Group) Opened(path string) *os.File {
	if x := g.files[path]; x != nil {
		return x.File
	}
	return nil
}

// Forget drops a file that was removed or replaced: what is there from now on is another.
func (g *Group) Forget(path string) {
	x := g.files[path]
	if x == nil {
		return
	}
	x.Close()
	if x.dirty {
		g.dirty--
	}
	delete(g.files, path)
}

// Dir notes a directory in which a name was made.
func (g *Group) Dir(dir string) {
	if g.dirs == nil {
		g.dirs = map[string]struct{}{}
	}
	g.dirs[dir] = struct{}{}
}

// Len is how many files are open for the group.
func (g *Group) Len() int { return len(g.files) }

// Empty tells that everything noted is on disk. Files that are only kept do not count.
func (g *Group) Empty() bool { return g.dirty == 0 && len(g.dirs) == 0 }

// Sync puts everything on disk, the files before the names of directories, and
// empties the group. After an error nothing can be said of any of them, and the
// kernel may have dropped what it could not write (fsync(2)): the process has to
// begin anew from what a reader finds.
func (g *Group) Sync() error {
	files, dirs := g.files, g.dirs
	g.files, g.dirs, g.dirty = nil, nil, 0
	var acts []func() error
	for path, f := range files {
		if !f.dirty {
			f.Close()
			continue
		}
		acts = append(acts, func() error {
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				return fmt.Errorf("sync %s: %w", path, err)
			}
			return nil
		})
	}
	if err := together(acts); err != nil {
		return err
	}
	acts = nil
	for dir := range dirs {
		acts = append(acts, func() error {
			// What was removed since then needs no name.
			if err := atomicfile.SyncDir(dir); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	return together(acts)
}

// Close drops the files without waiting for the disk.
func (g *Group) Close() {
	for _, f := range g.files {
		f.Close()
	}
	g.files, g.dirs, g.dirty = nil, nil, 0
}

func together(acts []func() error) error {
	if len(acts) == 1 {
		return acts[0]()
	}
	next := make(chan func() error, len(acts))
	for _, f := range acts {
		next <- f
	}
	close(next)
	errs := make(chan error, len(acts))
	var all sync.WaitGroup
	for range min(len(acts), syncers) {
		all.Go(func() {
			for f := range next {
				errs <- f()
			}
		})
	}
	all.Wait()
	close(errs)
	var failed []error
	for err := range errs {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
