package keeper

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
	"tandem/internal/version"
)

// conversation is one daemon's connection.
type conversation struct {
	k     *Keeper
	c     *net.UnixConn
	write sync.Mutex
}

// answerTime is how long a daemon may take to read an answer; one that is
// stopped must not stop its keeper.
const answerTime = 5 * time.Second

func (v *conversation) answer(a answer, err error) {
	if err != nil {
		a.Error = faultOf(err)
	}
	v.write.Lock()
	defer v.write.Unlock()
	err = v.c.SetWriteDeadline(time.Now().Add(answerTime))
	if err == nil {
		err = send(v.c, a, nil)
	}
	if err != nil {
		// Half an answer cannot be mended; the daemon asks again.
		v.c.Close()
	}
}

// converse answers one daemon until it goes.
func (k *Keeper) converse(c *net.UnixConn) {
	v := &conversation{k: k, c: c}
	defer func() {
		c.Close()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.conns--
		k.settled()
	}()
	for {
		r := new(request)
		files, err := receive(c, r)
		if err != nil {
			return
		}
		r.received = files
		if r.Op == opSpawn {
			k.spawn(v, r)
			continue
		}
		closeAll(files)
		k.mu.Lock()
		a, err := k.handle(r)
		a.Seq, a.Live = r.Seq, k.live()
		k.mu.Unlock()
		v.answer(a, err)
	}
}

// handle answers everything but a start. The lock is held.
func (k *Keeper) handle(r *request) (answer, error) {
	switch r.Op {
	case opHello:
		return k.hello(r)
	case opClaim:
		return k.claim(r)
	case opLook:
		e, err := k.look(r.Key)
		return k.about(e), err
	case opStray:
		x, ok := k.strays.find(r.Pid, func(start uint64) bool { return start >= r.Start })
		if !ok {
			return answer{}, errUnknown
		}
		e := Entry{ID: procid.Identity{BootID: k.store.boot, Pid: x.pid, StartTime: x.start}}
		e.finish(x.st, x.at)
		return answer{Entry: &e}, nil
	case opForget:
		return answer{}, k.forget(r.Key)
	case opRetire:
		if k.needed() {
			return answer{}, &fault{Code: codeBusy, Text: "processes run, or the disk has not taken how one ended"}
		}
		// After the answer, which the connection's end tells.
		time.AfterFunc(time.Millisecond, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if !k.needed() {
				k.retire()
			}
		})
		return answer{}, nil
	}
	return answer{}, &fault{Code: codeInvalid, Text: fmt.Sprintf("operation %q: this keeper is too old for it", r.Op)}
}

// about copies an entry under the lock, for it is written later. Nil stays nil.
func (k *Keeper) about(e *Entry) answer {
	if e == nil {
		return answer{}
	}
	c := *e
	return answer{Entry: &c, Live: k.live()}
}

func (k *Keeper) hello(r *request) (answer, error) {
	if r.Version < 1 {
		return answer{}, &fault{Code: codeVersion, Text: fmt.Sprintf("protocol %d: this keeper speaks 1 to %d", r.Version, Protocol)}
	}
	k.reap()
	a := answer{Version: min(r.Version, Protocol), Build: version.String(), Entries: make([]Entry, 0, len(k.entries))}
	for _, e := range k.entries {
		a.Entries = append(a.Entries, *e)
	}
	return a, nil
}

func (k *Keeper) claim(r *request) (answer, error) {
	if err := checkKey(r.Key); err != nil {
		return answer{}, &fault{Code: codeInvalid, Text: err.Error()}
	}
	if e := k.entries[r.Key]; e != nil {
		a := k.about(e)
		a.Existing = true
		return a, nil
	}
	e := &Entry{Key: r.Key, ID: procid.Identity{BootID: k.store.boot, Pid: r.Pid, StartTime: r.Start}}
	if err := k.store.save(e); err != nil {
		return answer{}, err
	}
	k.enter(e)
	if e.Ended {
		k.save(e)
	}
	return k.about(e), nil
}

// forget drops what ended under keys with this prefix. What still runs keeps
// its entry until it has ended.
func (k *Keeper) forget(prefix string) error {
	if err := checkKey(prefix); err != nil {
		return &fault{Code: codeInvalid, Text: err.Error()}
	}
	k.reap()
	var errs []error
	for key, j := range k.starting {
		if strings.HasPrefix(key, prefix) {
			// Nobody will ask for it again, so it must not run when its exec comes back from
			// a file system that hung.
			j.dropped = true
			errs = append(errs, &fault{Code: codeBusy, Text: key + " is being started; it is killed then"})
		}
	}
	for key, e := range k.entries {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if !e.Ended && !e.ID.Gone() {
			errs = append(errs, &fault{Code: codeBusy, Text: key + " runs"})
			continue
		}
		if err := k.store.remove(key); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(k.entries, key)
		k.drop(e)
	}
	k.settled()
	return errors.Join(errs...)
}

// spawn starts a process, on the thread that runs the conversation: a hand-over
// would cost as much as the fork. The same key twice gets the same answer twice.
func (k *Keeper) spawn(v *conversation, r *request) {
	defer closeAll(r.received)
	j, a, err := k.begin(v, r)
	if j != nil {
		var e *Entry
		e, err = k.start(r.Spec)
		a = k.conclude(j, e, err)
	}
	if j == nil && a == nil && err == nil {
		return // who starts it answers
	}
	if a == nil {
		a = new(answer)
	}
	a.Seq = r.Seq
	v.answer(*a, err)
}

// begin answers a request for a start, or lets it wait for one under way, or
// returns a job: then it is the caller's to start the process.
func (k *Keeper) begin(v *conversation, r *request) (*job, *answer, error) {
	if err := r.detach(); err != nil {
		return nil, nil, err
	}
	if err := checkKey(r.Spec.Key); err != nil {
		return nil, nil, &fault{Code: codeInvalid, Text: err.Error()}
	}
	if err := failpoint.Inject("keeper/asked"); err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[r.Spec.Key]; e != nil {
		a := k.about(e)
		a.Existing = true
		return nil, &a, nil
	}
	if j := k.starting[r.Spec.Key]; j != nil {
		j.others = append(j.others, asker{v, r.Seq})
		return nil, nil, nil
	}
	if k.retired {
		return nil, nil, &fault{Code: codeEnding, Text: "the keeper is ending"}
	}
	j := &job{key: r.Spec.Key}
	k.starting[j.key] = j
	k.idle.Stop()
	return j, nil, nil
}
