package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/failpoint"
	"tandem/internal/procid"
)

// Client is a connection to a running keeper. It ends with the first error of
// the connection; then dial again. Its methods may be called at the same time.
type Client struct {
	c *net.UnixConn
	// Build is the version of the program that the keeper is.
	Build string
	// Version is that of the protocol that both sides speak.
	Version int
	// Entries are what the keeper knew when the connection was made.
	Entries []Entry
	peer    procid.Identity

	write sync.Mutex

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan answer
	live    int
	err     error
	done    chan struct{}
}

// ErrNone says that no keeper listens in the directory.
var ErrNone = errors.New("no keeper runs")

// ErrHangs says that a keeper took the connection and does not answer.
var ErrHangs = errors.New("the keeper does not answer")

// Dial connects to the keeper of a directory. patience bounds the wait for its
// first answer. With ErrHangs the client is returned too, for Peer and Close alone.
func Dial(ctx context.Context, dir string, patience time.Duration) (*Client, error) {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", socketPath(d))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("connect to keeper: %w", err)
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("connect to keeper: not a unix socket")
	}
	c := &Client{c: uc, waiting: map[uint64]chan answer{}, done: make(chan struct{})}
	if c.peer, err = peerOf(uc); err != nil {
		uc.Close()
		return nil, err
	}
	go c.read()
	hctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := c.call(hctx, &request{Op: opHello, Version: Protocol})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return c, fmt.Errorf("%w within %v (pid %d)", ErrHangs, patience, c.peer.Pid)
	case errors.Is(err, ErrLost):
		// It was ending.
		c.Close()
		return nil, ErrNone
	case err != nil:
		c.Close()
		return nil, fmt.Errorf("keeper (pid %d): %w", c.peer.Pid, err)
	}
	c.Build, c.Version, c.Entries = a.Build, a.Version, a.Entries
	return c, nil
}

// peerOf identifies the keeper, and refuses one of another user: whoever
// listens here is given the environment of processes.
func peerOf(c *net.UnixConn) (procid.Identity, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return procid.Identity{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return procid.Identity{}, err
	}
	if credErr != nil {
		return procid.Identity{}, fmt.Errorf("keeper: %w", credErr)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return procid.Identity{}, fmt.Errorf("keeper: the one that listens belongs to uid %d", cred.Uid)
	}
	// One that is gone already is noticed by the first request.
	id, err := procid.Of(int(cred.Pid))
	if errors.Is(err, procid.ErrGone) {
		err = nil
	}
	return id, err
}

// Peer identifies the keeper's process.
func (c *Client) Peer() procid.Identity { return c.peer }

// Live is how many processes the keeper had when it last said so.
func (c *Client) Live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection. The keeper goes on.
func (c *Client) Close() {
	c.c.Close()
	<-c.done
}

func (c *Client) read() {
	var err error
	for {
		var a answer
		var files []*os.File
		if files, err = receive(c.c, &a); err != nil {
			break
		}
		closeAll(files)
		c.mu.Lock()
		if a.Error == nil || a.Error.Code == codeBusy {
			c.live = a.Live
		}
		ch := c.waiting[a.Seq]
		delete(c.waiting, a.Seq)
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	c.c.Close()
	c.mu.Lock()
	c.err = fmt.Errorf("%w: %w", ErrLost, err)
	c.mu.Unlock()
	close(c.done)
}

func (c *Client) call(ctx context.Context, r *request) (answer, error) {
	if err := failpoint.Inject("keeper-client/", r.Op); err != nil {
		return answer{}, err
	}
	files, err := r.attach()
	if err != nil {
		return answer{}, err
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.seq++
	r.Seq = c.seq
	c.waiting[r.Seq] = ch
	c.mu.Unlock()
	c.write.Lock()
	at, _ := ctx.Deadline() // none is the zero time, which is none here, too
	if err = c.c.SetWriteDeadline(at); err == nil {
		err = send(c.c, r, files)
	}
	c.write.Unlock()
	if err != nil {
		// Half a request may be out.
		c.c.Close()
		return answer{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case a := <-ch:
		if err := failpoint.Inject("keeper-client/", r.Op, "/answered"); err != nil {
			return answer{}, err
		}
		if a.Error != nil {
			return a, a.Error
		}
		return a, nil
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return answer{}, c.err
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, r.Seq)
		c.mu.Unlock()
		return answer{}, ctx.Err()
	}
}

func (c *Client) entry(ctx context.Context, r *request) (Entry, bool, error) {
	a, err := c.call(ctx, r)
	if err != nil {
		return Entry{}, false, err
	}
	if a.Entry == nil {
		return Entry{}, false, errors.New("the keeper's answer lacks its entry")
	}
	return *a.Entry, a.Existing, nil
}

// Spawn starts a process. One that was started under this key before is not
// started again: existing. The caller keeps the files. ErrTooOld: nothing was done.
func (c *Client) Spawn(ctx context.Context, s *Spec) (e Entry, existing bool, err error) {
	if s.needs() > c.Version {
		return Entry{}, false, ErrTooOld
	}
	return c.entry(ctx, &request{Op: opSpawn, Spec: s})
}

// Claim asks the keeper to record under this key how a process ends that put
// itself into the background.
func (c *Client) Claim(ctx context.Context, key string, id procid.Identity) (Entry, error) {
	e, _, err := c.entry(ctx, &request{Op: opClaim, Key: key, Pid: id.Pid, Start: id.StartTime})
	return e, err
}

// Look returns what is known about a key, or ErrUnknown. Asked about a process
// whose end was seen, it tells how it ended, unless nobody can know.
func (c *Client) Look(ctx context.Context, key string) (Entry, error) {
	e, _, err := c.entry(ctx, &request{Op: opLook, Key: key})
	return e, err
}

// Stray tells how a process ended that has no key, had this pid lately and was not
// older than start, or ErrUnknown.
func (c *Client) Stray(ctx context.Context, pid int, start uint64) (Entry, error) {
	e, _, err := c.entry(ctx, &request{Op: opStray, Pid: pid, Start: start})
	return e, err
}

// Forget drops what ended under keys with this prefix.
func (c *Client) Forget(ctx context.Context, prefix string) error {
	_, err := c.call(ctx, &request{Op: opForget, Key: prefix})
	return err
}

// Retire asks the keeper to end, which it does unless it has processes: ErrBusy.
func (c *Client) Retire(ctx context.Context) error {
	_, err := c.call(ctx, &request{Op: opRetire})
	return err
}
