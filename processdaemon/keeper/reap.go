package keeper

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// strays are the last processes that ended without a key: a pid file may name one
// that ended before anybody could ask for it.
type strays struct {
	ring [256]stray
	next int
}

type stray struct {
	pid   int
	start uint64
	st    procid.Status
	at    time.Time
}

func (s *strays) add(x stray) {
	s.ring[s.next] = x
	s.next = (s.next + 1) % len(s.ring)
}

// find returns the newest stray of this pid that match accepts.
func (s *strays) find(pid int, match func(start uint64) bool) (stray, bool) {
	for i := range s.ring {
		x := s.ring[(s.next-1-i+2*len(s.ring))%len(s.ring)]
		if x.pid == pid && match(x.start) {
			return x, true
		}
	}
	return stray{}, false
}

// reap collects every child that has ended. What a process leaves behind comes
// here too, because the keeper is a subreaper. The lock is held.
func (k *Keeper) reap() {
	for {
		// Looked at first and collected once it is recorded: as long as it is not
		// collected, its number belongs to it.
		pid, err := procid.PeekZombie()
		if err != nil || pid == 0 {
			if err != nil {
				k.log("look for ended children: %v", err)
			}
			break
		}
		id, err := procid.Of(pid)
		if e := k.byPid[pid]; e != nil && (err != nil || e.ID == id) {
			if !k.ended(e) {
				break
			}
			continue
		} else if e != nil {
			// Its number belongs to another one by now, so its true parent has collected it.
			k.lose(e)
		}
		st, reapErr := procid.ReapPid(pid)
		if err == nil && reapErr == nil {
			k.strays.add(stray{pid, id.StartTime, st, time.Now().UTC()})
		}
		if errors.Is(reapErr, unix.ECHILD) {
			continue // its start has failed, and whoever forked it was quicker
		}
		if reapErr != nil {
			k.log("collect pid %d: %v", pid, reapErr)
			break
		}
	}
	k.settled()
}

// ended records the end of an entry's process, if it is a zombie of this keeper,
// and collects it. It tells whether it did.
func (k *Keeper) ended(e *Entry) bool {
	pid := e.ID.Pid
	if id, err := procid.Of(pid); err == nil && id != e.ID {
		return false
	}
	st, done, err := procid.PeekEnd(pid)
	if err != nil || !done {
		return false
	}
	_ = failpoint.Inject("keeper/ended")
	e.finish(st, time.Now().UTC())
	k.save(e)
	_ = failpoint.Inject("keeper/end-recorded")
	k.drop(e)
	if _, err := procid.ReapPid(pid); err != nil {
		k.log("collect pid %d: %v", pid, err)
		return false
	}
	return true
}

func (e *Entry) finish(st procid.Status, at time.Time) {
	e.Ended, e.Known, e.Code, e.Signal, e.At = true, true, st.Code, st.Signal, at
}

// enter puts a process into the books. One that has ended meanwhile is found
// among the strays. The lock is held.
func (k *Keeper) enter(e *Entry) {
	k.entries[e.Key] = e
	if x, ok := k.strays.find(e.ID.Pid, func(start uint64) bool { return start == e.ID.StartTime }); ok {
		e.finish(x.st, x.at)
		return
	}
	if before := k.byPid[e.ID.Pid]; before != nil && before != e && before.ID != e.ID {
		k.lose(before)
	}
	k.byPid[e.ID.Pid] = e
}

// drop ends the wait for an entry's end. The number may be another entry's by now.
func (k *Keeper) drop(e *Entry) {
	if k.byPid[e.ID.Pid] == e {
		delete(k.byPid, e.ID.Pid)
	}
}

// lose records that a process has ended and that nobody can tell how.
func (k *Keeper) lose(e *Entry) {
	e.Ended, e.At = true, time.Now().UTC()
	k.drop(e)
	k.save(e)
	k.settled()
}

// look tells what is known about a key now, for a daemon that saw its process end.
func (k *Keeper) look(key string) (*Entry, error) {
	e := k.entries[key]
	if e == nil {
		return nil, errUnknown
	}
	if !e.Ended {
		k.reap()
	}
	if !e.Ended && !e.Foreign {
		// Another one that is just being started hides those behind it from reap.
		k.ended(e)
	}
	if now, err := procid.Of(e.ID.Pid); !e.Ended && e.ID.Gone() && (!procid.IsChild(e.ID.Pid) || err == nil && now != e.ID) {
		// Another process collected it, its true parent perhaps: nobody can tell.
		k.lose(e)
	}
	return e, nil
}
