package engine

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// silent is a client of an engine that accepts connections and never says a word.
func silent(t *testing.T) *Client {
	t.Helper()
	dir := testkit.ShortDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan []net.Conn, 1)
	go func() {
		var conns []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				held <- conns
				return
			}
			conns = append(conns, c)
		}
	}()
	c, err := New("unix://" + filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c.slow, c.quick = 100*time.Millisecond, 50*time.Millisecond
	c.minor.Store(oldest)
	t.Cleanup(func() {
		c.Close()
		ln.Close()
		for _, conn := range <-held {
			conn.Close()
		}
	})
	return c
}

// TestEveryCallHasADeadline: none waits for a silent engine for longer than its
// own time, whatever its caller's context allows. The list is complete: a method
// that takes a context and is not in it fails the test.
func TestEveryCallHasADeadline(t *testing.T) {
	t.Parallel()
	c := silent(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const id, idle = "0123", 50 * time.Millisecond
	calls := map[string]func() error{
		"Ping":        func() error { c.minor.Store(0); defer c.minor.Store(oldest); return c.Ping(ctx) },
		"Create":      func() error { _, err := c.Create(ctx, "x", &Spec{}); return err },
		"Start":       func() error { return c.Start(ctx, id) },
		"Inspect":     func() error { _, err := c.Inspect(ctx, id); return err },
		"Wait":        func() error { _, err := c.Wait(ctx, id, idle); return err },
		"Kill":        func() error { return c.Kill(ctx, id, "TERM") },
		"Update":      func() error { return c.Update(ctx, id, Resources{}) },
		"Remove":      func() error { return c.Remove(ctx, id) },
		"List":        func() error { _, err := c.List(ctx, nil); return err },
		"Logs":        func() error { _, err := c.Logs(ctx, id, time.Time{}, true); return err },
		"LastLog":     func() error { _, err := c.LastLog(ctx, id); return err },
		"Attach":      func() error { _, err := c.Attach(ctx, id); return err },
		"GetArchive":  func() error { _, err := c.GetArchive(ctx, id, "/etc/passwd"); return err },
		"Image":       func() error { _, err := c.Image(ctx, "x"); return err },
		"Import":      func() error { return c.Import(ctx, "x:1", strings.NewReader("")) },
		"Pull":        func() error { return c.Pull(ctx, "x", "1", "", idle, func(Progress) {}) },
		"CreateExec":  func() error { _, err := c.CreateExec(ctx, id, &ExecSpec{}); return err },
		"StartExec":   func() error { _, err := c.StartExec(ctx, id); return err },
		"AttachExec":  func() error { _, err := c.AttachExec(ctx, id, false); return err },
		"ResizeExec":  func() error { return c.ResizeExec(ctx, id, 1, 1) },
		"InspectExec": func() error { _, err := c.InspectExec(ctx, id); return err },
		"Events":      func() error { _, err := c.Events(ctx, id, time.Now(), time.Now()); return err },
		"Commit":      func() error { _, err := c.Commit(ctx, id, "x:1", nil, nil); return err },
		"Info":        func() error { _, err := c.Info(ctx); return err },
	}
	for m := range reflect.TypeFor[*Client]().Methods() {
		if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() && calls[m.Name] == nil {
			t.Errorf("%s is not tried", m.Name)
		}
	}
	for name, call := range calls {
		begin := time.Now()
		err := call()
		if !IsUnreachable(err) || !strings.Contains(err.Error(), "no answer in time") && !strings.Contains(err.Error(), "no progress for") && !strings.Contains(err.Error(), "see whether") {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(begin); d > 20*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
}

// TestEveryCallEndsWithItsContext: a caller that gives up is let go at once.
func TestEveryCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := silent(t)
	c.slow, c.quick = time.Hour, time.Hour
	for name, call := range map[string]func(context.Context) error{
		"do":     func(ctx context.Context) error { return c.Start(ctx, "0123") },
		"stream": func(ctx context.Context) error { _, err := c.Attach(ctx, "0123"); return err },
		"body":   func(ctx context.Context) error { return c.Import(ctx, "x:1", bytes.NewReader(nil)) },
		"pull":   func(ctx context.Context) error { return c.Pull(ctx, "x", "1", "", time.Hour, func(Progress) {}) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(ctx); !IsUnreachable(err) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
