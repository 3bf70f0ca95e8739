package process

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// news is the daemon's stream of changes of this executor's tasks: one for all that
// follow one, however many. A connection tells all tasks as they are and then each
// change, so that nothing is lost over one that breaks.
type news struct {
	c     *client.Client
	owner string
	log   *slog.Logger

	cancel context.CancelFunc
	done   chan struct{} // nil until somebody follows

	mu sync.Mutex
	// connection counts the connections; up tells that the latest one holds.
	connection uint64
	up         bool
	subs       map[*follower]struct{}
}

// follower is one who follows a task.
type follower struct {
	id string
	// latest is what the connection that holds has told; nil is nothing yet.
	latest  *protocol.Status
	changed chan struct{} // holds one
}

func (f *follower) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// follow registers one; the first one opens the stream.
func (n *news) follow(id string) *follower {
	f := &follower{id: id, changed: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subs == nil {
		n.subs = map[*follower]struct{}{}
	}
	n.subs[f] = struct{}{}
	if n.done == nil {
		var ctx context.Context
		ctx, n.cancel = context.WithCancel(context.Background())
		n.done = make(chan struct{})
		go n.listen(ctx)
	}
	return f
}

func (n *news) leave(f *follower) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subs, f)
}

// look returns what is known about the follower's task by the connection that
// holds, and how many there were. For one that held for a moment only somebody has to ask.
func (n *news) look(f *follower) (s *protocol.Status, connection uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil, n.connection
	}
	return f.latest, n.connection
}

// close ends the stream.
func (n *news) close() {
	n.mu.Lock()
	done := n.done
	n.mu.Unlock()
	if done != nil {
		n.cancel()
		<-done
	}
}

// listen keeps a connection until the context ends.
func (n *news) listen(ctx context.Context) {
	defer close(n.done)
	said, rest := false, patience{}
	for ctx.Err() == nil {
		begin := time.Now()
		err := n.c.Events(ctx, n.owner, func() { n.set(true) }, func(s protocol.Status) error {
			n.tell(&s)
			return nil
		})
		n.set(false)
		if time.Since(begin) >= longestPause {
			said, rest = false, patience{} // it was a daemon, and it held
		}
		if ctx.Err() == nil && !said {
			said = true
			n.log.Warn("waiting for the process daemon to come back", "err", err)
		}
		_ = rest.pause(ctx) // its error is the end
	}
}

// set notes that a connection holds, or does not any more.
func (n *news) set(up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up = up; up {
		n.connection++
	}
	for f := range n.subs {
		// What was last known is the follower's to keep; it is no news.
		f.latest = nil
		f.wake()
	}
}

func (n *news) tell(s *protocol.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.subs {
		if f.id == s.ID {
			f.latest = s
			f.wake()
		}
	}
}

// follow waits until done holds, over restarts of the daemon. A task that the
// daemon does not know is an error: how it ended cannot be known. Whatever else the
// daemon says or fails to say is none, since it says nothing of the task.
func (r *Runtime) follow(ctx context.Context, st protocol.Status, done func(*protocol.Status) bool) (protocol.Status, error) {
	if st.State != "" && done(&st) {
		return st, nil
	}
	f := r.news.follow(st.ID)
	defer r.news.leave(f)
	asked, id, rest := uint64(0), st.ID, patience{}
	for {
		news, connection := r.news.look(f)
		switch {
		case news != nil:
			st = *news
		case connection != asked && connection != 0:
			// The stream says nothing of a task that the daemon does not know, and what
			// was told before this one followed is not told again.
			next, err := r.c.Status(ctx, id)
			switch {
			case err == nil:
				st, asked = next, connection
			case ctx.Err() != nil:
				return st, ctx.Err()
			case passes(err):
				// The connection does not hold any more, the daemon is slow or in trouble, or
				// something else answers: what is known of the task stays.
				if rest.pause(ctx) != nil {
					return st, ctx.Err()
				}
				continue
			default:
				return st, err
			}
		}
		if st.State != "" && done(&st) {
			return st, nil
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}
