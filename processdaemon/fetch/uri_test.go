package fetch

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/internal/archive/archivetest"
	"tandem/processdaemon/protocol"
)

// TestOddURIs: what they name is a file of that name in the outputDir, or they are refused.
func TestOddURIs(t *testing.T) {
	t.Parallel()
	s, _ := server(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.EscapedPath()) })
	f := newFetcher(t, quick())
	for path, name := range map[string]string{
		"/a%20b": "a b", "/..%2f..%2fx": "x", "/a%2fb": "b", "/%2e%2e/%2e%2e/y": "y", "/...": "...", "/%ff": "\xff", "/a;b=c": "a;b=c", "/a%0ab": "a\nb", "/%2523": "%23",
		"/" + strings.Repeat("n", 255): strings.Repeat("n", 255), "//double//slash": "slash", "/trailing/": "trailing",
	} {
		out := filepath.Join(t.TempDir(), "out")
		if _, err := f.Provide(t.Context(), protocol.URI{Value: s.URL + path, OutputDir: out}, "", nil, nil); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		want(t, filepath.Join(out, name), path)
		if e, err := os.ReadDir(out); err != nil || len(e) != 2 {
			t.Errorf("%s: %v %v", path, e, err)
		}
	}
	for _, path := range []string{"/%2e%2e", "/x/%2e%2e%2f", "/%2f", "/.", "/a%00b", "/%2e", "/" + strings.Repeat("n", 256)} {
		if err := Check(protocol.URI{Value: s.URL + path, OutputDir: "/x"}); err == nil || !strings.Contains(err.Error(), "no file name") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestOddChecksums: one, in hexadecimal digits of either case.
func TestOddChecksums(t *testing.T) {
	t.Parallel()
	raw, err := hex.DecodeString(sumOf(body))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, whole)
	sum := sumOf(body)
	md5 := strings.Repeat("0", 32)
	for _, fragment := range []string{"sha256=" + strings.ToUpper(sum), "Sha256=" + sum} {
		if _, err := newFetcher(t, quick()).Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x#" + fragment}, nil); err != nil {
			t.Errorf("%s: %v", fragment, err)
		}
	}
	for _, fragment := range []string{
		"sha256=" + base64.StdEncoding.EncodeToString(raw), "sha256-" + base64.StdEncoding.EncodeToString(raw), "sha256=" + sum + "&md5=" + md5, "md5=" + md5 + "#sha256=" + sum,
		"sha256:" + sum, "sha256=" + sum + "%20", "=" + sum, sum, "sha256=" + sum[:63] + "g",
	} {
		if err := Check(protocol.URI{Value: s.URL + "/x#" + fragment, OutputDir: "/x"}); err == nil || !strings.Contains(err.Error(), "must be sha256= and 64, or md5= and 32 hexadecimal digits") {
			t.Errorf("%s: %v", fragment, err)
		}
	}
}

// TestLongETagIsNotKept: a server may send megabytes of it.
func TestLongETagIsNotKept(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+strings.Repeat("e", 100_000)+`"`)
		fmt.Fprint(w, "x")
	})
	f := newFetcher(t, quick())
	for range 2 {
		if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x", PullPolicy: Always}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if tag := s.headers()[1].Get("If-None-Match"); tag != "" {
		t.Errorf("%d bytes are sent back", len(tag))
	}
	entries, err := os.ReadDir(f.index())
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v %v", entries, err)
	}
	if st, err := entries[0].Info(); err != nil || st.Size() > 1000 {
		t.Errorf("%d bytes, %v", st.Size(), err)
	}
}

// TestIPv6Hosts: with and without what belongs to an address.
func TestIPv6Hosts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6:", err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(whole), ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	f := newFetcher(t, quick())
	var told string
	for _, u := range []protocol.URI{{Value: s.URL + "/x"}, {Value: strings.Replace(s.URL, "://", "://me:geheim@", 1) + "/y?z"}} {
		if _, err := f.Get(t.Context(), nil, u, func(text string) { told = text }); err != nil {
			t.Error(err)
		}
	}
	if !strings.HasPrefix(told, "fetching "+s.URL+"/y: ") {
		t.Errorf("told %q", told)
	}
}

// TestRedirectWithCredentialsShowsThemNowhere: a server may name some for the next one.
func TestRedirectWithCredentialsShowsThemNowhere(t *testing.T) {
	t.Parallel()
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if _, pwd, _ := r.BasicAuth(); r.URL.Path == "/x" && pwd == "geheim2" {
			whole(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	})
	host := strings.TrimPrefix(other.URL, "http://")
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, map[string]string{
			"/well": "http://you:geheim2@" + host + "/x", "/badly": "http://you:geheim2@" + host + "/y?geheim3", "/gone": "http://you:geheim2@127.0.0.1:1/y?geheim3",
			"/nonsense": "http://you:geheim2@[::/y?geheim3",
		}[r.URL.Path], http.StatusFound)
	})
	f := newFetcher(t, quick())
	for path, wanted := range map[string]string{"/well": "", "/badly": "answered 403", "/gone": "refused", "/nonsense": "redirect to what is not a URL"} {
		var all []string
		_, err := f.Get(t.Context(), nil, protocol.URI{Value: first.URL + path, User: "me", Password: "geheim1"}, func(text string) { all = append(all, text) })
		if (err == nil) != (wanted == "") || err != nil && !strings.Contains(err.Error(), wanted) {
			t.Errorf("%s: %v", path, err)
		}
		if text := fmt.Sprint(err, all); strings.Contains(text, "geheim") {
			t.Errorf("%s: %s", path, text)
		}
	}
	for _, h := range other.headers() {
		if strings.Contains(h.Get("Authorization"), base64.StdEncoding.EncodeToString([]byte("me:geheim1"))) {
			t.Error("the first server's password came to another")
		}
	}
}

// TestWritesOfAnInstanceStayItsOwn: neither the cache nor another instance has the same file.
func TestWritesOfAnInstanceStayItsOwn(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, quick())
	dir := t.TempDir()
	for name, content := range map[string]string{"tool": "as it came", "a.tar": string(archivetest.Tar(t, archivetest.Entry{Name: "tool", Body: "as it came"}))} {
		src := filepath.Join(dir, name)
		put(t, src, content)
		var digest string
		for _, instance := range []string{"1", "2"} {
			var err error
			if digest, err = f.Provide(t.Context(), protocol.URI{Value: src, OutputDir: filepath.Join(dir, name+".d", instance)}, "", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		w, err := os.OpenFile(filepath.Join(dir, name+".d/1/tool"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteAt([]byte("AS"), 0); err != nil {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		want(t, filepath.Join(dir, name+".d/2/tool"), "as it came")
		want(t, f.blob(digest), content)
		want(t, src, content)
		// Nor has the cache the source's.
		put(t, src, strings.Repeat("x", len(content)))
		want(t, f.blob(digest), content)
	}
	leftNothing(t, f)
}

// TestTwoDaemonsOneOutput: each with a cache of its own, at the same time.
func TestTwoDaemonsOneOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	var wg sync.WaitGroup
	for i := range 2 {
		f := newFetcher(t, quick())
		wg.Go(func() {
			for round := range 8 {
				src := filepath.Join(dir, fmt.Sprintf("%d-%d.tar", i, round))
				put(t, src, string(archivetest.Tar(t, archivetest.Entry{Name: fmt.Sprintf("own-%d", i), Body: strconv.Itoa(round)}, archivetest.Entry{Name: "both/x", Body: strconv.Itoa(round)})))
				// One that finds that the other was there first says so, and is tried again.
				var err error
				for range 50 {
					if _, err = f.Provide(t.Context(), protocol.URI{Value: src, OutputDir: out}, "", nil, nil); err == nil || !strings.Contains(err.Error(), "meanwhile") {
						break
					}
				}
				if err != nil {
					t.Error(err)
				}
				want(t, filepath.Join(out, fmt.Sprintf("own-%d", i)), strconv.Itoa(round))
			}
			leftNothing(t, f)
		})
	}
	wg.Wait()
	if e, err := os.ReadDir(dir); err != nil || len(e) != 17 {
		t.Errorf("%v %v", e, err)
	}
}

// TestContentInUseIsNotCollected: not even when the clock is set forward.
func TestContentInUseIsNotCollected(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{CacheAge: time.Hour})
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "x")
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "out")}
	digest, release, err := f.getAndHold(t.Context(), nil, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-24 * time.Hour)
	for _, left := range []bool{true, false} {
		if err := os.Chtimes(f.blob(digest), old, old); err != nil {
			t.Fatal(err)
		}
		f.Collect()
		if f.touch(digest) != left {
			t.Errorf("there: %v, want %v", !left, left)
		}
		release()
	}
}
