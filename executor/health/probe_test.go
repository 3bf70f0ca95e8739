package health

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/api"
)

var here = netip.MustParseAddr("127.0.0.1")

// patientOf is a task that is reached at these addresses of this namespace.
func patientOf(t *testing.T, addresses ...netip.Addr) *patient {
	t.Helper()
	p := &patient{Target: Target{Addresses: addresses}}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	t.Cleanup(p.close)
	return p
}

func portOfURL(t *testing.T, url string) int {
	t.Helper()
	a, err := netip.ParseAddrPort(url[strings.LastIndex(url, "/")+1:])
	if err != nil {
		t.Fatal(err)
	}
	return int(a.Port())
}

func want(t *testing.T, o Outcome, v Verdict, message string) {
	t.Helper()
	if o.Verdict != v || !strings.Contains(o.Message, message) || v == Passed && o.Message != "" {
		t.Errorf("verdict %d, message %q; want %d and %q in it", o.Verdict, o.Message, v, message)
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	answerWith := func(path string, status int) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	for path, status := range map[string]int{"/ok": 200, "/moved": 302, "/most": 399, "/gone": 410, "/broken": 503} {
		answerWith(path, status)
	}
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.example" || r.Header.Get("X-Token") != "abc" || r.URL.RawQuery != "q=1" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	plain := httptest.NewServer(mux)
	defer plain.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	p := patientOf(t, here)
	for _, c := range []struct {
		path    string
		verdict Verdict
		message string
		value   int
	}{
		{"/ok", Passed, "", 200}, {"/moved", Passed, "", 302}, {"/most", Passed, "", 399}, {"/hints", Passed, "", 204},
		{"/gone", Failed, "/gone answered 410 Gone", 410}, {"/broken", Failed, "answered 503 Service Unavailable", 503},
		{"ok", Passed, "", 200}, {"/ok#part", Passed, "", 200},
	} {
		for url, scheme := range map[string]string{plain.URL: "http", secure.URL: "https"} {
			o := p.probe(&Check{Type: api.CheckHTTP, Scheme: scheme, Port: portOfURL(t, url), Path: c.path, Timeout: 30 * time.Second})
			want(t, o, c.verdict, c.message)
			if o.Value == nil || *o.Value != c.value {
				t.Errorf("%s: value %v, want %d", c.path, o.Value, c.value)
			}
		}
	}
	port := portOfURL(t, plain.URL)
	want(t, p.probe(&Check{Type: api.CheckHTTP, Port: port, Path: "/headers?q=1", Timeout: 30 * time.Second,
		Headers: map[string]string{"host": "shop.example", "x-token": "abc"}}), Passed, "")
	o := p.probe(&Check{Type: api.CheckHTTP, Port: port, Path: "/slow", Timeout: 50 * time.Millisecond})
	want(t, o, Failed, "no answer within 50ms")
	if o.Value != nil {
		t.Errorf("value %d of an answer that never came", *o.Value)
	}
	want(t, p.probe(&Check{Type: api.CheckHTTP, Port: port, Path: "/%zz", Timeout: 30 * time.Second}), Failed, `path "/%zz"`)
	want(t, p.probe(&Check{Type: api.CheckHTTP, Scheme: "https", Port: port, Path: "/ok", Timeout: 30 * time.Second}), Failed, "first record does not look like a TLS handshake")
}

// What answers need not speak HTTP.
func TestNoHTTP(t *testing.T) {
	t.Parallel()
	for said, message := range map[string]string{
		"SSH-2.0-OpenSSH_9\r\n": "malformed HTTP",
		"":                      "EOF",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20): "more than 10 interim answers",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100):    "EOF",
	} {
		port := speaker(t, said)
		want(t, patientOf(t, here).probe(&Check{Type: api.CheckHTTP, Port: port, Path: "/", Timeout: 30 * time.Second}), Failed, message)
	}
}

// speaker accepts connections, says something and hangs up.
func speaker(t *testing.T, said string) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(said))
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestTCP(t *testing.T) {
	t.Parallel()
	port := speaker(t, "")
	p := patientOf(t, here)
	o := p.probe(&Check{Type: api.CheckTCP, Port: port, Timeout: 30 * time.Second})
	want(t, o, Passed, "")
	if *o.Value != 1 {
		t.Errorf("value %d", *o.Value)
	}
	closed := portThatIsClosed(t)
	o = p.probe(&Check{Type: api.CheckTCP, Port: closed, Timeout: 30 * time.Second})
	want(t, o, Failed, "connection refused")
	if *o.Value != 0 {
		t.Errorf("value %d", *o.Value)
	}
	// The first address that answers counts, and the first error is told.
	want(t, patientOf(t, netip.MustParseAddr("127.0.0.9"), here).probe(&Check{Type: api.CheckTCP, Port: port, Timeout: 30 * time.Second}), Passed, "")
	want(t, patientOf(t, netip.MustParseAddr("127.0.0.9"), here).probe(&Check{Type: api.CheckTCP, Port: closed, Timeout: 30 * time.Second}), Failed, "127.0.0.9:")
}

func portThatIsClosed(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// What could not be looked at is neither healthy nor unhealthy.
func TestUnclear(t *testing.T) {
	t.Parallel()
	check := &Check{Type: api.CheckTCP, Port: 1, Timeout: 30 * time.Second}
	want(t, patientOf(t).probe(check), Unclear, "it has no address")
	p := patientOf(t, here)
	p.Netns = func(context.Context) (*os.File, error) { return nil, fs.ErrPermission }
	want(t, p.probe(check), Unclear, "cannot be entered: permission denied")
	command := &Check{Type: api.CheckCommand, Command: Command{Argv: []string{"true"}}, Timeout: 30 * time.Second}
	want(t, p.probe(command), Unclear, "cannot run commands")
	p.Exec = func(context.Context, Command) (CommandResult, error) { return CommandResult{}, errors.New("no engine") }
	want(t, p.probe(command), Unclear, "could not be run: no engine")
	p.close()
	want(t, p.probe(check), Unclear, "not checked any more")
	want(t, p.probe(command), Unclear, "")
}

func TestCommand(t *testing.T) {
	t.Parallel()
	p := patientOf(t)
	var result CommandResult
	var fail error
	p.Exec = func(context.Context, Command) (CommandResult, error) { return result, fail }
	check := &Check{Type: api.CheckCommand, Timeout: 30 * time.Second}
	result = CommandResult{Started: true, Output: "fine"}
	want(t, p.probe(check), Passed, "")
	result = CommandResult{Started: true, Code: 3, Output: "no\nreplica\x1b[0m " + strings.Repeat("x", 1000) + " end\n"}
	o := p.probe(check)
	want(t, o, Failed, "exit code 3: …")
	if *o.Value != 3 || !strings.HasSuffix(o.Message, "x end") || strings.ContainsAny(o.Message, "\n\x1b") || len(o.Message) > longest+50 {
		t.Errorf("value %d, message %q", *o.Value, o.Message)
	}
	p.Exec = func(ctx context.Context, _ Command) (CommandResult, error) {
		<-ctx.Done()
		return CommandResult{Started: true}, ctx.Err()
	}
	o = p.probe(&Check{Type: api.CheckCommand, Timeout: 20 * time.Millisecond})
	want(t, o, Failed, "no answer within 20ms")
	if o.Value != nil {
		t.Errorf("value %d", *o.Value)
	}
	// An engine that is mute says nothing of the task.
	p.Exec = func(ctx context.Context, _ Command) (CommandResult, error) {
		<-ctx.Done()
		return CommandResult{}, ctx.Err()
	}
	want(t, p.probe(&Check{Type: api.CheckCommand, Timeout: 20 * time.Millisecond}), Unclear, "could not be run")
}

// The task ends while a check is under way.
func TestForgottenWhileUnderWay(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	port := mute.Addr().(*net.TCPAddr).Port
	for _, kind := range []string{api.CheckHTTP, api.CheckGRPC} {
		p := patientOf(t, here)
		time.AfterFunc(50*time.Millisecond, p.close)
		begin := time.Now()
		want(t, p.probe(&Check{Type: kind, Port: port, Path: "/", Timeout: time.Hour}), Unclear, "")
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s took %s", kind, took)
		}
	}
}

func TestErrorsOfOurOwnAreUnclear(t *testing.T) {
	t.Parallel()
	for number := range ours {
		if elsewhere[number] {
			t.Errorf("%v is both ours and the task's", number)
		}
	}
	if elsewhere[syscall.ETIMEDOUT] {
		t.Error("a time-out has used up the time for another address")
	}
}
