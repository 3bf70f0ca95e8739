package fault

import (
	"context"
	"net"
	"net/http"
	"time"
)

// exchange is a request under way.
type exchange struct {
	set     *Set
	part    Part
	subject Subject
	conn    net.Conn // nil where the server was not given ConnContext
	cancel  context.CancelFunc
	// Owned by the set: whether it is a stream, and whether it was cut.
	stream, dead bool
}

type (
	connKey     struct{}
	exchangeKey struct{}
)

// ConnContext is for http.Server: a stream is cut by closing its connection.
func (s *Set) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Wrap puts the faults, and their endpoint /faults, before a handler. part tells
// what a request belongs to. Without a set the handler stays as it is.
func (s *Set) Wrap(next http.Handler, part func(*http.Request) Part) http.Handler {
	if s == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isEndpoint(r) {
			s.serve(w, r)
			return
		}
		if !s.awaitThaw(r.Context()) {
			panic(http.ErrAbortHandler)
		}
		p := part(r)
		if s.unavailable(p) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("Service Unavailable")) // the client may be gone
			return
		}
		s.exchange(w, r, p, next)
	})
}

func (s *Set) exchange(w http.ResponseWriter, r *http.Request, p Part, next http.Handler) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x := &exchange{set: s, part: p, cancel: cancel}
	x.conn, _ = ctx.Value(connKey{}).(net.Conn)
	out := &writer{ResponseWriter: w, x: x, done: ctx.Done()}
	s.mu.Lock()
	s.exchanges[x] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.exchanges, x)
		s.mu.Unlock()
	}()
	x.refuseIfCut()
	// Before the handler's end, also by a panic: nothing may write to w after it.
	defer out.drain()
	next.ServeHTTP(out, r.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
	if x.isDead() {
		panic(http.ErrAbortHandler) // it must not look like an orderly end
	}
}

// Identify tells who a request is from, as soon as that is known. It does not
// return, but breaks the connection, when the client is cut off.
func Identify(ctx context.Context, who Subject) {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return
	}
	x.set.mu.Lock()
	x.subject = who
	x.set.mu.Unlock()
	x.refuseIfCut()
}

// refuseIfCut breaks the connection of a client that is cut off for a while.
func (x *exchange) refuseIfCut() {
	s := x.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active {
		if a.Kind == Cut && a.Part == x.part && a.matches(x.subject) {
			a.Hits++
			panic(http.ErrAbortHandler)
		}
	}
}

func (x *exchange) isDead() bool {
	x.set.mu.Lock()
	defer x.set.mu.Unlock()
	return x.dead
}

// cut breaks all streams that a fault is about and returns how many.
func (s *Set) cut(f Fault) (n int) {
	for x := range s.exchanges {
		if !x.stream || x.dead || x.part != f.Part || !f.matches(x.subject) {
			continue
		}
		n++
		x.dead = true
		if x.conn != nil {
			x.conn.Close()
		}
		x.cancel()
	}
	if f.Part == Agent && s.o.Role == OnAgent {
		n += s.dialled.closeAll()
	}
	s.o.Logger.Warn("fault strikes", "fault", f.ID, "kind", f.Kind, "streams", n)
	return n
}

// unavailable tells whether a request is to be answered with 503.
func (s *Set) unavailable(p Part) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active {
		if a.Kind == Unavailable && (a.Part == "" || a.Part == p) {
			s.hit(a, "part", p)
			return true
		}
	}
	return false
}

// delay is how late an event of a stream is to be.
func (x *exchange) delay() (d time.Duration) {
	s := x.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.active {
		if a.Kind == Delay && a.Part == x.part && x.stream && a.matches(x.subject) {
			a.Hits++
			d += time.Duration(a.By)
		}
	}
	return d
}

// awaitThaw waits while the owner is frozen; it returns false when ctx ends before.
func (s *Set) awaitThaw(ctx context.Context) bool {
	for {
		s.mu.Lock()
		thawed := s.thawed
		s.mu.Unlock()
		if thawed == nil {
			return true
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return false
		}
	}
}
