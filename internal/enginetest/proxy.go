// Package enginetest has what tests do to a Docker Engine: a proxy before its
// socket that breaks calls, and an engine of a test's own to be stopped and
// started. Only tests import it. It must never touch the machine's own engine,
// beyond the calls that pass the proxy.
package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Fault is what the proxy does to a call.
type Fault int

// The faults.
const (
	// Pass lets the call through.
	Pass Fault = iota
	// DropRequest hangs up, and the engine never hears of it.
	DropRequest
	// DropResponse lets the engine do it and hangs up instead of the answer.
	DropResponse
	// Silence neither answers nor hangs up.
	Silence
	// Fail500 answers with status 500, Fail409 as if a name were taken, Fail404 as if
	// there were no such thing.
	Fail500
	Fail409
	Fail404
	// Delay lets the call through after half a second.
	Delay
	// HalfClose breaks the answer off in its middle and goes on listening.
	HalfClose
	// LoseEvents answers 200 and nothing else.
	LoseEvents
)

// String names the fault for the reports of tests.
func (f Fault) String() string {
	return [...]string{"pass", "drop request", "drop response", "silence", "fail 500", "fail 409", "fail 404", "delay", "half close", "lose events"}[f]
}

// Proxy stands before an engine's socket and breaks what it is told to.
type Proxy struct {
	// Host is its address as unix:///path.
	Host string

	transport *http.Transport
	stop      chan struct{}
	socket    string
	server    *http.Server

	mu    sync.Mutex
	conns map[net.Conn]bool
	// behind are the connections to the engine. One that was handed over does not end
	// by itself when only its client has gone.
	behind map[net.Conn]bool
	rules  []rule
	calls  []string
	total  int
}

type rule struct {
	match *regexp.Regexp // of "METHOD /path"
	nth   int            // or the call of this number, when it is above 0
	what  Fault
	times int // -1: always
}

// NewProxy starts a proxy before the socket of this path. It ends with the test.
func NewProxy(t testing.TB, engine string) *Proxy {
	t.Helper()
	// Not t.TempDir: the path of a unix socket may have 107 bytes only.
	dir, err := os.MkdirTemp("", "tandem")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{stop: make(chan struct{}), socket: filepath.Join(dir, "d.sock"), conns: map[net.Conn]bool{}, behind: map[net.Conn]bool{}}
	p.Host = "unix://" + p.socket
	p.transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", engine)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.behind[c] = true
		p.mu.Unlock()
		return &backend{c, p}, nil
	}}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(p.stop)
		p.Down()
		p.transport.CloseIdleConnections()
		os.RemoveAll(dir)
	})
	return p
}

// Up makes the proxy listen; it does so from the beginning.
func (p *Proxy) Up() error {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", p.socket)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ConnState: func(c net.Conn, state http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns[c] = state != http.StateClosed
	}}
	go func() { _ = p.server.Serve(ln) }() // its error is that it was closed
	return nil
}

// Down breaks all connections and refuses new ones, as an engine that is not there.
func (p *Proxy) Down() {
	_ = p.server.Close() // nothing can be done about a connection that does not close
	p.HangUp()
}

// ServeHTTP does to a call what is due.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p.next(r) {
	case Delay:
		select {
		case <-time.After(500 * time.Millisecond):
		case <-p.stop:
		}
		p.forward(w, r)
	case DropRequest:
		panic(http.ErrAbortHandler)
	case DropResponse:
		if resp := p.send(r); resp != nil {
			if resp.StatusCode != http.StatusSwitchingProtocols {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			resp.Body.Close()
		}
		panic(http.ErrAbortHandler)
	case HalfClose:
		p.halfClose(w, r)
	case Silence:
		select {
		case <-r.Context().Done():
		case <-p.stop:
		}
		panic(http.ErrAbortHandler)
	case Fail500:
		http.Error(w, `{"message":"the storage driver is on fire"}`, http.StatusInternalServerError)
	case Fail409:
		http.Error(w, `{"message":"the name is in use"}`, http.StatusConflict)
	case Fail404:
		http.Error(w, `{"message":"no such container"}`, http.StatusNotFound)
	case LoseEvents:
		w.WriteHeader(http.StatusOK)
	default:
		p.forward(w, r)
	}
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	// The server closes the body of a call once its answer begins, and a transport that is still about to see the body's
	// end then gives the connection up, with the answer on it. An engine that answers at once, as it does when it starts
	// a command, is quicker now and then. What is in memory is never read too late.
	if r.ContentLength > 0 {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	f := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	f.ServeHTTP(w, r)
}

// send makes the call; nil when the engine does not answer.
func (p *Proxy) send(r *http.Request) *http.Response {
	r.URL.Scheme, r.URL.Host, r.RequestURI = "http", "docker", ""
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil
	}
	return resp
}

// halfClose sends the first half of an answer, closes its own direction and waits
// until the other side has closed, too.
func (p *Proxy) halfClose(w http.ResponseWriter, r *http.Request) {
	half := []byte("HTTP/1.1 2") // of an answer without a body
	if resp := p.send(r); resp != nil {
		if resp.StatusCode != http.StatusSwitchingProtocols {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			if len(body) > 0 {
				half = fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", resp.Status, len(body), body[:len(body)/2])
			}
		}
		resp.Body.Close()
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	_, _ = conn.Write(half)
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	done := make(chan struct{})
	go func(r *bufio.Reader) {
		defer close(done)
		_, _ = io.Copy(io.Discard, r)
	}(rw.Reader)
	select {
	case <-done:
	case <-p.stop:
		conn.Close()
		<-done
	}
}

func (p *Proxy) next(r *http.Request) Fault {
	call := r.Method + " " + r.URL.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	p.total++
	for i := range p.rules {
		rule := &p.rules[i]
		if rule.times == 0 || rule.nth > 0 && rule.nth != p.total || !rule.match.MatchString(call) {
			continue
		}
		if rule.times > 0 {
			rule.times--
		}
		return rule.what
	}
	return Pass
}

// Arm makes the next calls that match ("METHOD /path") go wrong; times -1 means
// all of them. Later rules come before earlier ones.
func (p *Proxy) Arm(match string, what Fault, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append([]rule{{match: regexp.MustCompile(match), what: what, times: times}}, p.rules...)
}

// ArmNth makes one call go wrong, the nth from the beginning of the proxy.
func (p *Proxy) ArmNth(nth int, what Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append([]rule{{match: regexp.MustCompile(""), nth: nth, what: what, times: 1}}, p.rules...)
}

// Clear lets everything pass again, and breaks off what is held.
func (p *Proxy) Clear() {
	p.mu.Lock()
	p.rules = nil
	p.mu.Unlock()
	p.HangUp()
}

// Total is how many calls there have been.
func (p *Proxy) Total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Seen returns the calls since the last look that match.
func (p *Proxy) Seen(match string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, c := range p.calls {
		if regexp.MustCompile(match).MatchString(c) {
			out = append(out, c)
		}
	}
	p.calls = nil
	return out
}

// HangUp breaks every connection there is.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, open := range p.conns {
		if open {
			c.Close()
		}
	}
	for c := range p.behind {
		c.Close()
		delete(p.behind, c)
	}
}

// backend is a connection to the engine that is known until it is closed.
type backend struct {
	net.Conn
	p *Proxy
}

func (b *backend) Close() error {
	b.p.mu.Lock()
	delete(b.p.behind, b.Conn)
	b.p.mu.Unlock()
	return b.Conn.Close()
}
