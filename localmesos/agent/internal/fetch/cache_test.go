package fetch

import (
	"archive/tar"
	"bytes"
	"io"
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

	"pgregory.net/rapid"

	"tandem/internal/archive/archivetest"
	"tandem/internal/testkit"
	"tandem/localmesos/agent/internal/container"
)

// origin serves bodies and counts how often it is asked.
type origin struct {
	*httptest.Server
	asked atomic.Int32
	gate  chan struct{} // if there is one, answers wait for it
}

func newOrigin(t *testing.T, bodies map[string][]byte, gate chan struct{}) *origin {
	o := &origin{gate: gate}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.asked.Add(1)
		if o.gate != nil {
			<-o.gate
		}
		b, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.URL.RawQuery != "" {
			_ = http.NewResponseController(w).Flush() // then there is no length
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(o.Close)
	return o
}

func newCache(t *testing.T, limit int64) *Cache {
	t.Helper()
	c, err := NewCache(filepath.Join(t.TempDir(), "cache"), limit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fetchBy(t *testing.T, c *Cache, dir string, uris ...URI) error {
	t.Helper()
	for i := range uris {
		uris[i].Cache = true
	}
	return Run(t.Context(), Job{Dir: dir, URIs: uris, StallTimeout: 10 * time.Second, Log: io.Discard, Cache: c})
}

func inCache(t *testing.T, c *Cache) int {
	t.Helper()
	list, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestCacheIsAskedOnce(t *testing.T) {
	t.Parallel()
	archive := archivetest.Gzip(t, archivetest.Tar(t, archivetest.Entry{Name: "d/", Type: tar.TypeDir, Mode: 0o755}, archivetest.Entry{Name: "d/f", Body: "text"}))
	o := newOrigin(t, map[string][]byte{"/tool": []byte("tool"), "/a.tar.gz": archive}, nil)
	c := newCache(t, 1<<20)
	for range 3 {
		dir := t.TempDir()
		if err := fetchBy(t, c, dir, URI{Value: o.URL + "/tool", Executable: true}, URI{Value: o.URL + "/tool", OutputFile: "sub/copy"},
			URI{Value: o.URL + "/a.tar.gz", Extract: true}); err != nil {
			t.Fatal(err)
		}
		check(t, dir+"/tool", "tool", 0o755)
		check(t, dir+"/sub/copy", "tool", 0o644)
		check(t, dir+"/d/f", "text", 0)
		if _, err := os.Stat(dir + "/a.tar.gz"); err == nil {
			t.Error("the archive was copied out of the cache")
		}
	}
	if n := o.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	if used, limit := c.Usage(); used != int64(len(archive)+4) || limit != 1<<20 {
		t.Errorf("%d of %d bytes", used, limit)
	}
}

func TestConcurrentFetchersShareOneDownload(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	o := newOrigin(t, map[string][]byte{"/f": []byte("content")}, gate)
	c := newCache(t, 1<<20)
	var all sync.WaitGroup
	for range 20 {
		dir := t.TempDir()
		all.Go(func() {
			if err := fetchBy(t, c, dir, URI{Value: o.URL + "/f"}); err != nil {
				t.Error(err)
			}
			check(t, dir+"/f", "content", 0o644)
		})
	}
	close(gate)
	all.Wait()
	if n := o.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestCacheEvictsAndIsPassedBy(t *testing.T) {
	t.Parallel()
	bodies := map[string][]byte{"/a": make([]byte, 40), "/b": make([]byte, 40), "/c": make([]byte, 40), "/large": make([]byte, 101)}
	o := newOrigin(t, bodies, nil)
	c := newCache(t, 100)
	get := func(name string, asks int32) {
		t.Helper()
		before := o.asked.Load()
		dir := t.TempDir()
		if err := fetchBy(t, c, dir, URI{Value: o.URL + name, OutputFile: "x"}); err != nil {
			t.Error(err)
		}
		check(t, dir+"/x", string(bodies[strings.TrimSuffix(name, "?")]), 0o644)
		if n := o.asked.Load() - before; n != asks {
			t.Errorf("%s: asked %d times", name, n)
		}
	}
	get("/a", 1)
	get("/b", 1)
	get("/a", 0)
	get("/c", 1) // and b goes
	get("/a", 0)
	get("/b", 1)
	get("/large", 1)
	get("/large", 1)
	if n := inCache(t, c); n != 2 {
		t.Errorf("%d files", n)
	}
	if used, _ := c.Usage(); used != 80 {
		t.Errorf("%d bytes", used)
	}
	if err := fetchBy(t, c, t.TempDir(), URI{Value: o.URL + "/a?nolength", OutputFile: "x"}); err != nil {
		t.Error(err)
	}
	if err := fetchBy(t, c, t.TempDir(), URI{Value: o.URL + "/none"}); err == nil {
		t.Error("a missing file was fetched")
	}
	if used, _ := c.Usage(); used != 80 || inCache(t, c) != 2 {
		t.Errorf("%d bytes in %d files", used, inCache(t, c))
	}
}

// A file that grows while it is read must not take more than its room.
func TestCacheRefusesMoreThanAnnounced(t *testing.T) {
	t.Parallel()
	c := newCache(t, 1000)
	src := &source{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 50))), size: 10}
	if _, err := c.get(t.Context(), cacheKey{"", "x"}, func() (*source, error) { return src, nil }); err == nil || !strings.Contains(err.Error(), "announced") {
		t.Errorf("%v", err)
	}
	if used, _ := c.Usage(); used != 0 || inCache(t, c) != 0 {
		t.Errorf("%d bytes in %d files", used, inCache(t, c))
	}
}

// What one user may read is not for another, and nobody can change it.
func TestCacheKeepsUsersApart(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can fetch as another user")
	}
	u, err := container.LookupUser("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	top := testkit.PublicDir(t)
	dir := filepath.Join(top, "sandbox")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chown(dir, int(u.UID), int(u.GID))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	secret, public := write(t, top+"/secret", "secret", 0o600), write(t, top+"/public", "public", 0o644)
	c := newCache(t, 1<<20)
	if err := fetchBy(t, c, t.TempDir(), URI{Value: secret}, URI{Value: public}); err != nil {
		t.Fatal(err)
	}
	asNobody := func(uri string) error {
		return Run(t.Context(), Job{Dir: dir, User: u, StallTimeout: time.Minute, Log: io.Discard, Cache: c, URIs: []URI{{Value: uri, Cache: true}}})
	}
	if err := asNobody(secret); err == nil {
		t.Error("the cache gave away what another user may not read")
	}
	for range 2 {
		if err := asNobody(public); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(c.dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if inCache(t, c) != 3 {
		t.Errorf("%d files", inCache(t, c))
	}
}

// However fetchers come and go, the accounts are those of the files.
func TestCacheAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		top, err := os.MkdirTemp("", "cache")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(top)
		dir := filepath.Join(top, "cache")
		c, err := NewCache(dir, 100)
		if err != nil {
			r.Fatal(err)
		}
		var open []*source
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(r, "uris") {
			size := int64(10 * (n + 2))
			src, err := c.get(t.Context(), cacheKey{"", strconv.Itoa(n)}, func() (*source, error) {
				return &source{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, size))), size: size}, nil
			})
			if err != nil {
				r.Fatal(err)
			}
			if b, err := io.ReadAll(src); err != nil || int64(len(b)) != size {
				r.Fatalf("%d bytes, %v", len(b), err)
			}
			if open = append(open, src); rapid.Bool().Draw(r, "close") {
				for _, s := range open {
					s.Close()
				}
				open = nil
			}
			list, err := os.ReadDir(dir)
			if err != nil {
				r.Fatal(err)
			}
			sum := int64(0)
			for _, f := range list {
				info, err := f.Info()
				if err != nil {
					r.Fatal(err)
				}
				sum += info.Size()
			}
			if used, _ := c.Usage(); used != sum || used > 100 {
				r.Fatalf("%d bytes on the books, %d on the disk", used, sum)
			}
		}
		for _, s := range open {
			s.Close()
		}
	})
}
