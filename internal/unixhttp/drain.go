package unixhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// silentTime is how long a connection may have been open without a request before
// it is closed at the end as an idle one is.
const silentTime = time.Second

// ServeUntil serves until the context ends, then answers every request that came on
// connections that it took, for at most limit, and closes the listener. Connections
// that it has not taken stay in the kernel's queue: for whoever has another
// handle on the socket (Keep), or to be reset.
//
// http.Server.Shutdown does not do: it drops a request that it reads while it runs.
func ServeUntil(ctx context.Context, s *http.Server, l net.Listener, limit time.Duration) error {
	d := &drain{conns: map[net.Conn]connAge{}, changed: make(chan struct{}, 1)}
	s.ConnState = d.note
	g := &gate{Listener: l, shut: make(chan struct{}), still: make(chan struct{}), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(g) }()
	var err error
	select {
	case err = <-served:
		s.Close()
		return err
	case <-ctx.Done():
	}
	g.stop()
	// What is being taken at this moment is counted before the next one would be: without
	// this wait it could be closed with its request unread.
	select {
	case <-g.still:
	case <-time.After(limit):
	}
	s.SetKeepAlivesEnabled(false)
	d.wait(limit)
	s.Close()
	if err = <-served; errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// gate is a listener that stops accepting without an error.
type gate struct {
	net.Listener
	shut, still, closed chan struct{}
	once, stilled       sync.Once
}

func (g *gate) stop() {
	close(g.shut)
	if l, ok := g.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		_ = l.SetDeadline(time.Unix(1, 0)) // fails for one that is closed
	}
}

// Accept returns the next connection; after stop it waits for Close.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-g.shut:
		g.stilled.Do(func() { close(g.still) })
		<-g.closed
		return nil, net.ErrClosed
	default:
		return nil, err
	}
}

// Close closes the listener.
func (g *gate) Close() error {
	err := error(nil)
	g.once.Do(func() {
		close(g.closed)
		err = g.Listener.Close()
	})
	return err
}

// drain knows the connections of a server.
type drain struct {
	mu      sync.Mutex
	conns   map[net.Conn]connAge
	changed chan struct{}
}

type connAge struct {
	state http.ConnState
	since time.Time
}

func (d *drain) note(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(d.conns, c)
	} else {
		d.conns[c] = connAge{state, time.Now()}
	}
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// wait returns when no connection has a request to come or to be answered.
func (d *drain) wait(limit time.Duration) {
	const tick = 20 * time.Millisecond
	for end := time.Now().Add(limit); d.busy() && time.Now().Before(end); {
		select {
		case <-d.changed:
		case <-time.After(tick):
		}
	}
}

func (d *drain) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		if c.state == http.StateActive || c.state == http.StateNew && time.Since(c.since) < silentTime {
			return true
		}
	}
	return false
}
