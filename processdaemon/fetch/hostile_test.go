package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

type ent struct {
	name, link, body string
	typ              byte
	mode             int64
}

func tarOf(t testing.TB, entries ...ent) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body)), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t testing.TB, entries ...ent) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(fs.FileMode(e.mode) & 0o777)
		body := e.body
		switch e.typ {
		case tar.TypeSymlink:
			h.SetMode(0o777 | fs.ModeSymlink)
			body = e.link
		case tar.TypeFifo:
			h.SetMode(fs.ModeNamedPipe | 0o644)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpackInto unpacks below a directory with a canary beside it, and checks
// that nothing outside has changed.
func unpackInto(t testing.TB, name string, archive []byte, l Limits) (string, error) {
	t.Helper()
	l.defaults()
	base := t.TempDir()
	dir := filepath.Join(base, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(base, "canary")
	put(t, canary, "alive")
	blob := filepath.Join(base, "blob")
	if err := os.WriteFile(blob, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = unpack(context.Background(), blob, name, root, nobody, l)
	want(t, canary, "alive")
	if e, _ := os.ReadDir(base); len(e) != 3 {
		t.Errorf("outside: %v", e)
	}
	// Nothing that is left may lead out or have rights it was not given.
	if walkErr := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
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
		return nil
	}); walkErr != nil {
		t.Error(walkErr)
	}
	return dir, err
}

func TestHonestArchives(t *testing.T) {
	t.Parallel()
	entries := []ent{
		{name: "./app/", typ: tar.TypeDir, mode: 0o555}, {name: "./app/start.sh", body: "#!/bin/sh\n", mode: 0o4755},
		{name: "deep/er/file", body: "x"}, {name: "app/start.sh", body: "#!second\n", mode: 0o755},
		{name: "app/link", typ: tar.TypeSymlink, link: "../deep/er/file"}, {name: "app/dangling", typ: tar.TypeSymlink, link: "nowhere"},
	}
	plainTar := tarOf(t, append(entries, ent{name: "hard", typ: tar.TypeLink, link: "deep/er/file"})...)
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, archive := range map[string][]byte{
		"a.tar": plainTar, "a.tar.gz": gz(t, plainTar), "A.TGZ": gz(t, plainTar), "a.tar.zst": zw.EncodeAll(plainTar, nil),
		"a.zip": zipOf(t, entries[1:]...),
	} {
		dir, err := unpackInto(t, name, archive, Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want(t, filepath.Join(dir, "app/start.sh"), "#!second\n")
		want(t, filepath.Join(dir, "app/link"), "x")
		if name != "a.zip" {
			want(t, filepath.Join(dir, "hard"), "x")
		}
		if st, err := os.Stat(filepath.Join(dir, "app/start.sh")); err != nil || st.Mode() != 0o755 {
			t.Errorf("%s: %v %v", name, st.Mode(), err)
		}
	}
	// Other names are files, whatever is in them.
	dir, err := unpackInto(t, "app.jar", zipOf(t, entries[1]), Limits{})
	if e, _ := os.ReadDir(dir); err != nil || len(e) != 1 || e[0].Name() != "app.jar" {
		t.Errorf("%v %v", e, err)
	}
}

func hostileTars(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"dotdot":             tarOf(t, ent{name: "../canary", body: "dead"}),
		"dotdot inside":      tarOf(t, ent{name: "a/../../canary", body: "dead"}),
		"absolute":           tarOf(t, ent{name: "/tmp/x", body: "dead"}),
		"link absolute":      tarOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "/etc"}, ent{name: "l/x", body: "dead"}),
		"link out":           tarOf(t, ent{name: "l", typ: tar.TypeSymlink, link: ".."}, ent{name: "l/canary", body: "dead"}),
		"link out deep":      tarOf(t, ent{name: "a/l", typ: tar.TypeSymlink, link: "../../canary"}),
		"through a link":     tarOf(t, ent{name: "d/", typ: tar.TypeDir}, ent{name: "l", typ: tar.TypeSymlink, link: "d"}, ent{name: "l/x", body: "x"}),
		"link chain":         tarOf(t, ent{name: "x/y/", typ: tar.TypeDir}, ent{name: "x/y/d", typ: tar.TypeSymlink, link: "../.."}, ent{name: "e", typ: tar.TypeSymlink, link: "x/y/d/../canary"}),
		"file over link":     tarOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "../canary"}, ent{name: "l", body: "dead"}),
		"hard link out":      tarOf(t, ent{name: "h", typ: tar.TypeLink, link: "../canary"}, ent{name: "h", body: "dead"}),
		"hard link absolute": tarOf(t, ent{name: "h", typ: tar.TypeLink, link: "/etc/passwd"}),
		"hard link to link":  tarOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "x"}, ent{name: "h", typ: tar.TypeLink, link: "l"}),
		"device":             tarOf(t, ent{name: "d", typ: tar.TypeChar}),
		"block":              tarOf(t, ent{name: "d", typ: tar.TypeBlock}),
		"fifo":               tarOf(t, ent{name: "d", typ: tar.TypeFifo}),
		"root as file":       tarOf(t, ent{name: ".", body: "x"}),
		"dir over link":      tarOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "."}, ent{name: "l/", typ: tar.TypeDir}, ent{name: "l/x", body: "x"}),
		"file over dir":      tarOf(t, ent{name: "d/x", body: "x"}, ent{name: "d", body: "x"}),
		"below a file":       tarOf(t, ent{name: "f", body: "x"}, ent{name: "f/x", body: "x"}),
		"deep":               tarOf(t, ent{name: strings.Repeat("a/", 200) + "x", body: "x"}),
		"many":               tarOf(t, ent{name: "1"}, ent{name: "2"}, ent{name: "3"}, ent{name: "4"}, ent{name: "5"}, ent{name: "6"}),
		"big":                tarOf(t, ent{name: "1", body: strings.Repeat("x", 200_000)}),
	}
}

func TestHostileTars(t *testing.T) {
	t.Parallel()
	for what, archive := range hostileTars(t) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if _, err := unpackInto(t, "a.tar.gz", gz(t, archive), Limits{MaxFiles: 5, MaxUnpacked: 100_000}); !errors.Is(err, ErrHostile) {
				t.Errorf("accepted, or refused for another reason: %v", err)
			}
		})
	}
}

func TestHostileZips(t *testing.T) {
	t.Parallel()
	for what, archive := range map[string][]byte{
		"dotdot":   zipOf(t, ent{name: "../canary", body: "dead"}),
		"absolute": zipOf(t, ent{name: "/tmp/x", body: "dead"}),
		"link out": zipOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "../canary"}),
		"via link": zipOf(t, ent{name: "l", typ: tar.TypeSymlink, link: "."}, ent{name: "l/x", body: "x"}),
		"fifo":     zipOf(t, ent{name: "p", typ: tar.TypeFifo}),
		"big":      zipOf(t, ent{name: "z", body: strings.Repeat("\x00", 200_000)}),
		"many":     zipOf(t, ent{name: "1"}, ent{name: "2"}, ent{name: "3"}, ent{name: "4"}, ent{name: "5"}, ent{name: "6"}),
	} {
		if _, err := unpackInto(t, "a.zip", archive, Limits{MaxFiles: 5, MaxUnpacked: 100_000}); !errors.Is(err, ErrHostile) {
			t.Errorf("%s: accepted, or refused for another reason: %v", what, err)
		}
	}
}

// TestHeaderBomb: an archive that is nothing but headers is bounded too.
func TestHeaderBomb(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range 2000 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": strings.Repeat("x", 500)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	if _, err := unpackInto(t, "a.tar.gz", gz(t, b.Bytes()), Limits{MaxUnpacked: 100_000}); !errors.Is(err, ErrHostile) {
		t.Error(err)
	}
}

func TestBrokenArchivesAreNamed(t *testing.T) {
	t.Parallel()
	whole := gz(t, tarOf(t, ent{name: "a", body: strings.Repeat("abc", 10_000)}))
	for what, c := range map[string]struct {
		name string
		b    []byte
		want string
	}{
		"html":      {"a.tar.gz", []byte("<html>not found</html>"), "not a whole gzip file"},
		"cut":       {"a.tar.gz", whole[:len(whole)/2], "not a whole tar archive"},
		"empty tar": {"a.tar", tarOf(t), "empty"},
		"zero":      {"a.tar", nil, "empty"},
		"zip":       {"a.zip", []byte("PK nonsense"), "not a whole zip archive"},
		"zst":       {"a.tar.zst", []byte("nonsense"), "not a whole tar archive"},
	} {
		if _, err := unpackInto(t, c.name, c.b, Limits{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for _, b := range hostileTars(f) {
		f.Add(b, false)
	}
	f.Add(tarOf(f, ent{name: "a/b", body: "x"}, ent{name: "a/l", typ: tar.TypeSymlink, link: "b"}), false)
	f.Add(zipOf(f, ent{name: "a/b", body: "x"}, ent{name: "l", typ: tar.TypeSymlink, link: "a/b"}), true)
	f.Fuzz(func(t *testing.T, archive []byte, isZip bool) {
		name := "a.tar"
		if isZip {
			name = "a.zip"
		}
		_, _ = unpackInto(t, name, archive, Limits{MaxFiles: 50, MaxUnpacked: 1 << 20})
	})
}
