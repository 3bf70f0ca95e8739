package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPing asks engines that answer, that hang, and that are not there.
func TestPing(t *testing.T) {
	dir := t.TempDir()
	serve := func(name string, h http.HandlerFunc) string {
		socket := filepath.Join(dir, name)
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		go func() { _ = s.Serve(l) }() // ends with Close
		t.Cleanup(func() { _ = s.Close() })
		return "unix://" + socket
	}
	good := serve("good", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if strings.HasSuffix(r.URL.Path, "/version") {
			_, _ = io.WriteString(w, `{"Version":"20.10.24","ApiVersion":"1.41"}`)
		}
	})
	hung := serve("hung", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, c := range []struct{ name, host, want, err string }{
		{"answers", good, "20.10.24", ""},
		{"hangs", hung, "", "no answer at " + hung},
		{"nobody", "unix://" + filepath.Join(dir, "nobody"), "", "no answer at unix://" + filepath.Join(dir, "nobody")},
		{"no address", "nonsense", "", `DOCKER_HOST "nonsense"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", c.host)
			limit := 10 * time.Second
			if c.host == hung {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := ping(ctx)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("ping = %q, %v; want %q, an error with %q", got, err, c.want, c.err)
			}
		})
	}
}
