package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// TestMain doubles as the process that unpacks.
func TestMain(m *testing.M) {
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
	// Most of them wait for processes that unpack.
	const atATime = 8
	testkit.SideBySide(atATime)
	os.Exit(m.Run())
}

func newFetcher(t testing.TB, l Limits) *Fetcher {
	t.Helper()
	f, err := New(filepath.Join(t.TempDir(), "cache"), l, &unpack.Runner{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, path, content string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || string(b) != content {
		t.Errorf("%s: %q %v, want %q", path, b, err, content)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for uri, wanted := range map[string]string{
		"http://h/a.tar.gz": "", "https://h/a?x=y": "", "file:///a/b": "", "/a/b": "", "http://u:p@h/a": "",
		"ftp://h/a": "scheme", "a/b": "no scheme", "http:///a": "no host", "http://h": "no file name", "http://h/": "no file name",
		"file://host/a": "file:///", "http://h/%zz?secret": "not a valid URL", "http:opaque": "no host", "": "no scheme", "javascript:x": "scheme",
	} {
		err := Check(protocol.URI{Value: uri, OutputDir: "/x"})
		if (err == nil) != (wanted == "") || err != nil && (!strings.Contains(err.Error(), wanted) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v, want %q", uri, err, wanted)
		}
	}
	if Check(protocol.URI{Value: "/a", OutputDir: "rel"}) == nil || Check(protocol.URI{Value: "/a", OutputDir: "/x", PullPolicy: "Sometimes"}) == nil {
		t.Error("accepted")
	}
}

func TestFileAndPolicies(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	src, out := filepath.Join(dir, "tool"), filepath.Join(dir, "a/b/out")
	put(t, src, "one")
	u := protocol.URI{Value: "file://" + src, OutputDir: out}
	provide := func() {
		t.Helper()
		if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	provide()
	want(t, filepath.Join(out, "tool"), "one")
	if st, _ := os.Stat(filepath.Join(out, "tool")); st.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", st.Mode())
	}
	// What the task keeps there stays, and IfNotPresent leaves all of it alone.
	put(t, filepath.Join(out, "data"), "precious")
	put(t, src, "second")
	provide()
	want(t, filepath.Join(out, "tool"), "one")
	u.PullPolicy = Always
	provide()
	want(t, filepath.Join(out, "tool"), "second")
	want(t, filepath.Join(out, "data"), "precious")
	// Unchanged content is not put there again.
	put(t, filepath.Join(out, "tool"), "edited")
	provide()
	want(t, filepath.Join(out, "tool"), "edited")
	if e, _ := os.ReadDir(filepath.Dir(out)); len(e) != 1 {
		t.Errorf("left beside: %v", e)
	}
	u.Value += ".gone"
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "no such file on this agent") {
		t.Error(err)
	}
	u.Value = "/dev/zero"
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// server counts requests and answers as the test says.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &n
}

func TestHTTPCacheAndRevalidation(t *testing.T) {
	t.Parallel()
	var tag atomic.Value
	tag.Store("v1")
	s, n := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+tag.Load().(string)+`"`)
		if r.Header.Get("If-None-Match") == `"`+tag.Load().(string)+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, tag.Load())
	})
	f := newFetcher(t, Limits{})
	get := func(policy string) string {
		t.Helper()
		d, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x", PullPolicy: policy}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(f.blob(d))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for range 2 {
		if get(IfNotPresent) != "v1" || n.Load() != 1 {
			t.Errorf("%d requests", n.Load())
		}
	}
	if get(Always) != "v1" || n.Load() != 2 {
		t.Errorf("%d requests", n.Load())
	}
	tag.Store("v2")
	if get(IfNotPresent) != "v1" || get(Always) != "v2" {
		t.Error("not renewed")
	}
	// A lost blob is fetched again, whatever the index says.
	e, _ := os.ReadDir(f.blobs())
	for _, b := range e {
		os.Remove(filepath.Join(f.blobs(), b.Name()))
	}
	if get(IfNotPresent) != "v2" || get(Always) != "v2" {
		t.Error("lost")
	}
}

func TestSingleFlight(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}, 100), make(chan struct{})
	s, n := server(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		fmt.Fprint(w, "content")
	})
	f := newFetcher(t, Limits{})
	u := protocol.URI{Value: s.URL + "/x", PullPolicy: Always}
	// The first one gives up; those who wait must not fail with it.
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := f.Get(ctx, nil, u, nil); first <- err }()
	<-begun
	var wg sync.WaitGroup
	var waiting atomic.Int32
	for range 5 {
		wg.Go(func() {
			if _, err := f.Get(t.Context(), nil, u, func(string) { waiting.Add(1) }); err != nil {
				t.Error(err)
			}
		})
	}
	for waiting.Load() < 5 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	wg.Wait()
	if n.Load() != 2 {
		t.Errorf("%d requests", n.Load())
	}
}

func TestHTTPFailuresNameTheThingAndHideSecrets(t *testing.T) {
	t.Parallel()
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/short":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "ten bytes.")
		case "/big":
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 1000))
			}
		case "/big-announced":
			w.Header().Set("Content-Length", "1000000000000")
		case "/stall":
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/silent":
			<-r.Context().Done()
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/to-file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/auth":
			if u, p, _ := r.BasicAuth(); u != "me" || p != "geheim" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, "ok")
		default:
			http.NotFound(w, r)
		}
	})
	f := newFetcher(t, Limits{MaxBytes: 50_000, Stall: time.Second, Pause: time.Millisecond})
	host := strings.TrimPrefix(s.URL, "http://")
	for path, wanted := range map[string]string{
		"/gone": "answered 404", "/short": "given up after 5 tries: it broke off after 10 of 100 bytes", "/big": "more than the limit of 50000 bytes",
		"/big-announced": "more than the limit", "/stall": "no progress for 1s", "/silent": "no progress for 1s", "/loop": "redirects",
		"/to-file": `redirect to the scheme "file"`, "/auth": "check user and pwd",
	} {
		_, err := f.Get(t.Context(), nil, protocol.URI{Value: "http://x:geheim2@" + host + path + "?token=geheim3"}, nil)
		if err == nil {
			t.Errorf("%s: no error", path)
			continue
		}
		if text := err.Error(); !strings.Contains(text, wanted) || !strings.HasPrefix(text, "fetch http://"+host+path+": ") || strings.Contains(text, "geheim") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/auth", User: "me", Password: "geheim"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: "http://127.0.0.1:1/x?token=geheim"}, nil); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
	if e, _ := os.ReadDir(f.blobs()); len(e) != 1 {
		t.Errorf("left in the cache: %v", e)
	}
}

// FuzzSeal: whatever a URI is, what is kept of it and what is said about it holds
// nothing secret, and it stays a URI.
func FuzzSeal(f *testing.F) {
	for _, v := range []string{"http://h/a", "https://u:geheim@h:80/a/b.tar?t=geheim#sha256=" + strings.Repeat("ab", 32), "file:///a?geheim", "/a", "http://h/%zz?geheim", "http://geheim@h/x"} {
		f.Add(v, "", "")
		f.Add(v, "me", "geheim")
		f.Add(v, "", "geheim")
	}
	f.Fuzz(func(t *testing.T, value, user, password string) {
		u := protocol.URI{Value: value, User: user, Password: password, OutputDir: "/x"}
		s, err := parse(u)
		if err != nil {
			return
		}
		sealed, place := Seal(u)
		if sealed.Password != "" || place != "" && place != s.place() {
			t.Errorf("%+v, place %q", sealed, place)
		}
		if s.url == nil || place == "" {
			if s.url != nil && (s.userInfo || s.url.RawQuery != "" || password != "") {
				t.Errorf("not sealed: %+v", sealed)
			}
			return
		}
		again, err := parse(sealed)
		if err != nil {
			t.Fatalf("%+v: %v", sealed, err)
		}
		if again.url.RawQuery != "" || again.password != "" || strings.Contains(s.shown, "?") || again.shown != s.shown || again.base != s.base || fmt.Sprint(again.want) != fmt.Sprint(s.want) {
			t.Errorf("%+v became %+v", s, again)
		}
	})
}
