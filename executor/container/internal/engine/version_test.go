package engine

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// fakeEngine answers as an engine whose API goes from one version to another.
func fakeEngine(t *testing.T, from, to int) (*Client, *[]string) {
	t.Helper()
	dir := testkit.ShortDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	calls := &[]string{} // one request after another, and read when they are answered
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*calls = append(*calls, r.URL.Path)
		if to > 0 {
			w.Header().Set("Api-Version", fmt.Sprintf("1.%d", to))
		}
		var asked int
		_, err := fmt.Sscanf(r.URL.Path, "/v1.%d/", &asked)
		refuse := func(what, which string, limit int) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"message":"client version 1.%d is too %s. %s supported API version is 1.%d"}`, asked, what, which, limit)
		}
		switch {
		case to == 0:
			http.NotFound(w, r)
		case err != nil: // the ping has no version
		case asked < from:
			refuse("old", "Minimum", from)
		case asked > to:
			refuse("new", "Maximum", to)
		default:
			_ = json.NewEncoder(w).Encode(Container{ID: "0123"})
		}
	})}
	go s.Serve(ln)
	c, err := New("unix://" + filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c, calls
}

// TestVersions: engines from 20.10 on are spoken to, the usual ones without a
// question first, and others are refused with what to do.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		from, to int
		calls    string // of two inspections
		refusal  string
	}{
		{12, 41, "/v1.41/containers/x/json /v1.41/containers/x/json", ""},
		{24, 50, "/v1.41/containers/x/json /v1.41/containers/x/json", ""},
		{44, 52, "/v1.41/containers/x/json /_ping /v1.51/containers/x/json /v1.51/containers/x/json", ""},
		{12, 40, "", "the engine's API 1.40 is too old; install Docker 20.10 (API 1.41) or later"},
		{0, 0, "", "what answers is no Docker Engine"},
	} {
		c, calls := fakeEngine(t, v.from, v.to)
		for range 2 {
			_, err := c.Inspect(t.Context(), "x")
			if v.refusal == "" && err != nil || v.refusal != "" && (err == nil || !strings.Contains(err.Error(), v.refusal) || !strings.Contains(err.Error(), c.Host())) {
				t.Errorf("1.%d to 1.%d: %v", v.from, v.to, err)
			}
		}
		if got := strings.Join(*calls, " "); v.refusal == "" && got != v.calls {
			t.Errorf("1.%d to 1.%d: calls %s", v.from, v.to, got)
		}
	}
}
