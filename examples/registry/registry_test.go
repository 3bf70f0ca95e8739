package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

type running struct {
	node *node
	url  string
	stop func()
}

func start(t *testing.T, dir string, l net.Listener, join ...string) *running {
	t.Helper()
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNode(options{Bind: host, Port: port, Join: join, Expect: 3, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, n, l) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return &running{node: n, url: "http://" + l.Addr().String(), stop: stop}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func peersOf(t *testing.T, r *running) []peer {
	t.Helper()
	resp, err := http.Get(r.url + "/peers")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []peer
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

func TestThreeServersFindOneAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l1, l2, l3 := listen(t), listen(t), listen(t)
	// Each knows only the one before it: the rest comes by gossip.
	a := start(t, "", l1)
	b := start(t, "", l2, l1.Addr().String())
	c := start(t, dir, l3, l2.Addr().String())
	for _, r := range []*running{a, b, c} {
		waitFor(t, "three peers", func() bool { return len(peersOf(t, r)) == 3 })
		resp, err := http.Get(r.url + "/health")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("health: %v %v", resp, err)
		}
		resp.Body.Close()
	}

	// A server that leaves is gone at once, and the rest is not healthy.
	id := c.node.self.ID
	c.stop()
	waitFor(t, "two peers", func() bool { return len(peersOf(t, a)) == 2 && len(peersOf(t, b)) == 2 })
	resp, err := http.Get(a.url + "/health")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("health of two: %v %v", resp, err)
	}
	resp.Body.Close()

	// It comes back on the same volume as the same server.
	d := start(t, dir, listen(t), l1.Addr().String())
	waitFor(t, "three peers again", func() bool { return len(peersOf(t, b)) == 3 })
	if d.node.self.ID != id {
		t.Errorf("id %s, want %s", d.node.self.ID, id)
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"server"}, {"agent", "-bind", "nowhere"}, {"agent", "-bind", "127.0.0.1", "-data-dir", "/dev/null/x"}} {
		if err := run(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	r := start(t, "", listen(t))
	resp, err := http.Post(r.url+"/gossip", "application/json", strings.NewReader("{"))
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%v %v", resp, err)
	}
	resp.Body.Close()
}
