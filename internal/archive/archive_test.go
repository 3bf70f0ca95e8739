package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	at "tandem/internal/archive/archivetest"
)

// unpackInto unpacks below a directory with a canary beside it, and checks
// that nothing outside has changed.
func unpackInto(t testing.TB, archive []byte, isZip bool, o Options) (string, error) {
	t.Helper()
	base := t.TempDir()
	dir, canary := filepath.Join(base, "root"), filepath.Join(base, "canary")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unchanged := at.Canary(t, canary)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if isZip {
		_, err = Zip(t.Context(), root, bytes.NewReader(archive), int64(len(archive)), o)
	} else {
		_, err = Tar(t.Context(), root, bytes.NewReader(archive), o)
	}
	unchanged()
	if e, err := os.ReadDir(base); err != nil || len(e) != 2 {
		t.Errorf("outside: %v %v", e, err)
	}
	if _, err := os.Lstat("/tmp/escaped-by-a-test"); err == nil {
		t.Error("something escaped to /tmp")
		os.Remove("/tmp/escaped-by-a-test")
	}
	checkLeft(t, root, o.InUse || err == nil)
	return dir, err
}

// checkLeft: nothing that is left may have rights it was not given or, where it stays, lead out.
func checkLeft(t testing.TB, root *os.Root, stays bool) {
	t.Helper()
	// Not fs.WalkDir, which takes no names that are not UTF-8.
	if err := filepath.WalkDir(root.Name(), func(p string, _ fs.DirEntry, err error) error {
		if err == nil {
			p, err = filepath.Rel(root.Name(), p)
		}
		if err != nil {
			return err
		}
		st, err := root.Lstat(p)
		if err != nil {
			return err
		}
		if st.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			t.Errorf("%s: mode %v", p, st.Mode())
		}
		if _, err := root.Stat(p); stays && err != nil && strings.Contains(err.Error(), "escapes") {
			t.Errorf("%s leads out: %v", p, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func want(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	st, err := os.Stat(path)
	if err != nil || string(b) != text || mode != 0 && st.Mode() != mode {
		t.Errorf("%s: %q %s %v", path, b, st.Mode(), err)
	}
}

func options(inUse bool) Options {
	return Options{Owner: Self, MaxFiles: 5, MaxBytes: 100_000, InUse: inUse}
}

func TestHonest(t *testing.T) {
	t.Parallel()
	entries := []at.Entry{
		{Name: "./app/", Type: tar.TypeDir, Mode: 0o555}, {Name: "./app/start.sh", Body: "#!/bin/sh\n", Mode: 0o4755},
		{Name: "deep/er/file", Body: "x", Mode: 0o640}, {Name: "app/start.sh", Body: "#!second\n", Mode: 0o6750},
		{Name: "app/link", Type: tar.TypeSymlink, Link: "../deep/er/file"}, {Name: "app/dangling", Type: tar.TypeSymlink, Link: "nowhere"},
	}
	for _, inUse := range []bool{false, true} {
		o := options(inUse)
		o.MaxFiles = 10
		for _, isZip := range []bool{false, true} {
			entries := entries
			if !inUse {
				entries = []at.Entry{entries[0], entries[2], {Name: "app/start.sh", Body: "#!second\n", Mode: 0o1750}, entries[4], entries[5], entries[0]}
			}
			b := at.Tar(t, append(slices.Clone(entries), at.Entry{Name: "hard", Type: tar.TypeLink, Link: "deep/er/file"})...)
			if isZip {
				b = at.Zip(t, append(slices.Clone(entries[1:]), at.Entry{Name: "bare", Body: "x"})...)
			}
			dir, err := unpackInto(t, b, isZip, o)
			if err != nil {
				t.Errorf("in use %v, zip %v: %v", inUse, isZip, err)
				continue
			}
			want(t, dir+"/app/start.sh", "#!second\n", 0o750)
			want(t, dir+"/app/link", "x", 0o640)
			if isZip {
				want(t, dir+"/bare", "x", 0o644)
				continue
			}
			want(t, dir+"/hard", "x", 0)
			if st, err := os.Stat(dir + "/app"); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("directory: %v %v", st, err)
			}
		}
	}
}

func TestHostile(t *testing.T) {
	t.Parallel()
	for _, inUse := range []bool{false, true} {
		for what, archive := range at.HostileTars(t) {
			if _, err := unpackInto(t, archive, false, options(inUse)); !errors.Is(err, ErrHostile) {
				t.Errorf("tar, in use %v, %s: accepted, or refused for another reason: %v", inUse, what, err)
			}
		}
		for what, archive := range at.HostileZips(t) {
			if _, err := unpackInto(t, archive, true, options(inUse)); !errors.Is(err, ErrHostile) {
				t.Errorf("zip, in use %v, %s: accepted, or refused for another reason: %v", inUse, what, err)
			}
		}
	}
}

func TestOnlyFresh(t *testing.T) {
	t.Parallel()
	for what, archive := range at.OnlyFresh(t) {
		if _, err := unpackInto(t, archive, false, options(false)); !errors.Is(err, ErrHostile) {
			t.Errorf("%s: accepted, or refused for another reason: %v", what, err)
		}
		if _, err := unpackInto(t, archive, false, options(true)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	zips := map[string][]byte{
		"twice":  at.Zip(t, at.Entry{Name: "a", Body: "1"}, at.Entry{Name: "a", Body: "2"}),
		"setuid": at.Zip(t, at.Entry{Name: "a", Body: "1", Mode: 0o4755}),
	}
	for what, archive := range zips {
		if _, err := unpackInto(t, archive, true, options(false)); !errors.Is(err, ErrHostile) {
			t.Errorf("zip, %s: accepted, or refused for another reason: %v", what, err)
		}
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	o := options(false)
	o.MaxBytes, o.Packed, o.MaxRatio = 1<<30, 1<<20, 100
	archive := at.Tar(t, at.Entry{Name: "zeros", Body: strings.Repeat("\x00", 129<<20)})
	if _, err := unpackInto(t, archive, false, o); !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), "more than 100 times its size") {
		t.Errorf("%v", err)
	}
	o.Packed = 2 << 20
	var last int64
	entries := 0
	o.Progress = func(files int, n int64) { entries, last = files, n }
	if _, err := unpackInto(t, archive, false, o); err != nil || last != 129<<20 || entries != 1 {
		t.Errorf("%v, %d entries, %d bytes", err, entries, last)
	}
}

func TestEntriesBelowLinks(t *testing.T) {
	t.Parallel()
	for what, archive := range at.BelowLinks(t) {
		if _, err := unpackInto(t, archive, false, options(false)); !errors.Is(err, ErrHostile) {
			t.Errorf("%s: accepted, or refused for another reason: %v", what, err)
		}
		dir, err := unpackInto(t, archive, false, options(true))
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		want(t, dir+"/l/x", "x", 0)
	}
}

func TestLinksBackAreJudgedByUse(t *testing.T) {
	t.Parallel()
	// It stays inside, but only following it tells.
	archive := at.Tar(t, at.Entry{Name: "a/b/f", Body: "x"}, at.Entry{Name: "l", Type: tar.TypeSymlink, Link: "a/b/../b/f"})
	if _, err := unpackInto(t, archive, false, options(false)); err != nil {
		t.Error(err)
	}
	if _, err := unpackInto(t, archive, false, options(true)); !errors.Is(err, ErrHostile) {
		t.Errorf("in use: %v", err)
	}
}

func TestBroken(t *testing.T) {
	t.Parallel()
	whole := at.Tar(t, at.Entry{Name: "a", Body: strings.Repeat("abc", 10_000)})
	if _, err := unpackInto(t, whole[:len(whole)/2], false, options(false)); err == nil || !strings.Contains(err.Error(), "not a whole tar archive") {
		t.Errorf("cut: %v", err)
	}
	if _, err := unpackInto(t, []byte("PK nonsense"), true, options(false)); err == nil || !strings.Contains(err.Error(), "not a whole zip archive") {
		t.Errorf("nonsense: %v", err)
	}
}

func FuzzTar(f *testing.F) { fuzz(f, false, at.HostileTars(f)) }

func FuzzZip(f *testing.F) { fuzz(f, true, at.HostileZips(f)) }

func fuzz(f *testing.F, isZip bool, seeds map[string][]byte) {
	f.Helper()
	pack := at.Tar
	if isZip {
		pack = at.Zip
	}
	seeds["honest"] = pack(f, at.Entry{Name: "a/b", Body: "x"}, at.Entry{Name: "a/l", Type: tar.TypeSymlink, Link: "b"})
	for _, b := range seeds {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, inUse bool) {
		o := options(inUse)
		o.MaxFiles, o.MaxBytes = 50, 1<<20
		_, _ = unpackInto(t, b, isZip, o)
	})
}
