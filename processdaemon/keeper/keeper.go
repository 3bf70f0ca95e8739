// Package keeper is the parent of the processes that the process daemon looks
// after. It is a second mode of the daemon's binary that runs in a process of
// its own, so that a daemon can crash, be killed, restarted or replaced by a
// newer one while somebody still learns how each process ends: the kernel tells
// an exit code to the parent alone.
//
// A keeper forks and execs on request, collects what ends, records it, and answers
// questions. It knows no policies and no tasks; it never signals a process that
// it did not fork itself a moment ago, and never starts one twice for one key.
package keeper

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/unixhttp"
)

// Keeper is the state of one keeper process. The lock takes the place of a loop:
// the thread that forks has to put a process into the books before it lets it run.
type Keeper struct {
	store *store
	log   func(format string, args ...any)
	null  *os.File

	mu      sync.Mutex
	entries map[string]*Entry
	byPid   map[int]*Entry // those that have not ended and are this keeper's to collect
	// starting are the keys that are being started, with everybody who asked.
	starting map[string]*job
	// unsaved are entries that the disk has not taken yet.
	unsaved map[*Entry]struct{}
	strays  strays
	conns   int
	idle    *time.Timer
	wake    chan struct{} // closed to end serve
	retired bool
}

// Entry is what a keeper knows about one process.
type Entry struct {
	// Key is the daemon's name for this start of this process.
	Key string          `json:"key"`
	ID  procid.Identity `json:"id"`
	Tag string          `json:"tag,omitempty"`
	// Ended tells that the process is no more.
	Ended bool `json:"ended,omitempty"`
	// Known tells that Code and Signal are how it ended.
	Known  bool      `json:"known,omitempty"`
	Code   int       `json:"code,omitempty"`
	Signal int       `json:"signal,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Foreign tells that an earlier keeper was its parent, so that this one
	// cannot learn how it ends.
	Foreign bool `json:"foreign,omitempty"`
}

const (
	// idleTime is how long a keeper stays that has neither a process nor a daemon.
	// What it recorded is on disk, so nothing is lost when it goes; what the disk did not
	// take keeps it.
	idleTime = time.Second
	// retryTime is the pause before a record is written again that could not be.
	retryTime = time.Second
)

func newKeeper(dir string, log func(string, ...any)) (*Keeper, error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	k := &Keeper{
		store: s, log: log, entries: map[string]*Entry{}, byPid: map[int]*Entry{},
		starting: map[string]*job{}, unsaved: map[*Entry]struct{}{}, wake: make(chan struct{}),
	}
	if k.null, err = os.OpenFile(os.DevNull, os.O_RDONLY, 0); err != nil {
		return nil, err
	}
	entries, err := s.load(log)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		k.entries[e.Key] = e
		switch {
		case e.Ended:
		case !e.ID.Gone():
			e.Foreign = true
		default:
			// It ended while there was no keeper.
			e.Ended, e.At = true, time.Now().UTC()
			k.save(e)
		}
	}
	k.idle = time.AfterFunc(idleTime, k.endWhenIdle)
	return k, nil
}

// save records an entry; one that cannot be recorded is tried again later, for
// an end must not be forgotten because the disk was full for a while.
func (k *Keeper) save(e *Entry) {
	err := k.store.save(e)
	if err == nil {
		delete(k.unsaved, e)
		return
	}
	if _, again := k.unsaved[e]; !again {
		k.log("record of %s: %v; it is tried again", e.Key, err)
	}
	k.unsaved[e] = struct{}{}
	time.AfterFunc(retryTime, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.entries[e.Key] == e {
			k.save(e)
		} else {
			delete(k.unsaved, e)
		}
		k.settled()
	})
}

// live is how many processes this keeper would leave without a parent.
func (k *Keeper) live() int { return len(k.byPid) + len(k.starting) }

// needed tells whether something would be lost with this keeper: a process without
// a parent, or how one ended. The lock is held.
func (k *Keeper) needed() bool {
	k.reap()
	return k.live() > 0 || len(k.unsaved) > 0 || childrenLeft()
}

// settled arms the end of a keeper that nobody needs. The lock is held.
func (k *Keeper) settled() {
	if k.live() == 0 && k.conns == 0 {
		k.idle.Reset(idleTime)
	}
}

func (k *Keeper) endWhenIdle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.needed() && k.conns == 0 {
		k.retire()
		return
	}
	if k.conns == 0 {
		// Something that nobody asked about still runs, in a task's group: its
		// end is noticed, but the timer looks again rather than trust that.
		k.idle.Reset(idleTime)
	}
}

// retire ends Serve. The lock is held.
func (k *Keeper) retire() {
	if !k.retired {
		k.retired = true
		close(k.wake)
	}
}

// serve answers daemons until the keeper retires.
func (k *Keeper) serve(l *unixhttp.Listener) {
	go k.store.syncer()
	// What has just ended is not to wait for the kernel to write it some time.
	defer k.store.flush()
	stop := make(chan struct{})
	go func() {
		failed := false
		for {
			c, err := l.AcceptPeer()
			if errors.Is(err, net.ErrClosed) {
				close(stop)
				return
			}
			if err != nil {
				// For want of files or memory, which passes. A keeper that ended for that would
				// take every exit code with it.
				if !failed {
					failed = true
					k.log("accept: %v; it is tried again", err)
				}
				time.Sleep(acceptPause)
				continue
			}
			failed = false
			k.mu.Lock()
			if k.retired || k.conns >= maxConns {
				k.mu.Unlock()
				c.Close()
				continue
			}
			k.conns++
			k.mu.Unlock()
			go k.converse(c)
		}
	}()
	select {
	case <-k.wake:
		l.Close()
	case <-stop:
	}
}

// acceptPause is the pause before another try to take a connection.
const acceptPause = 50 * time.Millisecond

// maxConns is more daemons than ever talk to a keeper at once.
const maxConns = 16

// childrenLeft tells whether this process has children, asked for or inherited.
func childrenLeft() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return !errors.Is(err, unix.ECHILD)
}
