package wire

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestBodiesAreCompressed(t *testing.T) {
	t.Parallel()
	long, short := strings.Repeat("x", gzipMin), strings.Repeat("x", gzipMin-1)
	for _, c := range []struct {
		encoding, body string
		want           bool
	}{
		{"gzip", long, true}, {"gzip", short, false}, {"", long, false}, {"deflate, GZIP;q=0.5", long, true},
		{"gzip;q=0, *", long, false}, {"gzip;q=0.0", long, false}, {"*", long, true}, {"deflate", long, false}, {"gzip;q=x", long, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		if c.encoding != "" {
			r.Header.Set("Accept-Encoding", c.encoding)
		}
		w := httptest.NewRecorder()
		Compressing(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			Body(w, http.StatusTeapot, "text/x", []byte(c.body))
		})).ServeHTTP(w, r)
		if w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "text/x" || w.Header().Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
			t.Errorf("%+v: %d %v", c.encoding, w.Code, w.Header())
		}
		var in io.Reader = w.Body
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != c.want {
			t.Errorf("%q, %d bytes: compressed is %v", c.encoding, len(c.body), got)
		} else if got {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			in = z
		}
		if b, err := io.ReadAll(in); err != nil || string(b) != c.body {
			t.Errorf("%q: %d bytes, %v", c.encoding, len(b), err)
		}
	}
}
