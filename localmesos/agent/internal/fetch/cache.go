package fetch

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"tandem/internal/atomicfile"
)

// Cache keeps the files of URIs for as long as the agent lives. Fetchers that want
// the same one at the same time wait for one download. Its files are the agent's
// own, whoever they are for: no task can change what another one gets. See
// docs/fetcher.md of Apache Mesos.
type Cache struct {
	dir   string
	limit int64

	mu      sync.Mutex
	entries map[cacheKey]*entry
	used    int64 // bytes of all entries, also of those under way
	clock   int   // counts uses
	files   int   // counts files that were made
}

// cacheKey has the user in it: what one may read is not for another.
type cacheKey struct{ user, uri string }

// entry is a file, there or under way. Its fields belong to the cache's lock, but
// for the channel.
type entry struct {
	path    string
	size    int64
	mode    fs.FileMode
	settled chan struct{} // closed when it is there, or will never be
	there   bool
	readers int // it is not evicted meanwhile
	last    int // use
}

// NewCache makes an empty cache of at most limit bytes in dir, which is emptied.
func NewCache(dir string, limit int64) (*Cache, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("emptying the fetcher's cache: %w", err)
	}
	// Not what somebody else puts in its place: others may write to where it lies.
	err := atomicfile.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("making the fetcher's cache: %w", err)
	}
	return &Cache{dir: dir, limit: limit, entries: map[cacheKey]*entry{}}, nil
}

// Usage tells how much the cache holds and may hold, in bytes; c may be nil.
func (c *Cache) Usage() (used, limit int64) {
	if c == nil {
		return 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.limit
}

// get returns what a URI brings, from the cache if it is or can be there. What is
// larger than the room, or of a size that is not known before, goes past it.
func (c *Cache) get(ctx context.Context, key cacheKey, open func() (*source, error)) (*source, error) {
	for {
		e, mine := c.claim(key)
		if mine {
			return c.fill(key, e, open)
		}
		select {
		case <-e.settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		// If it came to nothing, this one tries in its turn.
		if src, err := c.read(e); src != nil || err != nil {
			return src, err
		}
	}
}

// claim returns the entry of a URI; it is the caller's to fill when it is new.
func (c *Cache) claim(key cacheKey) (e *entry, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		return e, false
	}
	c.files++
	e = &entry{path: filepath.Join(c.dir, strconv.Itoa(c.files)), settled: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

func (c *Cache) fill(key cacheKey, e *entry, open func() (*source, error)) (*source, error) {
	src, err := open()
	if err != nil {
		c.drop(key, e)
		return nil, err
	}
	if src.size < 0 || !c.reserve(e, src.size) {
		c.drop(key, e)
		return src, nil
	}
	defer src.Close()
	e.mode = src.mode
	n, err := store(e.path, src, src.size)
	if err != nil {
		c.drop(key, e)
		return nil, err
	}
	c.mu.Lock()
	c.used -= e.size - n // it may be shorter than was said
	e.size, e.there = n, true
	c.mu.Unlock()
	close(e.settled)
	return c.read(e)
}

// store writes a file of at most size bytes.
func store(path string, src io.Reader, size int64) (n int64, err error) {
	var f *os.File
	asAgent(func() { f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) })
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, io.LimitReader(src, size+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && n > size {
		err = fmt.Errorf("it is larger than the %d bytes that were announced", size)
	}
	return n, err
}

// read opens an entry; nil means that it is not there.
func (c *Cache) read(e *entry) (*source, error) {
	c.mu.Lock()
	there := e.there
	if there {
		e.readers++
		c.clock++
		e.last = c.clock
	}
	c.mu.Unlock()
	if !there {
		return nil, nil //nolint:nilnil // as the comment says
	}
	var f *os.File
	var err error
	asAgent(func() { f, err = os.Open(e.path) })
	if err != nil {
		c.release(e)
		return nil, err
	}
	return &source{ReadCloser: &cached{File: f, release: func() { c.release(e) }}, mode: e.mode, size: e.size, cached: f}, nil
}

func (c *Cache) release(e *entry) {
	c.mu.Lock()
	e.readers--
	c.mu.Unlock()
}

// cached is a file of the cache that is being read.
type cached struct {
	*os.File
	release func()
}

// Close may be called once.
func (f *cached) Close() error {
	err := f.File.Close()
	f.release()
	return err
}

// reserve makes room for an entry, by removing those that were not used for the
// longest time. It returns false when there is not enough.
func (c *Cache) reserve(e *entry, size int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > c.limit {
		return false
	}
	for c.used+size > c.limit {
		var oldest *entry
		var key cacheKey
		for k, other := range c.entries {
			if other.there && other.readers == 0 && (oldest == nil || other.last < oldest.last) {
				oldest, key = other, k
			}
		}
		if oldest == nil {
			return false
		}
		c.removeLocked(key, oldest)
	}
	c.used += size
	e.size = size
	return true
}

// drop forgets an entry that came to nothing, and tells who waits for it.
func (c *Cache) drop(key cacheKey, e *entry) {
	c.mu.Lock()
	c.removeLocked(key, e)
	c.mu.Unlock()
	close(e.settled)
}

func (c *Cache) removeLocked(key cacheKey, e *entry) {
	delete(c.entries, key)
	c.used -= e.size
	e.there = false
	asAgent(func() { _ = os.Remove(e.path) }) // it may not have been made
}

// asAgent runs f with the agent's rights, also for a caller who has become
// another user: those are of its thread alone.
func asAgent(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
