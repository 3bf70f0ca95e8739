package master

import (
	"net/http"
	"strings"
	"testing"

	"tandem/localmesos/link"
)

// withoutRedirects shows redirects as they are.
var withoutRedirects = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableKeepAlives: true},
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := withoutRedirects.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	leading := startMaster(t, nil)
	standby := startMaster(t, func(f *Flags) { f.Leader = leading.Address() })
	lost := startMaster(t, func(f *Flags) { f.Leader = NoLeader })
	for _, c := range []struct {
		m            *Master
		method, path string
		status       int
		location     string
	}{
		{leading, "GET", "/redirect", 307, "//" + leading.Address()},
		{leading, "GET", "/master/redirect", 307, "//" + leading.Address()},
		{leading, "GET", "/redirect/redirect", 404, ""},
		{leading, "GET", "/state", 200, ""},
		{standby, "GET", "/redirect", 307, "//" + leading.Address()},
		{standby, "GET", "/redirect/redirect", 404, ""},
		{standby, "POST", "/api/v1/scheduler", 307, "//" + leading.Address() + "/api/v1/scheduler"},
		{standby, "POST", "/master/api/v1/scheduler", 307, "//" + leading.Address() + "/master/api/v1/scheduler"},
		{standby, "POST", "/api/v1", 307, "//" + leading.Address() + "/api/v1"},
		{standby, "GET", "/tasks?limit=1&order=asc", 307, "//" + leading.Address() + "/tasks?limit=1&order=asc"},
		{standby, "GET", "/health", 200, ""},
		{standby, "GET", "/flags", 200, ""},
		{standby, "GET", "/metrics/snapshot", 200, ""},
		{standby, "POST", link.Path + "/subscribe", 503, ""},
		{lost, "GET", "/redirect", 503, ""},
		{lost, "POST", "/api/v1/scheduler", 503, ""},
		{lost, "GET", "/version", 200, ""},
	} {
		if status, location := ask(t, c.method, c.m.URL()+c.path); status != c.status || location != c.location {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, status, location, c.status, c.location)
		}
	}
	if status, body := post(t, lost.URL()+"/api/v1/scheduler", nil, ""); status != 503 || body != "No leader elected" {
		t.Errorf("%d %q", status, body)
	}
	for m, want := range map[*Master]string{leading: `"master/elected":1.0`, standby: `"master/elected":0.0`} {
		if _, body := request(t, http.MethodGet, m.URL()+"/metrics/snapshot", nil, ""); !strings.Contains(body, want) {
			t.Errorf("%s is not in the metrics of %s", want, m.URL())
		}
	}
}
