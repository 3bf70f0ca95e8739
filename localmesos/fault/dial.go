package fault

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
)

// errCut is what a dial meets that a fault forbids.
var errCut = errors.New("cut off by a fault")

// DialContext connects as net.Dialer does, unless the link to the master is cut;
// a later cut breaks the connection. It is for the agent's client.
func (s *Set) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if s == nil {
		return d.DialContext(ctx, network, address)
	}
	if s.isCutOff() {
		return nil, errCut
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := s.dialled.track(c)
	if s.isCutOff() { // since it was looked at
		t.Close()
		return nil, errCut
	}
	return t, nil
}

func (s *Set) isCutOff() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.active, func(a *active) bool { return a.Kind == Cut && a.Part == Agent })
	if i >= 0 {
		s.active[i].Hits++
	}
	return i >= 0
}

// connections are those that were dialled and are open. Its lock is its own,
// because they close at any moment, also while the set is at work.
type connections struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

func (c *connections) track(conn net.Conn) *trackedConn {
	t := &trackedConn{Conn: conn, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*trackedConn]struct{}{}
	}
	c.open[t] = struct{}{}
	return t
}

// closeAll closes all that are open and returns how many.
func (c *connections) closeAll() int {
	c.mu.Lock()
	all := make([]*trackedConn, 0, len(c.open))
	for t := range c.open {
		all = append(all, t)
	}
	c.mu.Unlock()
	for _, t := range all {
		t.Close()
	}
	return len(all)
}

// trackedConn is a connection that a cut finds.
type trackedConn struct {
	net.Conn
	of *connections
}

// Close closes the connection and forgets it.
func (t *trackedConn) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}
