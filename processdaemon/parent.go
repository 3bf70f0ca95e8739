package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tandem/internal/procid"
	"tandem/internal/version"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// parent is the daemon's side of the keeper, the process that is the parent of
// everything that runs: it finds the one that an earlier daemon left, starts one
// when there is none, and asks again when a connection breaks.
type parent struct {
	log    *slog.Logger
	launch keeper.Launch
	kids   *children
	// patience is how long a keeper may take for an answer. It needs milliseconds;
	// one that stands still for that long cannot do its work.
	patience time.Duration
	wg       sync.WaitGroup // waits for keepers that this daemon started

	mu sync.Mutex
	c  *keeper.Client
}

const (
	keeperPatience = 30 * time.Second
	// retireTime is how long the end of an idle keeper may take.
	retireTime = 3 * time.Second
	// lastBreath is how long what was killed may take to be gone.
	lastBreath = 500 * time.Millisecond
	// outcomeTime is how long the kernel is asked how a process ended that
	// another process has to collect first.
	outcomeTime = time.Second
)

// errSpawnLost says that a keeper ended before a process had run its first instruction.
var errSpawnLost = errors.New("the keeper was killed while it started the process")

// client returns the connection to a keeper that runs.
func (p *parent) client(ctx context.Context) (*keeper.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c != nil {
		select {
		case <-p.c.Done():
			p.c = nil
		default:
			return p.c, nil
		}
	}
	const rounds = 3
	var err error
	for range rounds {
		var c *keeper.Client
		c, err = keeper.Dial(ctx, p.launch.Dir, p.patience)
		switch {
		case err == nil && c.Build != version.String() && p.retire(ctx, c):
			// It came from another release and nothing needs it.
			continue
		case err == nil:
			p.c = c
			p.log.Info("keeper found", "pid", c.Peer().Pid, "build", c.Build, "entries", len(c.Entries))
			return c, nil
		case errors.Is(err, keeper.ErrHangs):
			p.log.Error("the keeper is replaced; exit codes of what it started are lost", "err", err)
			killErr := endHanging(ctx, c.Peer())
			c.Close()
			if killErr != nil {
				return nil, killErr
			}
		case !errors.Is(err, keeper.ErrNone):
			return nil, err
		}
		if err = p.startKeeper(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("keeper in %s: %w", p.launch.Dir, err)
}

// info describes the keeper that is connected.
func (p *parent) info() *protocol.Keeper {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		return nil
	}
	return &protocol.Keeper{Pid: p.c.Peer().Pid, Version: p.c.Build, Processes: p.c.Live()}
}

func (p *parent) startKeeper(ctx context.Context) error {
	// It is tracked before a collector may look at it.
	p.kids.fork.RLock()
	pid, wait, err := keeper.Start(ctx, p.launch)
	if err == nil {
		p.kids.track(pid)
	}
	p.kids.fork.RUnlock()
	if err != nil {
		return err
	}
	// Failpoints are for the first one: they would end each that follows, too.
	p.launch.Points = ""
	p.wg.Go(func() {
		wait()
		p.kids.untrack(pid)
	})
	return nil
}

func endHanging(ctx context.Context, id procid.Identity) error {
	proc, err := procid.Open(id)
	if errors.Is(err, procid.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer proc.Close()
	if err := proc.Signal(9); err != nil && !errors.Is(err, procid.ErrGone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, retireTime)
	defer cancel()
	return proc.Wait(ctx)
}

// do makes a call that may be repeated; once more when the connection broke.
func (p *parent) do(ctx context.Context, call func(context.Context, *keeper.Client) error) error {
	var err error
	for range 2 {
		var c *keeper.Client
		if c, err = p.client(ctx); err != nil {
			return err
		}
		cctx, cancel := context.WithTimeout(ctx, p.patience)
		err = call(cctx, c)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			// The next connection finds out whether it hangs.
			c.Close()
		case !errors.Is(err, keeper.ErrLost):
			return err
		}
	}
	return err
}

// renew ends the keeper that is connected if it came from another release and has
// nothing to keep any more, so that the next one is of this release. One that is just
// being given something stays.
func (p *parent) renew(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil || p.c.Build == version.String() || p.c.Live() > 0 {
		return
	}
	if p.retire(ctx, p.c) {
		p.log.Info("the keeper of another release has nothing to keep and is replaced", "pid", p.c.Peer().Pid, "build", p.c.Build)
		p.c = nil
	}
}

// spawn starts a process under its key, once, whatever happens to the keeper.
func (p *parent) spawn(ctx context.Context, s *keeper.Spec) (keeper.Entry, error) {
	var e keeper.Entry
	var first procid.Identity
	p.renew(ctx)
	err := p.do(ctx, func(ctx context.Context, c *keeper.Client) (err error) {
		if first.IsZero() {
			first = c.Peer()
		}
		if c.Peer() == first {
			e, _, err = c.Spawn(ctx, s)
			return err
		}
		// Another keeper than the one that was asked first: that one recorded the
		// process before it ran, or the kernel ended the process with it.
		if e, err = c.Look(ctx, s.Key); errors.Is(err, keeper.ErrUnknown) {
			err = errSpawnLost
		}
		return err
	})
	switch {
	case errors.Is(err, keeper.ErrLost):
		err = errors.Join(errSpawnLost, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		// Its exec hangs, on a file system that is away perhaps. It must not run when that
		// comes back; if it has just begun to, the kill of its group finds it.
		if forgetErr := p.forget(ctx, s.Key); forgetErr != nil && !errors.Is(forgetErr, keeper.ErrBusy) {
			err = errors.Join(err, forgetErr)
		}
	}
	return e, err
}

// find returns what was started under a key, or keeper.ErrUnknown.
func (p *parent) find(ctx context.Context, key string) (e keeper.Entry, err error) {
	err = p.do(ctx, func(ctx context.Context, c *keeper.Client) (err error) {
		e, err = c.Look(ctx, key)
		return err
	})
	return e, err
}

func (p *parent) claim(ctx context.Context, key string, id procid.Identity) error {
	return p.do(ctx, func(ctx context.Context, c *keeper.Client) error {
		_, err := c.Claim(ctx, key, id)
		return err
	})
}

func (p *parent) stray(ctx context.Context, pid int, start uint64) (e keeper.Entry, err error) {
	err = p.do(ctx, func(ctx context.Context, c *keeper.Client) (err error) {
		e, err = c.Stray(ctx, pid, start)
		return err
	})
	return e, err
}

func (p *parent) forget(ctx context.Context, prefix string) error {
	return p.do(ctx, func(ctx context.Context, c *keeper.Client) error { return c.Forget(ctx, prefix) })
}

// outcome tells how a process ended: from its keeper, or, when that was killed,
// from whoever the kernel made its parent then. proc is nil when it was gone
// before it could be opened.
func (p *parent) outcome(ctx context.Context, key string, id procid.Identity, proc *procid.Process) protocol.Exit {
	if key != "" {
		e, err := p.find(ctx, key)
		switch {
		case err == nil && e.ID == id && e.Known:
			return protocol.Exit{Known: true, Code: e.Code, Signal: e.Signal}
		case err != nil && ctx.Err() == nil && !errors.Is(err, keeper.ErrUnknown):
			p.log.Error("the keeper cannot be asked how a process ended", "key", key, "err", err)
		}
	}
	if proc == nil {
		return protocol.Exit{}
	}
	st, err := proc.Reap()
	known := err == nil
	for end := time.Now().Add(outcomeTime); !known && time.Now().Before(end) && ctx.Err() == nil; time.Sleep(pollFirst) {
		var supported bool
		if st, known, supported = proc.Outcome(); !supported {
			break
		}
	}
	if !known {
		return protocol.Exit{}
	}
	return protocol.Exit{Known: true, Code: st.Code, Signal: st.Signal}
}

// retire ends a keeper that has nothing to keep, and tells whether it did.
func (p *parent) retire(ctx context.Context, c *keeper.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, retireTime)
	defer cancel()
	err := c.Retire(ctx)
	// What was killed a moment ago may not have ended yet.
	for end := time.Now().Add(lastBreath); errors.Is(err, keeper.ErrBusy) && c.Live() == 0 && time.Now().Before(end); err = c.Retire(ctx) {
		time.Sleep(pollFirst)
	}
	if err != nil && !errors.Is(err, keeper.ErrLost) {
		if !errors.Is(err, keeper.ErrBusy) {
			p.log.Warn("the keeper does not end", "err", err)
		}
		return false
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
		return false
	}
	c.Close()
	// The connection ends a moment before the process, and the process keeps its group.
	if proc, err := procid.Open(c.Peer()); err == nil {
		defer proc.Close()
		return proc.Wait(ctx) == nil
	}
	return true
}

// close leaves a keeper that has processes alone and ends one that has none.
func (p *parent) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c == nil {
		p.launch.Tree.Close()
		return
	}
	if p.retire(context.Background(), p.c) {
		p.wg.Wait()
		if err := p.launch.Group().Remove(); err != nil {
			p.log.Warn("the keeper's control group is left", "err", err)
		}
		p.launch.Tree.Close()
	} else {
		p.c.Close()
	}
	p.c = nil
}
