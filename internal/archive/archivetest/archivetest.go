// Package archivetest makes archives for tests, honest ones and a collection of
// hostile ones that everything which unpacks archives must refuse. It is for
// tests only and must never be imported by a program.
package archivetest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Entry is one entry. Type is one of the tar package's, zero for a file; Mode zero is 0644.
type Entry struct {
	Name, Link, Body string
	Type             byte
	Mode             int64
}

// Tar makes a tar archive.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.Type == 0 {
			e.Type = tar.TypeReg
		}
		if e.Mode == 0 {
			e.Mode = 0o644
		}
		h := &tar.Header{Name: e.Name, Linkname: e.Link, Typeflag: e.Type, Mode: e.Mode, Size: int64(len(e.Body)), Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.Body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Zip makes a zip archive. A Mode of zero stays zero.
func Zip(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.Name, Method: zip.Deflate}
		h.SetMode(fs.FileMode(e.Mode)&0o777 | special(e.Mode))
		body := e.Body
		switch e.Type {
		case tar.TypeSymlink:
			h.SetMode(0o777 | fs.ModeSymlink)
			body = e.Link
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

// special are the setuid, setgid and sticky bits as package fs has them.
func special(mode int64) (m fs.FileMode) {
	for bit, is := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= is
		}
	}
	return m
}

// Gzip compresses.
func Gzip(t testing.TB, b []byte) []byte {
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

// Canary makes a small tree beside what is unpacked and returns a check that
// nothing in it has changed: names, kinds, modes, owners, times, links and content.
func Canary(t testing.TB, dir string) (check func()) {
	t.Helper()
	for _, d := range []string{dir, filepath.Join(dir, "sub")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "canary"), []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("canary", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	before := sum(t, dir)
	return func() {
		t.Helper()
		if after := sum(t, dir); after != before {
			t.Errorf("the canary tree has changed:\n%s\nwas:\n%s", after, before)
		}
	}
}

// sum describes a tree, one line for each name.
func sum(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no stat", path)
		}
		var content [sha256.Size]byte
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = sha256.Sum256(b)
		}
		fmt.Fprintf(&all, "%s %s %d:%d %d links, changed %v, %x\n", path, st.Mode(), sys.Uid, sys.Gid, sys.Nlink, sys.Ctim, content[:8])
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return all.String()
}

const (
	link = tar.TypeSymlink
	hard = tar.TypeLink
	dir  = tar.TypeDir
)

// HostileTars are tar archives that must be refused by what takes at most 5
// entries and 100 000 bytes. Those who escape write or link to "canary", beside
// the directory that is unpacked into, or to what is below it.
func HostileTars(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for what, entries := range map[string][]Entry{
		"dotdot":             {{Name: "../canary", Body: "dead"}},
		"dotdot inside":      {{Name: "a/../../canary", Body: "dead"}},
		"absolute":           {{Name: "/tmp/escaped-by-a-test", Body: "dead"}},
		"no name":            {{Name: "", Body: "x"}},
		"dotdot to canary":   {{Name: "../canary/sub/canary", Body: "dead"}},
		"hard link canary":   {{Name: "h", Type: hard, Link: "../canary/canary"}, {Name: "h", Body: "dead"}},
		"link to canary":     {{Name: "l", Type: link, Link: "../canary"}, {Name: "l/sub/new", Body: "dead"}},
		"link absolute":      {{Name: "l", Type: link, Link: "/etc"}, {Name: "l/x", Body: "dead"}},
		"link alone":         {{Name: "l", Type: link, Link: "/tmp"}},
		"link out":           {{Name: "l", Type: link, Link: ".."}, {Name: "l/canary", Body: "dead"}},
		"link out deep":      {{Name: "a/l", Type: link, Link: "../../canary"}},
		"link chain":         {{Name: "x/y/", Type: dir}, {Name: "x/y/d", Type: link, Link: "../.."}, {Name: "e", Type: link, Link: "x/y/d/../canary"}},
		"link climbs later":  {{Name: "d", Type: link, Link: "."}, {Name: "y", Type: link, Link: "d/.."}},
		"link in link":       {{Name: "s/", Type: dir}, {Name: "s/d", Type: link, Link: ".."}, {Name: "s/d/y", Type: link, Link: "../../canary"}},
		"moved by hard link": {{Name: "s/d/", Type: dir}, {Name: "s/d/y", Type: link, Link: "../../x"}, {Name: "y", Type: hard, Link: "s/d/y"}},
		"file over link":     {{Name: "l", Type: link, Link: "../canary"}, {Name: "l", Body: "dead"}},
		"hard link out":      {{Name: "h", Type: hard, Link: "../canary"}, {Name: "h", Body: "dead"}},
		"hard link far out":  {{Name: "h", Type: hard, Link: "../../../../../etc/passwd"}},
		"hard link absolute": {{Name: "h", Type: hard, Link: "/etc/passwd"}},
		"hard link to link":  {{Name: "l", Type: link, Link: "x"}, {Name: "h", Type: hard, Link: "l"}},
		"device":             {{Name: "d", Type: tar.TypeChar}},
		"block":              {{Name: "d", Type: tar.TypeBlock}},
		"fifo":               {{Name: "d", Type: tar.TypeFifo}},
		"root as file":       {{Name: ".", Body: "x"}},
		"file over dir":      {{Name: "d/x", Body: "x"}, {Name: "d", Body: "x"}},
		"below a file":       {{Name: "f", Body: "x"}, {Name: "f/x", Body: "x"}},
		"deep":               {{Name: strings.Repeat("a/", 200) + "x", Body: "x"}},
		"many":               {{Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}, {Name: "5"}, {Name: "6"}},
		"big":                {{Name: "1", Body: strings.Repeat("x", 200_000)}},
	} {
		out[what] = Tar(t, entries...)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range 2000 {
		h := &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": strings.Repeat("x", 500)}}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out["nothing but headers"] = b.Bytes()
	maps.Copy(out, moreTars(t))
	return out
}

// BelowLinks are tar archives whose entries lie below a link of their own that
// stays inside: to be refused in a fresh directory, harmless in one in use.
func BelowLinks(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"through a link": Tar(t, Entry{Name: "d/", Type: dir}, Entry{Name: "l", Type: link, Link: "d"}, Entry{Name: "l/x", Body: "x"}),
		"dir over link":  Tar(t, Entry{Name: "l", Type: link, Link: "."}, Entry{Name: "l/", Type: dir}, Entry{Name: "l/x", Body: "x"}),
	}
}

// OnlyFresh are tar archives that must be refused in a fresh directory; in one
// in use the last entry of a name counts, and the bits are dropped.
func OnlyFresh(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"file twice":       Tar(t, Entry{Name: "a", Body: "1"}, Entry{Name: "./a", Body: "2"}),
		"file over a link": Tar(t, Entry{Name: "l", Type: link, Link: "a"}, Entry{Name: "l", Body: "2"}),
		"hard link twice":  Tar(t, Entry{Name: "a", Body: "1"}, Entry{Name: "b"}, Entry{Name: "b", Type: hard, Link: "a"}),
		"setuid":           Tar(t, Entry{Name: "a", Body: "1", Mode: 0o4755}),
		"setgid":           Tar(t, Entry{Name: "a", Body: "1", Mode: 0o2755}),
	}
}

// HostileZips are HostileTars for zip archives.
func HostileZips(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{
		"dotdot":   Zip(t, Entry{Name: "../canary", Body: "dead"}),
		"absolute": Zip(t, Entry{Name: "/tmp/escaped-by-a-test", Body: "dead"}),
		"link out": Zip(t, Entry{Name: "l", Type: link, Link: "../canary"}),
		"via link": Zip(t, Entry{Name: "l", Type: link, Link: ".."}, Entry{Name: "l/x", Body: "x"}),
		"below":    Zip(t, Entry{Name: "f", Body: "x"}, Entry{Name: "f/x", Body: "x"}),
		"backward": Zip(t, Entry{Name: `..\..\canary`, Body: "dead"}, Entry{Name: "../canary", Body: "dead"}),
		"fifo":     Zip(t, Entry{Name: "p", Type: tar.TypeFifo}),
		"big":      Zip(t, Entry{Name: "z", Body: strings.Repeat("\x00", 200_000)}),
		"many":     Zip(t, Entry{Name: "1"}, Entry{Name: "2"}, Entry{Name: "3"}, Entry{Name: "4"}, Entry{Name: "5"}, Entry{Name: "6"}),
	}
	maps.Copy(out, moreZips(t))
	return out
}
