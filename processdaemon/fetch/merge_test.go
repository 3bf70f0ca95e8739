package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/archive/archivetest"
	"tandem/internal/failpoint"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

// tree describes what lies below a directory: names, kinds, content, targets. Markers and
// what is being unpacked are left out.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil || strings.HasPrefix(d.Name(), ".tandem-") && strings.HasSuffix(d.Name(), ".json") {
			return err
		}
		switch {
		case d.IsDir():
			all = append(all, rel+"/")
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			all = append(all, rel+" -> "+to)
			return err
		default:
			b, err := os.ReadFile(p)
			all = append(all, rel+"="+string(b))
			return err
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return strings.Join(all, " ")
}

// merging is an outputDir that holds things, and an archive to be merged into it.
type merging struct {
	f   *Fetcher
	dir string
	out string
	u   protocol.URI
}

const (
	mergeBefore = "./ data=precious kept/ kept/l -> ../data kept/old=1 lib/ lib/a=1 lib/b=1 lib/only=1 z=1"
	mergeAfter  = "./ added=2 data=precious kept/ kept/l=2 kept/old=1 lib/ lib/a=2 lib/b=2 lib/new/ lib/new/deep/ lib/new/deep/x=2 lib/only=1 z -> added"
)

func newMerging(t testing.TB) *merging {
	t.Helper()
	m := &merging{f: newFetcher(t, Limits{}), dir: t.TempDir()}
	m.out = filepath.Join(m.dir, "work/out")
	for name, content := range map[string]string{"data": "precious", "kept/old": "1", "lib/a": "1", "lib/b": "1", "lib/only": "1", "z": "1"} {
		put(t, filepath.Join(m.out, name), content)
	}
	if err := os.Symlink("../data", filepath.Join(m.out, "kept/l")); err != nil {
		t.Fatal(err)
	}
	a := filepath.Join(m.dir, "a.tar")
	put(t, a, string(archivetest.Tar(t, archivetest.Entry{Name: "lib/a", Body: "2"}, archivetest.Entry{Name: "lib/b", Type: '1', Link: "lib/a"}, archivetest.Entry{Name: "lib/new/deep/x", Body: "2"},
		archivetest.Entry{Name: "added", Body: "2"}, archivetest.Entry{Name: "kept/l", Body: "2"}, archivetest.Entry{Name: "z", Type: '2', Link: "added"})))
	m.u = protocol.URI{Value: a, OutputDir: m.out}
	return m
}

func (m *merging) provide(ctx context.Context) error {
	_, err := m.f.Provide(ctx, m.u, "", nil, nil)
	return err
}

func (m *merging) nothingLeft(t testing.TB) {
	t.Helper()
	if e, err := os.ReadDir(filepath.Dir(m.out)); err != nil || len(e) != 1 {
		t.Errorf("left beside: %v %v", e, err)
	}
	for _, dir := range []string{m.f.merges(), m.f.intents()} {
		if e, err := os.ReadDir(dir); err != nil || len(e) != 0 {
			t.Errorf("left: %v %v", e, err)
		}
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if len(m.f.outputs) != 0 {
		t.Errorf("locks left: %v", m.f.outputs)
	}
}

// TestMergeThatFailsLeavesEverythingAsItWas: at each step, and on a file system that
// cannot exchange files.
func TestMergeThatFailsLeavesEverythingAsItWas(t *testing.T) {
	for _, plainOnly := range []bool{false, true} {
		for steps := range 8 {
			m := newMerging(t)
			m.f.plainOnly = plainOnly
			point := fmt.Sprintf("fetch/merge=%d*off->1*error(the disk is full)->off", steps)
			const last = 6
			switch steps {
			case 0:
				point = "fetch/merge=1*error(the disk is full)->off"
			case last:
				point = "fetch/merged=1*error(the disk is full)->off"
			case last + 1:
				point = ""
			}
			if got := tree(t, m.out); got != mergeBefore {
				t.Fatalf("%s", got)
			}
			failpoint.ForTest(t, point)
			err := m.provide(t.Context())
			if steps <= last {
				if err == nil || !strings.Contains(err.Error(), "the disk is full") || !strings.HasSuffix(err.Error(), "; it is as it was before") {
					t.Errorf("step %d: %v", steps, err)
				}
				if got := tree(t, m.out); got != mergeBefore {
					t.Errorf("step %d: %s", steps, got)
				}
				m.nothingLeft(t)
				err = m.provide(t.Context())
			}
			if err != nil {
				t.Errorf("step %d, again: %v", steps, err)
			}
			if got := tree(t, m.out); got != mergeAfter {
				t.Errorf("step %d, again: %s", steps, got)
			}
			m.nothingLeft(t)
		}
	}
}

// TestMergeLooksBeforeItChangesAnything: and says all that is in the way.
func TestMergeLooksBeforeItChangesAnything(t *testing.T) {
	t.Parallel()
	m := newMerging(t)
	for _, name := range []string{"lib", "added", "z"} {
		if err := os.RemoveAll(filepath.Join(m.out, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(m.out, "lib"), "a file")
	put(t, filepath.Join(m.out, "added/x"), "in a directory")
	if err := os.RemoveAll(filepath.Join(m.out, "kept")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../elsewhere", filepath.Join(m.out, "kept")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(m.dir, "elsewhere/l"), "untouched")
	before := tree(t, m.out)
	err := m.provide(t.Context())
	if err == nil || !strings.Contains(err.Error(), "nothing was changed in it") {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"lib: a file is in the way of a directory", "added: a directory is in the way of a file", "kept: a link that leads nowhere, or out"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if got := tree(t, m.out); got != before {
		t.Errorf("%s, was %s", got, before)
	}
	want(t, filepath.Join(m.dir, "elsewhere/l"), "untouched")
	if err := os.RemoveAll(filepath.Join(m.dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	m.nothingLeft(t)
}

// TestMergeThatCannotBePutBackSaysSo: what somebody has changed meanwhile stays.
func TestMergeThatCannotBePutBackSaysSo(t *testing.T) {
	t.Parallel()
	m := newMerging(t)
	from, err1 := os.OpenRoot(m.dir)
	to, err2 := os.OpenRoot(m.out)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	put(t, filepath.Join(m.dir, "z"), "2")
	put(t, filepath.Join(m.dir, "lib/a"), "2")
	g := &merge{from: from, to: to}
	if err := g.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.Steps = slices.DeleteFunc(g.Steps, func(s step) bool { return s.Name != "z" && s.Name != "lib/a" })
	if err := g.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(m.dir, "mine"), "mine")
	if err := os.Rename(filepath.Join(m.dir, "mine"), filepath.Join(m.out, "z")); err != nil {
		t.Fatal(err)
	}
	if err := g.undo(len(g.Steps), errors.New("failed")); err.Error() != "failed; these are new already and could not be put back: z" {
		t.Error(err)
	}
	want(t, filepath.Join(m.out, "z"), "mine")
	want(t, filepath.Join(m.out, "lib/a"), "1")
}

// TestFaultPowerCutInAMerge: what is new may be empty then; what was there comes back.
func TestFaultPowerCutInAMerge(t *testing.T) {
	m := newMerging(t)
	failpoint.ForTest(t, "fetch/merge=3*off->panic")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		m.interrupted(t)
	}()
	if got := tree(t, m.out); got == mergeBefore || got == mergeAfter {
		t.Fatalf("not in the middle: %s", got)
	}
	failpoint.ForTest(t, "")
	entries, err := os.ReadDir(m.f.merges())
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v %v", entries, err)
	}
	record := filepath.Join(m.f.merges(), entries[0].Name())
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	put(t, record, strings.Replace(string(b), m.f.boot, "another boot", 1))
	if m.f, err = New(m.f.dir, Limits{}, &unpack.Runner{}); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, m.out); got != mergeBefore {
		t.Errorf("%s", got)
	}
	m.nothingLeft(t)
}

// interrupted does what a killed daemon does: a merge of what was unpacked, up to the panic, and
// nothing after it.
func (m *merging) interrupted(t testing.TB) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(m.out), m.f.besides(m.out))
	if _, err := m.f.intend(tmp); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lib/a", "lib/b", "lib/new/deep/x", "added", "kept/l"} {
		put(t, filepath.Join(tmp, name), "2")
	}
	root, err := os.OpenRoot(tmp)
	if err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenRoot(m.out)
	if err != nil {
		t.Fatal(err)
	}
	g := &merge{mergeRecord: mergeRecord{From: tmp, Out: m.out, Marker: ".tandem-x.json", Boot: m.f.boot}, from: root, to: to}
	if err := g.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := g.bytes()
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(m.f.merges(), hash(m.out)), string(b))
	_ = g.run(t.Context()) // it panics
}

// TestMergeIntoAMountPoint: an outputDir may be a disk of its own, but nothing in it.
func TestMergeIntoAMountPoint(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	m := newMerging(t)
	mount := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount(m.out)
	put(t, filepath.Join(m.out, "data"), "precious")
	if err := m.provide(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, m.out); got != "./ added=2 data=precious kept/ kept/l=2 lib/ lib/a=2 lib/b=2 lib/new/ lib/new/deep/ lib/new/deep/x=2 z -> added" {
		t.Error(got)
	}
	m.nothingLeft(t)
	inner := newMerging(t)
	mount(filepath.Join(inner.out, "lib/new"))
	before := tree(t, inner.out)
	if err := inner.provide(t.Context()); err == nil || !strings.Contains(err.Error(), "lib/new: it is on another file system than the outputDir") {
		t.Error(err)
	}
	if got := tree(t, inner.out); got != before {
		t.Errorf("%s, was %s", got, before)
	}
	inner.nothingLeft(t)
}

// TestFaultDiskFullInAMerge: what was there stays.
func TestFaultDiskFullInAMerge(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	m := newMerging(t)
	m.out = filepath.Join(m.dir, "work/small/out")
	small := filepath.Dir(m.out)
	if err := os.MkdirAll(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	put(t, filepath.Join(m.out, "lib/a"), "1")
	put(t, m.u.Value, string(archivetest.Tar(t, archivetest.Entry{Name: "lib/a", Body: "2"}, archivetest.Entry{Name: "lib/big", Body: strings.Repeat("x", 400_000)})))
	m.u.OutputDir = m.out
	if err := m.provide(t.Context()); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Error(err)
	}
	if got := tree(t, m.out); got != "./ lib/ lib/a=1" {
		t.Error(got)
	}
	m.nothingLeft(t)
}

// TestLinksOfOthersLeadAMergeNowhere: neither in the way to the outputDir, nor in its place.
func TestLinksOfOthersLeadAMergeNowhere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("giving links to others needs root")
	}
	m := newMerging(t)
	outside := filepath.Join(m.dir, "outside")
	put(t, filepath.Join(outside, "sub/lib/a"), "untouched")
	for name, to := range map[string]string{"link": outside, "work/out/up": "../../outside"} {
		if err := os.Symlink(to, filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(filepath.Join(m.dir, name), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(m.out, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	before := tree(t, outside)
	for _, out := range []string{"link", "link/sub", "link/new", "work/out/up", "work/out/up/sub", "work/out/up/new"} {
		m.u.OutputDir = filepath.Join(m.dir, out)
		if err := m.provide(t.Context()); err == nil {
			t.Errorf("%s: no error", out)
		}
	}
	if got := tree(t, outside); got != before {
		t.Errorf("%s, was %s", got, before)
	}
}

// TestWhatLiesInTheMarkersPlace: is no marker, and nothing is waited for.
func TestWhatLiesInTheMarkersPlace(t *testing.T) {
	t.Parallel()
	for what, place := range map[string]func(path string) error{
		"a pipe":      func(p string) error { return unix.Mkfifo(p, 0o666) },
		"a link":      func(p string) error { return os.Symlink("/dev/zero", p) },
		"a directory": func(p string) error { return os.Mkdir(p, 0o755) },
		"a big file":  func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(" ", 1<<20)), 0o644) },
	} {
		m := newMerging(t)
		s, err := parse(m.u)
		if err != nil {
			t.Fatal(err)
		}
		if err := place(filepath.Join(m.out, ".tandem-"+s.place()[:16]+".json")); err != nil {
			t.Fatal(err)
		}
		err = m.provide(t.Context())
		if what == "a directory" {
			if err == nil || !strings.HasSuffix(err.Error(), "it is as it was before") {
				t.Errorf("%s: %v", what, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		m.nothingLeft(t)
	}
}
