// Package calls puts failpoints around calls over HTTP: one before a call, where
// nothing has happened yet, and one after its answer, where everything has and
// the caller has not noted it. In a process without armed points it adds nothing,
// not even a layer.
package calls

import (
	"net/http"
	"regexp"
	"strings"

	"tandem/internal/failpoint"
)

// Transport returns rt, with the points "prefix/METHOD things/verb" and
// ".../answered" around each call when points are armed. A point that is armed
// with an error makes the call fail like a broken connection.
func Transport(prefix string, rt http.RoundTripper) http.RoundTripper {
	if !failpoint.Armed() {
		return rt
	}
	return &transport{rt, prefix}
}

type transport struct {
	http.RoundTripper
	prefix string
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	name := t.prefix + "/" + Name(r)
	if err := failpoint.Inject(name); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Inject(name, "/answered"); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// CloseIdleConnections keeps that method of the transport within reach.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Handler returns h, with points before and after each request that changes
// something when points are armed: "prefix/METHOD things/verb", and ".../done" where
// all is done and the answer may not have left yet. Only kill and sleep mean
// something there.
func Handler(prefix string, h http.Handler) http.Handler {
	if !failpoint.Armed() {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		name := prefix + "/" + Name(r)
		_ = failpoint.Inject(name)
		h.ServeHTTP(w, r)
		_ = failpoint.Inject(name, "/done")
	})
}

var version = regexp.MustCompile(`^/v[0-9.]+(/|$)`)

// Name says what a request asks for, without the name of what it asks it of:
// "POST containers/start" for POST /v1.41/containers/4f1c/start.
func Name(r *http.Request) string {
	path := version.ReplaceAllString(r.URL.EscapedPath(), "/")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case len(parts) > 2, len(parts) == 2 && (last == "create" || last == "json"):
		return r.Method + " " + parts[0] + "/" + last
	default:
		return r.Method + " " + parts[0]
	}
}
