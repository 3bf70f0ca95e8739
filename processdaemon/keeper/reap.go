package keeper

import (
	"time"

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
		if e := k.byPid[pid]; e != nil {
			if !k.ended(e) {
				break
			}
			continue
		}
		id, err := procid.Of(pid)
		st, reapErr := procid.ReapPid(pid)
		if err == nil && reapErr == nil {
			k.strays.add(stray{pid, id.StartTime, st, time.Now().UTC()})
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
	st, done, err := procid.PeekEnd(pid)
	if err != nil || !done {
		return false
	}
	_ = failpoint.Inject("keeper/ended")
	e.finish(st, time.Now().UTC())
	k.save(e)
	_ = failpoint.Inject("keeper/end-recorded")
	delete(k.byPid, pid)
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
	k.byPid[e.ID.Pid] = e
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
	if !e.Ended && !e.ID.Alive() && !procid.IsChild(e.ID.Pid) {
		// Another process collected it, its true parent perhaps: nobody can tell.
		e.Ended, e.At = true, time.Now().UTC()
		delete(k.byPid, e.ID.Pid)
		k.save(e)
		k.settled()
	}
	return e, nil
}
