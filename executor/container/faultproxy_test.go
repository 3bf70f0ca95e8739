package container

import (
	"context"
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

// fault is what the proxy does to a request.
type fault int

const (
	pass         fault = iota
	dropRequest        // hang up, the engine never hears of it
	dropResponse       // the engine does it, the answer is lost
	silence            // neither an answer nor a hang-up
	fail500            // an answer, but a bad one
	fail409            // as if the name were taken
)

// faultProxy stands before the engine's socket and breaks what it is told to.
type faultProxy struct {
	host string

	mu    sync.Mutex
	conns map[net.Conn]bool
	rules []faultRule
	calls []string
}

type faultRule struct {
	match *regexp.Regexp // of "METHOD /path"
	what  fault
	times int // -1: always
}

func newFaultProxy(t *testing.T) *faultProxy {
	t.Helper()
	// Not t.TempDir: the path of a unix socket may have 107 bytes only.
	dir, err := os.MkdirTemp("", "tandem")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "d.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultProxy{host: "unix://" + socket, conns: map[net.Conn]bool{}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", "/var/run/docker.sock")
	}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	stop := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p.next(r) {
		case pass:
			forward.ServeHTTP(w, r)
		case dropRequest:
			panic(http.ErrAbortHandler)
		case dropResponse:
			r.URL.Scheme, r.URL.Host, r.RequestURI = "http", "docker", ""
			if resp, err := transport.RoundTrip(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			panic(http.ErrAbortHandler)
		case silence:
			select {
			case <-r.Context().Done():
			case <-stop:
			}
			panic(http.ErrAbortHandler)
		case fail500:
			http.Error(w, `{"message":"the storage driver is on fire"}`, http.StatusInternalServerError)
		case fail409:
			http.Error(w, `{"message":"the name is in use"}`, http.StatusConflict)
		}
	}), ConnState: func(c net.Conn, state http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns[c] = state != http.StateClosed
	}}
	go s.Serve(ln)
	t.Cleanup(func() {
		close(stop)
		s.Close()
		transport.CloseIdleConnections()
		os.RemoveAll(dir)
	})
	return p
}

func (p *faultProxy) next(r *http.Request) fault {
	call := r.Method + " " + r.URL.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
	for i := range p.rules {
		rule := &p.rules[i]
		if rule.times != 0 && rule.match.MatchString(call) {
			if rule.times > 0 {
				rule.times--
			}
			return rule.what
		}
	}
	return pass
}

// arm makes the next calls that match go wrong; times -1 means all of them.
func (p *faultProxy) arm(match string, what fault, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append([]faultRule{{regexp.MustCompile(match), what, times}}, p.rules...)
}

// clear lets everything pass again, also what is held.
func (p *faultProxy) clear() {
	p.mu.Lock()
	p.rules = nil
	p.mu.Unlock()
	p.hangUp()
}

// seen returns the calls since the last look that match.
func (p *faultProxy) seen(match string) []string {
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

// hangUp breaks every connection there is.
func (p *faultProxy) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, open := range p.conns {
		if open {
			c.Close()
		}
	}
}

// behindProxy is a fixture whose runtime speaks through a proxy.
func behindProxy(t *testing.T) (*fixture, *faultProxy) {
	t.Helper()
	if noEngine != "" {
		t.Skip("no Docker Engine: ", noEngine)
	}
	p := newFaultProxy(t)
	return newFixture(t, func(o *Options) { o.Host, o.ExitPatience = p.host, time.Second }), p
}
