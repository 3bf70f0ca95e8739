package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/processdaemon/protocol"
)

// The content that the servers of these tests have, more than one of TCP's and
// the fetcher's buffers hold.
var body = bytes.Repeat([]byte("0123456789abcdef"), 64<<10)

func sumOf(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// answers is a server that answers the first request with the first, and so on;
// the last one stays. It keeps what was asked.
type answers struct {
	*httptest.Server
	mu    sync.Mutex
	asked []http.Header
}

func serve(t *testing.T, each ...http.HandlerFunc) *answers {
	t.Helper()
	a := &answers{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		n := len(a.asked)
		a.asked = append(a.asked, r.Header.Clone())
		a.mu.Unlock()
		each[min(n, len(each)-1)](w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *answers) headers() []http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// whole serves the content well: with an ETag, and parts of it.
func whole(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"one"`)
	http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(body))
}

// breaks sends the beginning and closes the connection; with resets it is reset, and
// what is on its way is lost.
func breaks(n int, header ...string) http.HandlerFunc { return ends(false, n, header...) }
func resets(n int) http.HandlerFunc                   { return ends(true, n) }

func ends(reset bool, n int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Write(body[:n])
		w.(http.Flusher).Flush()
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		if reset {
			c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
}

// part answers 206 with these headers and bytes, whatever was asked.
func part(contentRange, etag string, b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", contentRange)
		w.Header().Set("ETag", etag)
		w.WriteHeader(http.StatusPartialContent)
		w.Write(b)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// limits wait no longer than tests like.
func quick() Limits {
	return Limits{Stall: time.Minute, Pause: time.Millisecond, MaxBytes: 4 << 20}
}

// leftNothing: the cache holds whole contents alone.
func leftNothing(t *testing.T, f *Fetcher) {
	t.Helper()
	for _, dir := range []string{f.blobs(), f.intents()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil || sumOf(b) != e.Name() {
				t.Errorf("left: %s, %d bytes, %v", e.Name(), len(b), err)
			}
		}
	}
}

// TestFaultServer: each way in which a server can fail, and what comes of it.
func TestFaultServer(t *testing.T) {
	t.Parallel()
	total := len(body)
	half := total / 2
	lies := bytes.Repeat([]byte("!"), total)
	rest := fmt.Sprintf("bytes %d-%d/%d", half, total-1, total)
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, c := range []struct {
		name     string
		answers  []http.HandlerFunc
		want     string // what the error says; empty: the content arrives
		requests int
	}{
		{"well", []http.HandlerFunc{whole}, "", 1},
		{"stalls in the header", []http.HandlerFunc{hang}, "no progress for 1s", 1},
		{"stalls in the body", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			w.Write(body[:half])
			w.(http.Flusher).Flush()
			hang(w, r)
		}, hang}, "no progress for 1s", 2},
		{"stalls in the body once", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"one"`)
			w.Header().Set("Content-Length", strconv.Itoa(total))
			w.Write(body[:half])
			w.(http.Flusher).Flush()
			hang(w, r)
		}, whole}, "", 2},
		{"trickles", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write([]byte("x"))
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, hang}, "no progress for 1s", 2},
		{"promises more than it has", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write(body[:10])
		}}, "given up after 5 tries: it broke off after 10 of 100 bytes", 5},
		{"promises less than it has", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Checksum-Sha256: %s\r\n\r\n%s", sumOf(body), body)
			rw.Flush()
		}}, "wrong checksum", 1},
		{"breaks off in the middle", []http.HandlerFunc{breaks(half), whole}, "", 2},
		{"reset in the middle", []http.HandlerFunc{resets(half), whole}, "", 2},
		{"reset again and again", []http.HandlerFunc{resets(half)},
			"given up after 5 tries: it broke off after ", 5},
		{"reset, and no validator", []http.HandlerFunc{breaks(half, "ETag", ""), whole}, "", 2},
		{"reset, and a weak validator", []http.HandlerFunc{breaks(half, "ETag", `W/"one"`), whole}, "", 2},
		{"reset before the answer", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, whole}, "", 2},
		{"206 of another place", []http.HandlerFunc{breaks(half), part(fmt.Sprintf("bytes %d-%d/%d", half+1, total-1, total), `"one"`, lies[half+1:]), whole}, "", 3},
		{"206 of another size", []http.HandlerFunc{breaks(half), part(fmt.Sprintf("bytes %d-%d/%d", half, total-1, total+5), `"one"`, lies[half:]), whole}, "", 3},
		{"206 of another content", []http.HandlerFunc{breaks(half), part(rest, `"two"`, lies[half:]), whole}, "", 3},
		{"206 beyond the end", []http.HandlerFunc{breaks(half), part(fmt.Sprintf("bytes %d-%d/%d", half, total, total), `"one"`, append(lies[half:total:total], 0)), whole}, "", 3},
		{"206 without a place", []http.HandlerFunc{breaks(half), part("", `"one"`, lies[half:]), whole}, "", 3},
		{"206 of another length", []http.HandlerFunc{breaks(half), part(rest, `"one"`, lies[:5]), whole}, "", 3},
		{"206 by parts", []http.HandlerFunc{breaks(half), part(fmt.Sprintf("bytes %d-%d/%d", half, half+9, total), `"one"`, body[half:half+10]), whole}, "", 3},
		{"206 for the whole", []http.HandlerFunc{part(rest, `"one"`, body[half:])}, "sent a part (206) although the whole was asked for", 5},
		{"206 always wrong", []http.HandlerFunc{breaks(half), part(rest, `"two"`, lies[half:]), part(rest, `"two"`, lies[half:])}, "the whole was asked for", 5},
		{"the whole for a part", []http.HandlerFunc{breaks(half), func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }}, "", 2},
		{"416", []http.HandlerFunc{breaks(half), status(416), whole}, "", 3},
		{"416 for the whole", []http.HandlerFunc{status(416)}, "answered 416", 1},
		{"500, then well", []http.HandlerFunc{status(500), status(503), status(429), whole}, "", 4},
		{"500 for ever", []http.HandlerFunc{status(500)}, "given up after 5 tries: the server answered 500", 5},
		{"404", []http.HandlerFunc{status(404)}, "answered 404 Not Found; check the uri", 1},
		{"304 for nothing", []http.HandlerFunc{status(304)}, "answered 304", 1},
		{"endless", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(body); err != nil {
					return
				}
			}
		}}, "it has more than the limit of 4194304 bytes", 1},
		{"announces too much", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9999999999") }}, "more than the limit", 1},
		{"encodes", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(body)
			z.Close()
		}}, `Content-Encoding "gzip"`, 1},
		{"speaks nonsense", []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Write([]byte("nonsense\r\n\r\n"))
				c.Close()
			}
		}}, "given up after 5 tries: ", 5},
		{"redirects to a file", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}}, `redirect to the scheme "file"`, 1},
		{"redirects in a circle", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }}, "more than 10 redirects", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.answers...)
			l := quick()
			if strings.Contains(c.want, "no progress") || strings.HasPrefix(c.name, "stalls") {
				l.Stall = time.Second
			}
			f := newFetcher(t, l)
			digest, err := f.Get(t.Context(), nil, protocol.URI{Value: "http://me:geheim@" + s.Listener.Addr().String() + "/x?token=geheim"}, nil)
			leftNothing(t, f)
			if n := len(s.headers()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && digest != digestPrefix+sumOf(body):
				t.Errorf("another content: %s", digest)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "geheim"):
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

// TestResumeAsksForTheRestOnly: by range, and only of the same content.
func TestResumeAsksForTheRestOnly(t *testing.T) {
	t.Parallel()
	n := len(body)
	s := serve(t, resets(n/4), whole)
	f := newFetcher(t, quick())
	var texts []string
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, func(text string) { texts = append(texts, text) }); err != nil {
		t.Fatal(err)
	}
	// What is on its way is lost with a reset, so it may be less than what was sent.
	h := s.headers()[1]
	var from int
	if _, err := fmt.Sscanf(h.Get("Range"), "bytes=%d-", &from); err != nil || from <= 0 || from > n/4 || h.Get("If-Range") != `"one"` {
		t.Errorf("asked for %q if %q", h.Get("Range"), h.Get("If-Range"))
	}
	all := strings.Join(texts, "\n")
	if !strings.Contains(all, "of 1.0 MB; try 2 of 5 follows: it broke off after") {
		t.Errorf("told: %s", all)
	}
	for _, bad := range []http.HandlerFunc{breaks(n/4, "ETag", ""), breaks(n/4, "ETag", `W/"one"`)} {
		s := serve(t, bad, whole)
		if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, nil); err != nil {
			t.Error(err)
		}
		if r := s.headers()[1].Get("Range"); r != "" {
			t.Errorf("asked for %q of what may be another content", r)
		}
	}
}

func TestRedirectsDropCredentials(t *testing.T) {
	t.Parallel()
	other := serve(t, whole)
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			// Another port is another server; package net/http has the same host in it.
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/x", http.StatusFound)
		default:
			whole(w, r)
		}
	})
	f := newFetcher(t, quick())
	for _, path := range []string{"/away", "/here"} {
		if _, err := f.Get(t.Context(), nil, protocol.URI{Value: first.URL + path + "?token=geheim", User: "me", Password: "geheim", PullPolicy: Always}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if h := other.headers()[0]; h.Get("Authorization") != "" || h.Get("Referer") != "" {
		t.Errorf("another server was told %v", h)
	}
	for i, h := range first.headers() {
		if h.Get("Authorization") == "" {
			t.Errorf("request %d: the server was not told who asks: %v", i, h)
		}
	}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	m := md5.Sum(body)
	md5Hex, raw := hex.EncodeToString(m[:]), sha256.Sum256(body)
	b64 := base64.StdEncoding.EncodeToString
	wrong := strings.Repeat("0", 64)
	for _, c := range []struct{ fragment, header, value, want string }{
		{"#sha256=" + sumOf(body), "", "", ""},
		{"#SHA256=" + strings.ToUpper(sumOf(body)), "", "", ""},
		{"#md5=" + md5Hex, "", "", ""},
		{"#sha256=" + wrong, "", "", "it has the sha256 " + sumOf(body) + ", but the uri says " + wrong},
		{"#md5=" + wrong[:32], "", "", "it has the md5 " + md5Hex},
		{"", "Repr-Digest", "sha-256=:" + b64(raw[:]) + ":", ""},
		{"", "Digest", "unknown=x, SHA-256=" + b64(raw[:]), ""},
		{"", "Digest", "sha-256=" + b64(make([]byte, 32)), "the server's header Digest says"},
		{"", "Content-MD5", b64(m[:]), ""},
		{"", "Content-MD5", b64(make([]byte, 16)), "the server's header Content-MD5 says"},
		{"", "X-Checksum-Sha256", sumOf(body), ""},
		{"", "X-Checksum-Md5", wrong[:32], "the server's header X-Checksum-Md5 says"},
		{"", "X-Checksum-Sha256", "nonsense", ""},
	} {
		s := serve(t, breaks(1000, c.header+"X", "", c.header, c.value), whole)
		if c.header == "" {
			s = serve(t, breaks(1000), whole)
		}
		f := newFetcher(t, quick())
		_, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x" + c.fragment}, nil)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, errChecksum)) {
			t.Errorf("%+v: %v", c, err)
		}
		leftNothing(t, f)
	}
	for _, fragment := range []string{"#sha265=" + wrong, "#sha256=123", "#md5", "#sha512=" + wrong + wrong} {
		if err := Check(protocol.URI{Value: "http://h/x" + fragment, OutputDir: "/x"}); err == nil || !strings.Contains(err.Error(), "after #") {
			t.Errorf("%s: %v", fragment, err)
		}
	}
}

// TestOneDownloadPerContent: what has the same sha256 comes once, from wherever.
func TestOneDownloadPerContent(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { <-release; whole(w, r) })
	f := newFetcher(t, Limits{})
	var wg sync.WaitGroup
	var waiting sync.WaitGroup
	waiting.Add(3)
	for i := range 4 {
		once := sync.OnceFunc(waiting.Done)
		wg.Go(func() {
			u := protocol.URI{Value: fmt.Sprintf("%s/%d#sha256=%s", s.URL, i, sumOf(body)), PullPolicy: Always}
			if _, err := f.Get(t.Context(), nil, u, func(text string) {
				if strings.HasPrefix(text, "waiting") {
					once()
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	close(release)
	wg.Wait()
	if n := len(s.headers()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestCancelledFetchLeavesNothing(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(body[:1000])
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
	})
	f := newFetcher(t, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := f.Get(ctx, nil, protocol.URI{Value: s.URL + "/x"}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	leftNothing(t, f)
}

// TestEncodedArchiveIsTheFileItself: servers that call a .tar.gz an encoded tar mean the file.
func TestEncodedArchiveIsTheFileItself(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "x-gzip")
		whole(w, r)
	})
	f := newFetcher(t, quick())
	if d, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/a.tar.gz"}, nil); err != nil || d != digestPrefix+sumOf(body) {
		t.Errorf("%s %v", d, err)
	}
	if enc := s.headers()[0].Get("Accept-Encoding"); enc != "identity" {
		t.Errorf("asked for %q", enc)
	}
}

// TestTLS: certificates are checked, and nothing goes on without.
func TestTLS(t *testing.T) {
	t.Parallel()
	plain := serve(t, whole)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" {
			http.Redirect(w, r, plain.URL+"/x", http.StatusFound)
			return
		}
		whole(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	f := newFetcher(t, quick())
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
	f.client.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, nil); err != nil {
		t.Error(err)
	}
	if _, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/down"}, nil); err == nil || !strings.Contains(err.Error(), "redirect from https to http") {
		t.Errorf("%v", err)
	}
	if n := len(plain.headers()); n != 0 {
		t.Errorf("%d requests without TLS", n)
	}
}
