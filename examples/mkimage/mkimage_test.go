package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.imageID(ctx, "tandem-none"); err != nil {
		t.Skipf("no Docker Engine: %v", err)
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	name := "tandem-test-mkimage-" + hex.EncodeToString(random[:]) + ":latest"
	t.Cleanup(func() {
		if err := removeImages(context.WithoutCancel(ctx), []string{name}); err != nil {
			t.Error(err)
		}
		// A second time there is nothing to remove, which is no error.
		if err := removeImages(context.WithoutCancel(ctx), []string{name}); err != nil {
			t.Error(err)
		}
	})
	image := func() string {
		t.Helper()
		if err := build(ctx, filepath.Join(t.TempDir(), "image.tar"), name, dir, true); err != nil {
			t.Fatal(err)
		}
		id, err := e.imageID(ctx, name)
		if err != nil || id == "" {
			t.Fatalf("no image: %v", err)
		}
		return id
	}
	first := image()
	if again := image(); again != first {
		t.Errorf("the same files make %s and %s", first, again)
	}
	write("two")
	if second := image(); second == first {
		t.Error("other files make the same image")
	}
	if id, err := e.imageID(ctx, first); err != nil || id != "" {
		t.Errorf("the earlier image is still there: %s, %v", id, err)
	}
}

func TestEngineThatRefuses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "e.sock")
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	ctx := context.Background()
	e, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.imageID(ctx, "x"); err == nil {
		t.Error("no engine is no error")
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/images/load" {
			// The engine's way to fail after it has answered.
			_, _ = w.Write([]byte("{\"stream\":\"loading\"}\n{\"error\":\"no space\"}\n"))
			return
		}
		http.Error(w, `{"message":"busy"}`, http.StatusConflict)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	for what, err := range map[string]error{"remove": e.remove(ctx, "x"), "load": e.load(ctx, "main.go")} {
		if err == nil {
			t.Errorf("%s: no error", what)
		} else {
			t.Log(err)
		}
	}
	t.Setenv("DOCKER_HOST", "ssh://x")
	if _, err := connect(); err == nil {
		t.Error("an address that is not supported is accepted")
	}
}
