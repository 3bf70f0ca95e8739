package fetch

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/internal/archive/archivetest"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// TestMain doubles as the process that unpacks.
func TestMain(m *testing.M) {
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
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
		d, err := f.Get(t.Context(), protocol.URI{Value: s.URL + "/x", PullPolicy: policy}, nil)
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
	go func() { _, err := f.Get(ctx, u, nil); first <- err }()
	<-begun
	var wg sync.WaitGroup
	var waiting atomic.Int32
	for range 5 {
		wg.Go(func() {
			if _, err := f.Get(t.Context(), u, func(string) { waiting.Add(1) }); err != nil {
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
		_, err := f.Get(t.Context(), protocol.URI{Value: "http://x:geheim2@" + host + path + "?token=geheim3"}, nil)
		if err == nil {
			t.Errorf("%s: no error", path)
			continue
		}
		if text := err.Error(); !strings.Contains(text, wanted) || !strings.HasPrefix(text, "fetch http://"+host+path+": ") || strings.Contains(text, "geheim") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := f.Get(t.Context(), protocol.URI{Value: s.URL + "/auth", User: "me", Password: "geheim"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := f.Get(t.Context(), protocol.URI{Value: "http://127.0.0.1:1/x?token=geheim"}, nil); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
	if e, _ := os.ReadDir(f.blobs()); len(e) != 1 {
		t.Errorf("left in the cache: %v", e)
	}
}

func TestShrink(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{CacheBytes: 25})
	dir := t.TempDir()
	var digests []string
	for i := range 4 {
		p := filepath.Join(dir, strconv.Itoa(i))
		put(t, p, strings.Repeat(strconv.Itoa(i), 10))
		d, err := f.Get(t.Context(), protocol.URI{Value: p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	for i, d := range digests {
		old := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(f.blob(d), old, old); err != nil {
			t.Fatal(err)
		}
	}
	f.Collect(digests[0])
	var left []int
	for i, d := range digests {
		if f.touch(d) {
			left = append(left, i)
		}
	}
	if fmt.Sprint(left) != "[0 3]" {
		t.Errorf("left %v", left)
	}
}

// TestCollect: what is held never goes, what is old and not held does, the rest by
// size, and what was just used stays.
func TestCollect(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{CacheAge: time.Hour, CacheBytes: 1 << 30})
	dir := t.TempDir()
	digests := map[string]string{}
	for _, name := range []string{"held", "old", "recent", "young"} {
		p := filepath.Join(dir, name)
		put(t, p, name)
		d, err := f.Get(t.Context(), protocol.URI{Value: p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = d
		if name == "held" {
			f.Hold("task", []string{d})
		}
	}
	age := func(name string, age time.Duration) {
		then := time.Now().Add(-age)
		if err := os.Chtimes(f.blob(digests[name]), then, then); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	left := func() string {
		t.Helper()
		var names []string
		for _, name := range []string{"held", "old", "recent", "young"} {
			if _, err := os.Stat(f.blob(digests[name])); err == nil {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	age("held", 100*time.Hour)
	age("old", 2*time.Hour)
	age("recent", 30*time.Minute)
	f.Collect()
	if got := left(); got != "held recent young" {
		t.Errorf("by age: %s", got)
	}
	if e, err := os.ReadDir(f.index()); err != nil || len(e) != 3 {
		t.Errorf("index: %v %v", e, err)
	}
	f.limits.CacheBytes = 1
	f.Collect()
	if got := left(); got != "held young" {
		t.Errorf("by size: %s", got)
	}
	f.Release("task")
	f.Collect()
	if got := left(); got != "young" {
		t.Errorf("released: %s", got)
	}
}

// TestFaultKilledWhileUnpacking: the next daemon clears what it left, and nothing else.
func TestFaultKilledWhileUnpacking(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	half, precious := filepath.Join(dir, unpackPrefix+"0123"), filepath.Join(dir, "precious")
	for _, d := range []string{half, precious} {
		if _, err := f.intend(d); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(d, "sub/file"), "x")
	}
	put(t, filepath.Join(f.intents(), "torn"), half[:len(half)-1])
	put(t, filepath.Join(f.blobs(), ".tmp-123"), "half a download")
	if _, err := New(f.dir, Limits{}, &unpack.Runner{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	want(t, filepath.Join(precious, "sub/file"), "x")
	leftNothing(t, f)
}

// TestKilledChildLeavesNothing: and a second try does it.
func TestKilledChildLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "x")
	runner := &unpack.Runner{Points: "unpack/end=kill"}
	f, err := New(filepath.Join(dir, "cache"), Limits{}, runner)
	if err != nil {
		t.Fatal(err)
	}
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "work/a"), Mode: 0o600}
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "ended before it was done: signal: killed") {
		t.Errorf("%v", err)
	}
	leftNothing(t, f)
	if e, err := os.ReadDir(filepath.Join(dir, "work")); err != nil || len(e) != 0 {
		t.Errorf("left: %v %v", e, err)
	}
	runner.Points = ""
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(filepath.Join(u.OutputDir, "tool")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	leftNothing(t, f)
}

// TestInstancesShareNothingButTheCache: each has files of its own.
func TestInstancesShareNothingButTheCache(t *testing.T) {
	t.Parallel()
	s, n := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(archivetest.Tar(t, archivetest.Entry{Name: "conf", Body: "as it came"}))
	})
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			u := protocol.URI{Value: s.URL + "/a.tar", OutputDir: filepath.Join(dir, strconv.Itoa(i))}
			if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := os.WriteFile(filepath.Join(dir, "0/conf"), []byte("as one instance wants it"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		want(t, filepath.Join(dir, strconv.Itoa(i+1), "conf"), "as it came")
	}
	if n.Load() != 1 {
		t.Errorf("%d downloads", n.Load())
	}
}

// TestNewChecksumIsNewContent: whatever the policy, and back again.
func TestNewChecksumIsNewContent(t *testing.T) {
	t.Parallel()
	var latest atomic.Value
	s, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, latest.Load()) })
	f := newFetcher(t, Limits{})
	out := filepath.Join(t.TempDir(), "out")
	for _, v := range []string{"1", "2", "1"} {
		m := md5.Sum([]byte(v))
		for _, fragment := range []string{"sha256=" + sumOf([]byte(v)), "md5=" + hex.EncodeToString(m[:])} {
			latest.Store(v)
			if _, err := f.Provide(t.Context(), protocol.URI{Value: s.URL + "/x#" + fragment, OutputDir: out}, "", nil, nil); err != nil {
				t.Error(err)
			}
			want(t, filepath.Join(out, "x"), v)
		}
	}
}

func TestMergeConflictsAreNamed(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	put(t, filepath.Join(out, "tool/x"), "")
	put(t, filepath.Join(dir, "tool"), "x")
	_, err := f.Provide(t.Context(), protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: out}, "", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "a directory is in the way") {
		t.Error(err)
	}
	if e, _ := os.ReadDir(dir); len(e) != 2 {
		t.Errorf("left: %v", e)
	}
}
