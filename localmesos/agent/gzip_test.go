package agent

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"testing"
)

// TestGzip: whole answers of 1 kB and more are compressed for those who ask for it; files are not.
func TestGzip(t *testing.T) {
	t.Parallel()
	m, a := registered(t, nil)
	m.running(runOf(false, "x1", "ok", "t1"))
	file := sandboxOf(t, a, "x1") + "/long"
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/state": "gzip", "/version": "", "/files/read?offset=0&path=" + url.QueryEscape(file): "gzip", "/files/download?path=" + url.QueryEscape(file): "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		// Asked for explicitly, the client does not unpack it.
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || got != want || resp.ContentLength <= 0 {
			t.Errorf("%s: %s, Content-Encoding %q, %d bytes; want %q", path, resp.Status, got, resp.ContentLength, want)
		}
	}
}
