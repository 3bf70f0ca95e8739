package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tandem/internal/archive/archivetest"
	"tandem/internal/testkit"
	"tandem/processdaemon/fetch"
	"tandem/processdaemon/protocol"
)

// noSecret checks that no file below a directory holds a secret of these tests.
func noSecret(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "geheim") {
			t.Errorf("%s holds a secret", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// leftOfFetch lists what fetching must not leave: unfinished downloads, half-unpacked
// directories and the intents that name them.
func leftOfFetch(t testing.TB, data string) (left []string) {
	t.Helper()
	for _, pattern := range []string{"processd/cache/blobs/.*", "processd/cache/unpacking/*", "processd/cache/merging/*", "workspace/work_dir/.*"} {
		m, err := filepath.Glob(filepath.Join(data, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, m...)
	}
	return left
}

func secretURI(s *httptest.Server, path string) protocol.URI {
	return protocol.URI{Value: strings.Replace(s.URL, "://", "://me:geheim@", 1) + path + "?token=geheim"}
}

// TestFaultArchiveServer: each ends in the right state with the right message, and leaves nothing.
func TestFaultArchiveServer(t *testing.T) {
	t.Parallel()
	hostile := archivetest.Tar(t, archivetest.Entry{Name: "../canary", Body: "dead"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/") {
		case "stalls.tar":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "lies.tar":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "ten bytes.")
		case "away.tar":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "parts.tar":
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, "12345")
		case "endless.tar":
			for r.Context().Err() == nil {
				fmt.Fprint(w, strings.Repeat("x", 1000))
			}
		case "hostile.tar":
			w.Write(hostile)
		case "html.tar.gz":
			fmt.Fprint(w, "<html>not found</html>")
		default:
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	d := newDaemon(t, func(o *Options) {
		o.Fetch = fetch.Limits{Stall: time.Second, Pause: time.Millisecond, MaxBytes: 50_000}
	})
	for name, want := range map[string]string{
		"stalls.tar": "no progress for 1s", "lies.tar": "given up after 5 tries: it broke off after 10 of 100 bytes", "away.tar": `redirect to the scheme "file"`,
		"parts.tar": "a part (206)", "endless.tar": "more than the limit of 50000 bytes", "broken.tar": "given up after 5 tries: the server answered 500",
		"hostile.tar": "refused for safety: the name \"../canary\" leads out", "html.tar.gz": "not a whole gzip file",
	} {
		spec := spec(d, name, "true")
		spec.URIs = []protocol.URI{secretURI(s, "/"+name)}
		st := create(t, d, spec)
		if st.State != ended || !strings.Contains(st.Failure, want) || !strings.HasPrefix(st.Failure, `process "name-`+name+`": uris[0]: `) || strings.Contains(st.Failure, "geheim") {
			t.Errorf("%s: %+v", name, st)
		}
		if exists(spec.WorkPath) {
			t.Errorf("%s: the outputDir is there", name)
		}
		noSecret(t, d.opts.DataDir)
		if err := d.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if left := leftOfFetch(t, d.opts.DataDir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestFaultKilledWhileFetching: the next daemon fetches anew, unless it would
// need what no record may hold; and the first one's half is gone.
func TestFaultKilledWhileFetching(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	content := archivetest.Tar(t, archivetest.Entry{Name: "app", Body: "content"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if !well.Load() {
			w.Write(content[:1000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Write(content)
	}))
	t.Cleanup(s.Close)
	p := newProc(t)
	p.start("")
	data := filepath.Join(p.dir, "data")
	for id, u := range map[string]protocol.URI{"open": {Value: s.URL + "/a.tar"}, "closed": secretURI(s, "/a.tar")} {
		spec := protocol.Spec{ID: id, Owner: "o", StartCmd: "true", Sandbox: filepath.Join(p.dir, id), WorkPath: filepath.Join(data, "workspace/work_dir", id), URIs: []protocol.URI{u}}
		if _, err := p.c.Create(context.Background(), &spec); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are being fetched", func() bool {
		m, _ := filepath.Glob(filepath.Join(data, "processd/cache/blobs/.tmp-*"))
		return len(m) == 2
	})
	noSecret(t, p.dir)
	p.stop(syscall.SIGKILL)
	well.Store(true)
	p.start("")
	state := func(id string) (st protocol.Status) {
		eventually(t, id+" is prepared or not", func() bool {
			var err error
			st, err = p.c.Status(context.Background(), id)
			return err == nil && st.State != preparing
		})
		return st
	}
	if st := state("open"); st.State != ready {
		t.Errorf("%+v", st)
	}
	if got := read(t, filepath.Join(data, "workspace/work_dir/open/app")); got != "content" {
		t.Errorf("%q", got)
	}
	if st := state("closed"); st.State != ended || !strings.Contains(st.Failure, "create the task anew") {
		t.Errorf("%+v", st)
	}
	noSecret(t, p.dir)
	if left := leftOfFetch(t, data); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSealedTaskIsPreparedFromTheCache: an executor fetches before it creates, so
// that a restart in between needs no password.
func TestSealedTaskIsPreparedFromTheCache(t *testing.T) {
	t.Parallel()
	content := archivetest.Tar(t, archivetest.Entry{Name: "app", Body: "content"})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pwd, _ := r.BasicAuth(); pwd != "geheim" || r.URL.Query().Get("token") != "geheim" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Write(content)
	}))
	t.Cleanup(s.Close)
	p := newProc(t)
	p.start("processdaemon/prepare=kill")
	u := secretURI(s, "/a.tar")
	u.PullPolicy = fetch.Always
	digests, err := p.c.Fetch(context.Background(), "", []protocol.URI{u}, nil)
	if err != nil {
		t.Fatal(err)
	}
	u.Digest = digests[0]
	work := filepath.Join(p.dir, "data/workspace/work_dir/a")
	spec := protocol.Spec{ID: "a", Owner: "o", StartCmd: "true", Sandbox: filepath.Join(p.dir, "s"), WorkPath: work, URIs: []protocol.URI{u}}
	_, _ = p.c.Create(context.Background(), &spec) // it may die before the answer
	eventually(t, "the daemon has died", p.died)
	noSecret(t, p.dir)
	p.stop(syscall.SIGKILL)
	p.start("")
	eventually(t, "it is prepared", func() bool {
		st, err := p.c.Status(context.Background(), "a")
		return err == nil && st.State == ready
	})
	if got := read(t, filepath.Join(work, "app")); got != "content" {
		t.Errorf("%q", got)
	}
	// A second task of the same instance finds that it is there.
	again := spec
	again.ID, again.URIs = "b", []protocol.URI{secretURI(s, "/a.tar")}
	if _, err := p.c.Create(context.Background(), &again); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second is prepared", func() bool {
		st, err := p.c.Status(context.Background(), "b")
		return err == nil && st.State == ready
	})
	if m, err := filepath.Glob(filepath.Join(work, ".tandem-*")); err != nil || len(m) != 1 {
		t.Errorf("%v %v", m, err)
	}
	noSecret(t, p.dir)
}

// TestTasksHoldTheirContent: from the first word of it until they are deleted, over a restart.
func TestTasksHoldTheirContent(t *testing.T) {
	t.Parallel()
	dir := testkit.PublicDir(t)
	files := map[string]string{}
	for _, id := range []string{"a", "b"} {
		files[id] = filepath.Join(dir, id)
		write(t, files[id], "content of "+id, 0o644)
	}
	change := func(o *Options) { o.DataDir, o.Fetch.CacheAge = filepath.Join(dir, "data"), time.Hour }
	blobs := func() int {
		m, err := filepath.Glob(filepath.Join(dir, "data/processd/cache/blobs/*"))
		if err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-100 * time.Hour)
		for _, b := range m {
			if err := os.Chtimes(b, long, long); err != nil {
				t.Fatal(err)
			}
		}
		return len(m)
	}
	opts := Options{Log: logTo(t), ReapInterval: 20 * time.Millisecond}
	change(&opts)
	first, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for id, f := range files {
		s := spec(first, id, "true")
		s.URIs = []protocol.URI{{Value: f}}
		if st := create(t, first, s); st.State != ready {
			t.Errorf("%+v", st)
		}
	}
	if n := blobs(); n != 2 {
		t.Fatalf("%d contents", n)
	}
	first.fetcher.Collect()
	if n := blobs(); n != 2 {
		t.Errorf("%d contents although tasks name them", n)
	}
	first.Close()
	// A start looks through the cache, too.
	d := newDaemon(t, change)
	d.fetcher.Collect()
	if n := blobs(); n != 2 {
		t.Errorf("%d contents after a restart", n)
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	blobs()
	d.fetcher.Collect()
	if n := blobs(); n != 1 {
		t.Errorf("%d contents after one was deleted", n)
	}
}

// TestUnusedOutputIsRemoved: after the last task of it was deleted, unless something was written there.
func TestUnusedOutputIsRemoved(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.Fetch.OutputAge = time.Nanosecond })
	tool := filepath.Join(d.opts.Workspace, "tool")
	write(t, tool, "x", 0o644)
	for _, id := range []string{"quiet", "busy"} {
		s := spec(d, id, "true")
		s.URIs = []protocol.URI{{Value: tool}}
		if st := create(t, d, s); st.State != ready {
			t.Errorf("%+v", st)
		}
	}
	write(t, filepath.Join(d.workBase(), "busy/data"), "precious", 0o644)
	d.fetcher.CollectOutputs(d.opts.Workspace)
	for _, id := range []string{"quiet", "busy"} {
		if !exists(filepath.Join(d.workBase(), id, "tool")) {
			t.Errorf("%s: removed under a task", id)
		}
		if err := d.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	d.fetcher.CollectOutputs(d.opts.Workspace)
	if exists(filepath.Join(d.workBase(), "quiet")) || !exists(filepath.Join(d.workBase(), "busy/data")) || !exists(filepath.Join(d.workBase(), "busy/tool")) {
		t.Error("not as it should be")
	}
}

// TestProgressIsTold: in the status and to those who follow events, by bytes of all.
func TestProgressIsTold(t *testing.T) {
	t.Parallel()
	half, told := make([]byte, 1_000_000), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2000000")
		w.Write(half)
		w.(http.Flusher).Flush()
		<-told
		w.Write(half)
	}))
	t.Cleanup(s.Close)
	d := newDaemon(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	spec := spec(d, "a", "true")
	spec.URIs = []protocol.URI{{Value: s.URL + "/x"}}
	if _, err := d.Create(spec); err != nil {
		t.Fatal(err)
	}
	found := false
	if err := d.Events(ctx, "", func(st protocol.Status) error {
		if strings.HasPrefix(st.Progress, "fetching "+s.URL+"/x: ") && strings.HasSuffix(st.Progress, " of 2.0 MB") {
			found = true
			return errors.New("enough")
		}
		return nil
	}); err != nil || !found {
		t.Errorf("no news of it: %v", err)
	}
	if st, err := d.Status("a"); err != nil || !strings.Contains(st.Progress, " of 2.0 MB") {
		t.Errorf("%+v %v", st, err)
	}
	close(told)
	if st := awaitState(t, d, "a", ready); st.Progress != "" {
		t.Errorf("%+v", st)
	}
}

// TestProxyOfTheEnvironment: the daemon's own; NO_PROXY names who is asked directly, and
// nobody on this machine is asked through it.
func TestProxyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	through := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		through <- r.URL.String()
		fmt.Fprint(w, "from afar")
	}))
	t.Cleanup(proxy.Close)
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from here") }))
	t.Cleanup(near.Close)
	p := newProc(t)
	p.env = []string{"http_proxy=" + proxy.URL, "no_proxy=direct.invalid"}
	p.start("")
	fetch := func(uri string) error {
		_, err := p.c.Fetch(context.Background(), "", []protocol.URI{{Value: uri}}, nil)
		return err
	}
	if err := errors.Join(fetch("http://far.invalid/x?y"), fetch(near.URL+"/x")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.c.Fetch(ctx, "", []protocol.URI{{Value: "http://direct.invalid/x"}}, nil); err == nil {
		t.Error("a host that is no host was asked through the proxy")
	}
	close(through)
	var all []string
	for u := range through {
		all = append(all, u)
	}
	if strings.Join(all, " ") != "http://far.invalid/x?y" {
		t.Errorf("through the proxy: %v", all)
	}
}
