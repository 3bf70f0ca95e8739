package fetch

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/archive/archivetest"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

func TestShrink(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{CacheBytes: 25})
	dir := t.TempDir()
	var digests []string
	for i := range 4 {
		p := filepath.Join(dir, strconv.Itoa(i))
		put(t, p, strings.Repeat(strconv.Itoa(i), 10))
		d, err := f.Get(t.Context(), nil, protocol.URI{Value: p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	for i, d := range digests {
		old := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(f.blob(d), old, old); err != nil {
			t.Fatal(err)
		}
	}
	f.Collect(digests[0])
	var left []int
	for i, d := range digests {
		if f.touch(d) {
			left = append(left, i)
		}
	}
	if fmt.Sprint(left) != "[0 3]" {
		t.Errorf("left %v", left)
	}
}

// TestCollect: what is held never goes, what is old and not held does, the rest by
// size, and what was just used stays.
func TestCollect(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{CacheAge: time.Hour, CacheBytes: 1 << 30})
	dir := t.TempDir()
	digests := map[string]string{}
	for _, name := range []string{"held", "old", "recent", "young"} {
		p := filepath.Join(dir, name)
		put(t, p, name)
		d, err := f.Get(t.Context(), nil, protocol.URI{Value: p}, nil)
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = d
		if name == "held" {
			f.Hold("task", []string{d}, nil)
		}
	}
	age := func(name string, age time.Duration) {
		then := time.Now().Add(-age)
		if err := os.Chtimes(f.blob(digests[name]), then, then); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	left := func() string {
		t.Helper()
		var names []string
		for _, name := range []string{"held", "old", "recent", "young"} {
			if _, err := os.Stat(f.blob(digests[name])); err == nil {
				names = append(names, name)
			}
		}
		return strings.Join(names, " ")
	}
	age("held", 100*time.Hour)
	age("old", 2*time.Hour)
	age("recent", 30*time.Minute)
	f.Collect()
	if got := left(); got != "held recent young" {
		t.Errorf("by age: %s", got)
	}
	if e, err := os.ReadDir(f.index()); err != nil || len(e) != 3 {
		t.Errorf("index: %v %v", e, err)
	}
	f.limits.CacheBytes = 1
	f.Collect()
	if got := left(); got != "held young" {
		t.Errorf("by size: %s", got)
	}
	f.Release("task")
	f.Collect()
	if got := left(); got != "young" {
		t.Errorf("released: %s", got)
	}
}

// TestFaultKilledWhileUnpacking: the next daemon clears what it left, and nothing else.
func TestFaultKilledWhileUnpacking(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	half, precious := filepath.Join(dir, unpackPrefix+"0123"), filepath.Join(dir, "precious")
	for _, d := range []string{half, precious} {
		if _, err := f.intend(d); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(d, "sub/file"), "x")
	}
	put(t, filepath.Join(f.intents(), "torn"), half[:len(half)-1])
	put(t, filepath.Join(f.blobs(), ".tmp-123"), "half a download")
	if _, err := New(f.dir, Limits{}, &unpack.Runner{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	want(t, filepath.Join(precious, "sub/file"), "x")
	leftNothing(t, f)
}

// TestKilledChildLeavesNothing: and a second try does it.
func TestKilledChildLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "x")
	runner := &unpack.Runner{Points: "unpack/end=kill"}
	f, err := New(filepath.Join(dir, "cache"), Limits{}, runner)
	if err != nil {
		t.Fatal(err)
	}
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "work/a"), Mode: 0o600}
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "ended before it was done: signal: killed") {
		t.Errorf("%v", err)
	}
	leftNothing(t, f)
	if e, err := os.ReadDir(filepath.Join(dir, "work")); err != nil || len(e) != 0 {
		t.Errorf("left: %v %v", e, err)
	}
	runner.Points = ""
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(filepath.Join(u.OutputDir, "tool")); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	leftNothing(t, f)
}

// TestCollectOutputs: only what nobody uses, nobody has changed and lies below the workspace.
func TestCollectOutputs(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{OutputAge: time.Hour})
	dir := t.TempDir()
	archive := filepath.Join(dir, "a.tar")
	put(t, archive, string(archivetest.Tar(t, archivetest.Entry{Name: "sub/a", Body: "a"}, archivetest.Entry{Name: "l", Type: '2', Link: "sub"})))
	put(t, filepath.Join(dir, "tool"), "x")
	work := filepath.Join(dir, "work")
	provide := func(from, out string) {
		t.Helper()
		if _, err := f.Provide(t.Context(), protocol.URI{Value: filepath.Join(dir, from), OutputDir: out}, "", nil, nil); err != nil {
			t.Error(err)
		}
	}
	changes := map[string]func(out string) error{
		"as it came":   func(string) error { return nil },
		"added to":     func(out string) error { provide("tool", out); return nil },
		"used":         func(out string) error { f.Hold("task", nil, []string{out}); return nil },
		"used below":   func(out string) error { f.Hold("below", nil, []string{out + "/sub/work"}); return nil },
		"young":        func(string) error { return nil },
		"written":      func(out string) error { return os.WriteFile(out+"/sub/a", []byte("b"), 0o644) },
		"mode":         func(out string) error { return os.Chmod(out+"/sub/a", 0o600) },
		"new":          func(out string) error { return os.WriteFile(out+"/sub/data", nil, 0o644) },
		"new dir":      func(out string) error { return os.Mkdir(out+"/data", 0o755) },
		"removed":      func(out string) error { return os.Remove(out + "/l") },
		"linked":       func(out string) error { return os.Link(out+"/sub/a", dir+"/elsewhere") },
		"touched back": func(out string) error { return os.Chtimes(out+"/sub/a", time.Unix(1, 0), time.Unix(1, 0)) },
		"written and added to": func(out string) error {
			err := os.WriteFile(out+"/sub/a", []byte("b"), 0o644)
			provide("tool", out)
			return err
		},
	}
	collect := func() {
		old := time.Now().Add(-2 * time.Hour)
		for name := range changes {
			if name != "young" {
				os.Chtimes(f.outputFile(filepath.Join(work, name)), old, old)
			}
		}
		os.Chtimes(f.outputFile(filepath.Join(dir, "elsewhere.d")), old, old)
		f.CollectOutputs(work)
	}
	for name, change := range changes {
		out := filepath.Join(work, name)
		provide("a.tar", out)
		if err := change(out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	provide("a.tar", filepath.Join(dir, "elsewhere.d"))
	put(t, filepath.Join(work, "there before/data"), "x")
	provide("a.tar", filepath.Join(work, "there before"))
	collect()
	gone := map[string]bool{"as it came": true, "added to": true}
	for name := range changes {
		if _, err := os.Lstat(filepath.Join(work, name)); errors.Is(err, os.ErrNotExist) != gone[name] {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "elsewhere.d/sub/a"), filepath.Join(work, "there before/data")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	// What is released gets its time, and then goes.
	f.Release("task")
	f.CollectOutputs(work)
	if _, err := os.Lstat(filepath.Join(work, "used")); err != nil {
		t.Error(err)
	}
	collect()
	if _, err := os.Lstat(filepath.Join(work, "used")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	provide("a.tar", filepath.Join(work, "used"))
	want(t, filepath.Join(work, "used/sub/a"), "a")
	leftNothing(t, f)
}

// TestInstancesShareNothingButTheCache: each has files of its own.
func TestInstancesShareNothingButTheCache(t *testing.T) {
	t.Parallel()
	s, n := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(archivetest.Tar(t, archivetest.Entry{Name: "conf", Body: "as it came"}))
	})
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			u := protocol.URI{Value: s.URL + "/a.tar", OutputDir: filepath.Join(dir, strconv.Itoa(i))}
			if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := os.WriteFile(filepath.Join(dir, "0/conf"), []byte("as one instance wants it"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		want(t, filepath.Join(dir, strconv.Itoa(i+1), "conf"), "as it came")
	}
	if n.Load() != 1 {
		t.Errorf("%d downloads", n.Load())
	}
}

// TestNewChecksumIsNewContent: whatever the policy, and back again.
func TestNewChecksumIsNewContent(t *testing.T) {
	t.Parallel()
	var latest atomic.Value
	s, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, latest.Load()) })
	f := newFetcher(t, Limits{})
	out := filepath.Join(t.TempDir(), "out")
	for _, v := range []string{"1", "2", "1"} {
		m := md5.Sum([]byte(v))
		for _, fragment := range []string{"sha256=" + sumOf([]byte(v)), "md5=" + hex.EncodeToString(m[:])} {
			latest.Store(v)
			if _, err := f.Provide(t.Context(), protocol.URI{Value: s.URL + "/x#" + fragment, OutputDir: out}, "", nil, nil); err != nil {
				t.Error(err)
			}
			want(t, filepath.Join(out, "x"), v)
		}
	}
}

func TestMergeConflictsAreNamed(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	put(t, filepath.Join(out, "tool/x"), "")
	put(t, filepath.Join(dir, "tool"), "x")
	_, err := f.Provide(t.Context(), protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: out}, "", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "a directory is in the way") {
		t.Error(err)
	}
	if e, _ := os.ReadDir(dir); len(e) != 2 {
		t.Errorf("left: %v", e)
	}
}

// TestWaitingForASlot: many archives at once are unpacked one after the other, and waiting can end.
func TestWaitingForASlot(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "x")
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "work/a")}
	for range cap(f.slots) {
		f.slots <- struct{}{}
	}
	provide := func(ctx context.Context, waits func()) error {
		_, err := f.Provide(ctx, u, "", nil, func(text string) {
			if strings.HasPrefix(text, "waiting to unpack file://") || strings.HasPrefix(text, "waiting to unpack /") {
				waits()
			}
		})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := provide(ctx, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	leftNothing(t, f)
	if err := provide(t.Context(), func() { <-f.slots }); err != nil {
		t.Error(err)
	}
	want(t, filepath.Join(u.OutputDir, "tool"), "x")
}

// TestFaultDiskFull: where the downloads are, and where the content goes.
func TestFaultDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := serve(t, whole)
	full, err := New(filepath.Join(small, "cache"), Limits{}, &unpack.Runner{})
	if err != nil {
		t.Fatal(err)
	}
	u := protocol.URI{Value: s.URL + "/x", OutputDir: filepath.Join(small, "work/a")}
	if _, err := full.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("%v", err)
	}
	leftNothing(t, full)
	f := newFetcher(t, Limits{})
	if _, err := f.Provide(t.Context(), u, "", nil, nil); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("%v", err)
	}
	leftNothing(t, f)
	if e, err := os.ReadDir(filepath.Join(small, "work")); err != nil || len(e) != 0 {
		t.Errorf("left: %v %v", e, err)
	}
}

// TestFaultPowerCut: what was not yet on the disk for sure is unpacked again, what
// was is left alone.
func TestFaultPowerCut(t *testing.T) {
	t.Parallel()
	f := newFetcher(t, Limits{})
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tool"), "content")
	u := protocol.URI{Value: filepath.Join(dir, "tool"), OutputDir: filepath.Join(dir, "work/a")}
	tool := filepath.Join(u.OutputDir, "tool")
	provide := func(boot string) {
		t.Helper()
		f.boot = boot
		if _, err := f.Provide(t.Context(), u, "", nil, nil); err != nil {
			t.Error(err)
		}
	}
	provide("one")
	put(t, tool, "")
	provide("one")
	want(t, tool, "")
	provide("two")
	want(t, tool, "content")
	// Another daemon of the same boot knows it from the marker.
	f.unsynced = map[unsynced]bool{}
	provide("two")
	f.Confirm()
	if len(f.unsynced) != 0 {
		t.Error("not confirmed")
	}
	put(t, tool, "edited")
	provide("three")
	want(t, tool, "edited")
	if e, err := os.ReadDir(u.OutputDir); err != nil || len(e) != 2 {
		t.Errorf("%v %v", e, err)
	}
}

// TestFaultPowerCutAfterFetch: content that may not be on the disk is not taken for whole after a reboot.
func TestFaultPowerCutAfterFetch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		confirm bool
		boot    string // what the record says after the power cut
		stays   bool
	}{
		{"restart of the daemon", false, "", true},
		{"power cut", false, "another boot", false},
		{"power cut that emptied the record", false, "empty", false},
		{"confirmed before", true, "another boot", true},
	} {
		f := newFetcher(t, Limits{})
		s := serve(t, whole)
		digest, err := f.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.confirm {
			f.Confirm()
		}
		record := filepath.Join(f.volatile(), digest[len(digestPrefix):])
		if _, err := os.Stat(record); errors.Is(err, os.ErrNotExist) != c.confirm {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.boot != "" && !c.confirm {
			put(t, record, strings.TrimSuffix(c.boot, "empty"))
		}
		again, err := New(f.dir, Limits{}, &unpack.Runner{})
		if err != nil {
			t.Fatal(err)
		}
		if again.touch(digest) != c.stays {
			t.Errorf("%s: there: %v", c.name, !c.stays)
		}
		if _, err := again.Get(t.Context(), nil, protocol.URI{Value: s.URL + "/x"}, nil); err != nil {
			t.Error(err)
		}
		if n := len(s.headers()); (n == 1) != c.stays {
			t.Errorf("%s: %d requests", c.name, n)
		}
	}
}
