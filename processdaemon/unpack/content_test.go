package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"tandem/internal/archive/archivetest"
)

// unpackInto unpacks below a directory with a canary beside it, and checks
// that nothing outside has changed.
func unpackInto(t testing.TB, name string, archive []byte, j Job) (string, error) {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unchanged := archivetest.Canary(t, filepath.Join(base, "canary"))
	blob := filepath.Join(base, "blob")
	if err := os.WriteFile(blob, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(blob)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	j.Name = name
	if j.MaxBytes == 0 {
		j.MaxBytes, j.MaxFiles = 1<<30, 1000
	}
	err = content(context.Background(), f, root, &j, func(Progress) {})
	unchanged()
	if e, _ := os.ReadDir(base); len(e) != 3 {
		t.Errorf("outside: %v", e)
	}
	// Nothing that is left may lead out or have rights it was not given.
	if walkErr := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err == nil {
			p, err = filepath.Rel(dir, p)
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
		return nil
	}); walkErr != nil {
		t.Error(walkErr)
	}
	return dir, err
}

func TestHonestArchives(t *testing.T) {
	t.Parallel()
	entries := []archivetest.Entry{
		{Name: "./app/", Type: tar.TypeDir, Mode: 0o555}, {Name: "./app/start.sh", Body: "#!second\n", Mode: 0o755},
		{Name: "deep/er/file", Body: "x"},
		{Name: "app/link", Type: tar.TypeSymlink, Link: "../deep/er/file"}, {Name: "app/dangling", Type: tar.TypeSymlink, Link: "nowhere"},
	}
	plainTar := archivetest.Tar(t, append(entries, archivetest.Entry{Name: "hard", Type: tar.TypeLink, Link: "deep/er/file"})...)
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, archive := range map[string][]byte{
		"a.tar": plainTar, "a.tar.gz": archivetest.Gzip(t, plainTar), "A.TGZ": archivetest.Gzip(t, plainTar), "a.tar.zst": zw.EncodeAll(plainTar, nil),
		"a.tar.xz": xzOf(t, plainTar), "a.TXZ": xzOf(t, plainTar),
		"a.zip": archivetest.Zip(t, entries[1:]...),
	} {
		dir, err := unpackInto(t, name, archive, Job{})
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
	dir, err := unpackInto(t, "app.jar", archivetest.Zip(t, entries[1]), Job{})
	if e, _ := os.ReadDir(dir); err != nil || len(e) != 1 || e[0].Name() != "app.jar" {
		t.Errorf("%v %v", e, err)
	}
}

// xzOf compresses as xz does.
func xzOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileTars(t *testing.T) {
	t.Parallel()
	all := archivetest.HostileTars(t)
	maps.Copy(all, archivetest.BelowLinks(t))
	maps.Copy(all, archivetest.OnlyFresh(t))
	for what, archive := range all {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if _, err := unpackInto(t, "a.tar.gz", archivetest.Gzip(t, archive), Job{MaxFiles: 5, MaxBytes: 100_000}); !errors.Is(err, ErrHostile) {
				t.Errorf("accepted, or refused for another reason: %v", err)
			}
		})
	}
}

func TestHostileZips(t *testing.T) {
	t.Parallel()
	for what, archive := range archivetest.HostileZips(t) {
		if _, err := unpackInto(t, "a.zip", archive, Job{MaxFiles: 5, MaxBytes: 100_000}); !errors.Is(err, ErrHostile) {
			t.Errorf("%s: accepted, or refused for another reason: %v", what, err)
		}
	}
}

func TestBrokenArchivesAreNamed(t *testing.T) {
	t.Parallel()
	whole := archivetest.Gzip(t, archivetest.Tar(t, archivetest.Entry{Name: "a", Body: strings.Repeat("abc", 10_000)}))
	for what, c := range map[string]struct {
		name string
		b    []byte
		want string
	}{
		"html":      {"a.tar.gz", []byte("<html>not found</html>"), "not a whole gzip file"},
		"cut":       {"a.tar.gz", whole[:len(whole)/2], "not a whole tar archive"},
		"empty tar": {"a.tar", archivetest.Tar(t), "empty"},
		"zero":      {"a.tar", nil, "empty"},
		"zip":       {"a.zip", []byte("PK nonsense"), "not a whole zip archive"},
		"xz":        {"a.tar.xz", []byte("<html>not found</html>"), "not a whole xz file"},
		"zst":       {"a.tar.zst", []byte("nonsense"), "not a whole tar archive"},
	} {
		if _, err := unpackInto(t, c.name, c.b, Job{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	for _, b := range archivetest.HostileTars(f) {
		f.Add(b, false)
	}
	f.Add(archivetest.Tar(f, archivetest.Entry{Name: "a/b", Body: "x"}, archivetest.Entry{Name: "a/l", Type: tar.TypeSymlink, Link: "b"}), false)
	f.Add(archivetest.Zip(f, archivetest.Entry{Name: "a/b", Body: "x"}, archivetest.Entry{Name: "l", Type: tar.TypeSymlink, Link: "a/b"}), true)
	f.Fuzz(func(t *testing.T, archive []byte, isZip bool) {
		name := "a.tar"
		if isZip {
			name = "a.zip"
		}
		_, _ = unpackInto(t, name, archive, Job{MaxFiles: 50, MaxBytes: 1 << 20})
	})
}

// FuzzCompressed: whatever a compressed archive is. Files of xz are left out, for the
// memory that they may ask for is bounded by the child's limits alone.
func FuzzCompressed(f *testing.F) {
	names := []string{"a.tar.gz", "a.tar.bz2", "a.tar.zst"}
	whole := archivetest.Tar(f, archivetest.Entry{Name: "a/b", Body: "x"}, archivetest.Entry{Name: "a/l", Type: tar.TypeSymlink, Link: "b"})
	f.Add(archivetest.Gzip(f, whole), uint8(0))
	f.Add(append(archivetest.Gzip(f, whole[:100]), archivetest.Gzip(f, whole[100:])...), uint8(0))
	f.Add(append(archivetest.Gzip(f, whole), "behind"...), uint8(0))
	f.Add(odd(f, "pax-sparse.tar.gz"), uint8(0))
	f.Add(odd(f, "streams.tar.bz2"), uint8(1))
	f.Add(odd(f, "frames.tar.zst"), uint8(2))
	f.Fuzz(func(t *testing.T, archive []byte, kind uint8) {
		_, _ = unpackInto(t, names[int(kind)%len(names)], archive, Job{MaxFiles: 50, MaxBytes: 1 << 20})
	})
}
