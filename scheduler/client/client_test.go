package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tandem/api"
	"tandem/scheduler/wire"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": DefaultServer, "127.0.0.1:80": "http://127.0.0.1:80", "http://h:1/": "http://h:1", "https://h": "https://h",
	} {
		c, err := New(in)
		if err != nil || c.Server() != want {
			t.Errorf("%q: %v %v", in, c, err)
		}
	}
	for _, in := range []string{"ftp://h", "http://", "::", "http://a b"} {
		if _, err := New(in); err == nil {
			t.Errorf("%q is no error", in)
		}
	}
}

// TestRequests checks what each method asks for, and that a problem comes back as what it is.
func TestRequests(t *testing.T) {
	t.Parallel()
	var got, body string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r.Method+" "+r.URL.RequestURI(), string(b)
		w.WriteHeader(status)
		switch {
		case status != http.StatusOK:
			fmt.Fprint(w, `{"code":"conflict","message":"it cannot be","errors":[{"path":"spec.x","message":"wrong"}]}`)
		case strings.HasSuffix(r.URL.Path, "/logs"):
			fmt.Fprint(w, "text")
		case r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "/process/"):
			fmt.Fprint(w, `[]`)
		case strings.HasSuffix(r.URL.Path, "/events"):
			fmt.Fprint(w, `[]`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer server.Close()
	c, err := New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ref := api.Ref{Kind: api.KindProcess, Namespace: "n/s", Name: "web"}
	cases := []struct {
		want, body string
		do         func(ctx context.Context) error
	}{
		{"POST /v1/apply", `{"documents":[{}],"dryRun":true}`, func(ctx context.Context) error {
			_, err := c.Apply(ctx, wire.ApplyRequest{Documents: []json.RawMessage{[]byte("{}")}, DryRun: true})
			return err
		}},
		{"GET /v1/objects/process?namespace=n", "", func(ctx context.Context) error { _, err := c.Objects(ctx, "process", "n"); return err }},
		{"GET /v1/objects/process/n%2Fs/web", "", func(ctx context.Context) error { _, err := c.Object(ctx, ref); return err }},
		{"DELETE /v1/objects/process/n%2Fs/web", "", func(ctx context.Context) error { return c.Delete(ctx, ref) }},
		{"POST /v1/objects/process/n%2Fs/web/scale", `{"replicas":3}`, func(ctx context.Context) error { return c.Scale(ctx, ref, 3) }},
		{"POST /v1/objects/process/n%2Fs/web/restart", "", func(ctx context.Context) error { return c.Restart(ctx, ref) }},
		{"POST /v1/taskgroups/n/web-0/restart", "", func(ctx context.Context) error { return c.RestartTaskgroup(ctx, "n", "web-0") }},
		{"GET /v1/objects/process/n%2Fs/web/events", "", func(ctx context.Context) error { _, err := c.Events(ctx, ref); return err }},
		{"GET /v1/taskgroups", "", func(ctx context.Context) error { _, err := c.Taskgroups(ctx, ""); return err }},
		{"GET /v1/agents", "", func(ctx context.Context) error { _, err := c.Agents(ctx); return err }},
		{"GET /v1/taskgroups/id/tasks/-/logfiles", "", func(ctx context.Context) error { _, err := c.LogFiles(ctx, "id", "-"); return err }},
		{"GET /v1/taskgroups/id/tasks/-/logs?follow=1&stream=stderr&tail=5", "", func(ctx context.Context) error {
			r, err := c.Logs(ctx, "id", "-", LogOptions{Stream: "stderr", Follow: true, Tail: 5})
			if err == nil {
				r.Close()
			}
			return err
		}},
	}
	for _, x := range cases {
		status = http.StatusOK
		if err := x.do(t.Context()); err != nil || got != x.want || body != x.body {
			t.Errorf("%s %s (%v), want %s %s", got, body, err, x.want, x.body)
		}
		status = http.StatusConflict
		var e *Error
		if err := x.do(t.Context()); !errors.As(err, &e) || e.Status != 409 || e.Code != wire.CodeConflict || len(e.Errors) != 1 || err.Error() != "it cannot be" {
			t.Errorf("%s: %v", x.want, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/agents" {
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprint(w, "<html>a proxy</html>")
	}))
	defer server.Close()
	c, err := New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Agents(t.Context()); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("%v", err)
	}
	if _, err := c.Taskgroups(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("%v", err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	var e *UnreachableError
	_, err = c.Agents(t.Context())
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "connection refused; start one with") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	cancel()
	if _, err := c.Agents(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
