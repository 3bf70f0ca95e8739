package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup"
	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/procid"
	"tandem/internal/testkit"
)

func TestMain(m *testing.M) {
	if Asked() {
		os.Exit(Main())
	}
	testkit.SideBySide(8)
	os.Exit(cgrouptest.Run(m.Run))
}

// room is a directory with a keeper in a process of its own.
type room struct {
	t    testing.TB
	dir  string
	tree *cgroup.Tree
	wait chan struct{}
	c    *Client
}

func newRoom(t testing.TB, points string) *room {
	t.Helper()
	dir := testkit.ShortDir(t)
	r := &room{t: t, dir: dir, tree: cgroup.Open("tandem-test-keeper/" + filepath.Base(dir))}
	cgrouptest.Expect(r.tree.Base())
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("the keeper's log:\n%s", b)
		}
		eventually(t, "its control group is removed", func() bool { return r.tree.Group("keeper").Remove() == nil })
		r.tree.Close()
	})
	r.start(points)
	return r
}

func (r *room) start(points string) {
	r.t.Helper()
	_, wait, err := Start(r.t.Context(), Launch{Dir: r.dir, Tree: r.tree, Points: points})
	if err != nil {
		r.t.Fatal(err)
	}
	r.wait = make(chan struct{})
	go func(done chan struct{}) { wait(); close(done) }(r.wait)
	r.dial()
}

func (r *room) dial() {
	r.t.Helper()
	var err error
	if r.c, err = Dial(r.t.Context(), r.dir, 20*time.Second); err != nil {
		r.t.Fatal(err)
	}
}

// kill ends the keeper as a crash would, if it runs.
func (r *room) kill() {
	if r.c == nil {
		return
	}
	if p, err := procid.Open(r.c.Peer()); err == nil {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		p.Close()
	}
	r.c.Close()
	<-r.wait
	r.c = nil
}

// spec is a shell that runs a script; the process is killed at the test's end.
func (r *room) spec(key, script string) *Spec {
	r.t.Helper()
	out, err := os.OpenFile(filepath.Join(r.dir, key+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { out.Close() })
	return &Spec{Key: key, Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"A=b"}, Dir: "/", Stdout: out, Stderr: out}
}

func (r *room) spawn(key, script string) Entry {
	r.t.Helper()
	e, existing, err := r.c.Spawn(r.t.Context(), r.spec(key, script))
	if err != nil || existing {
		r.t.Fatal(err, existing)
	}
	r.t.Cleanup(func() { endProcess(e.ID) })
	return e
}

func endProcess(id procid.Identity) {
	if p, err := procid.Open(id); err == nil {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		p.Close()
	}
}

// ended waits until the process is gone and asks how.
func (r *room) ended(e Entry) Entry {
	r.t.Helper()
	if p, err := procid.Open(e.ID); err == nil {
		ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
		defer cancel()
		if err := p.Wait(ctx); err != nil {
			r.t.Fatal(err)
		}
		p.Close()
	}
	got, err := r.c.Look(r.t.Context(), e.Key)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *room) out(key string) string {
	b, err := os.ReadFile(filepath.Join(r.dir, key+".out"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(b)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in time: %s", what)
}

func alive(pid int) bool {
	id, err := procid.Of(pid)
	return err == nil && id.Alive()
}

func openFDs(pid int) string {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for _, n := range names {
		out.WriteString(n.Name() + " ")
	}
	return out.String()
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
