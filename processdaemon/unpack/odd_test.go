package unpack

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/archive/archivetest"
)

func odd(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/odd", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOddArchives: made by GNU tar, xz, zstd, bzip2, Info-ZIP and Python as their users have
// them made.
func TestOddArchives(t *testing.T) {
	t.Parallel()
	hole := "begin" + strings.Repeat("\x00", 1048000-5) + "end" + strings.Repeat("\x00", 1<<20-1048003)
	prog, closed := map[string]string{"prog": "#!/bin/sh\n"}, map[string]string{"prog": "#!/bin/sh\n", "closed/sub/f": "x"}
	for name, files := range map[string]map[string]string{
		"gnu-sparse.tar.gz": {"hole": hole}, "pax-sparse.tar.gz": {"hole": hole},
		"pax-xattrs.tar.gz": closed, "v7.tar.gz": closed,
		"streams.tar.xz": prog, "frames.tar.zst": prog, "streams.tar.bz2": prog,
		"zip64.zip": {"dir/prog": "#!/bin/sh\n"}, "zip64-directory.zip": prog, "streamed.zip": prog,
	} {
		dir, err := unpackInto(t, name, odd(t, name), Job{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for file, content := range files {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || string(b) != content {
				t.Errorf("%s: %s: %d bytes, %v", name, file, len(b), err)
			}
		}
		if _, err := unix.Getxattr(filepath.Join(dir, "prog"), "security.capability", make([]byte, 100)); err == nil {
			t.Errorf("%s: a capability came with it", name)
		}
		if st, err := os.Stat(filepath.Join(dir, "closed/sub")); err == nil && st.Mode() != fs.ModeDir|0o755 {
			t.Errorf("%s: closed/sub has the mode %v: nobody could remove it", name, st.Mode())
		}
	}
	for name, want := range map[string]string{
		"encrypted.zip": `"prog" is encrypted; make the archive without a password`, "encrypted-stored.zip": "is encrypted",
		"bzip2.zip": `"prog" is compressed in a way that is not supported (method 12 of zip archives)`, "lzma.zip": "method 14",
		"window.tar.zst": "make it with a smaller window",
	} {
		if _, err := unpackInto(t, name, odd(t, name), Job{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestEndOfACompressedArchive: its checksum is compared; what is behind it is of no account.
func TestEndOfACompressedArchive(t *testing.T) {
	t.Parallel()
	whole := archivetest.Tar(t, archivetest.Entry{Name: "prog", Body: "#!/bin/sh\n"}, archivetest.Entry{Name: "b", Body: strings.Repeat("b", 5000)})
	zipped := archivetest.Gzip(t, whole)
	changed := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[len(b)-at] ^= 1
		return b
	}
	for what, c := range map[string]struct {
		name string
		b    []byte
		want string
	}{
		"members":        {"a.tar.gz", append(archivetest.Gzip(t, whole[:700]), archivetest.Gzip(t, whole[700:])...), ""},
		"behind gzip":    {"a.tar.gz", append(bytes.Clone(zipped), "signature"...), ""},
		"zeros":          {"a.tar.gz", append(bytes.Clone(zipped), make([]byte, 600)...), ""},
		"behind bzip2":   {"a.tar.bz2", append(odd(t, "streams.tar.bz2"), "signature"...), ""},
		"behind tar":     {"a.tar", append(bytes.Clone(whole), "signature"...), ""},
		"wrong checksum": {"a.tar.gz", changed(zipped, 8), "not a whole compressed file, although its name says so: gzip: invalid checksum"},
		"wrong length":   {"a.tar.gz", changed(zipped, 4), "not a whole compressed file"},
		"no checksum":    {"a.tar.gz", zipped[:len(zipped)-8], "not a whole compressed file"},
		"wrong xz":       {"a.tar.xz", changed(odd(t, "streams.tar.xz"), 20), "not a whole"},
		"wrong zstd":     {"a.tar.zst", changed(odd(t, "frames.tar.zst"), 1), "not a whole compressed file"},
		"endless":        {"a.tar.gz", archivetest.Gzip(t, append(bytes.Clone(whole), make([]byte, 1<<20)...)), "behind the end of the archive"},
	} {
		_, err := unpackInto(t, c.name, c.b, Job{MaxFiles: 10, MaxBytes: 100_000})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestLongNames: as long as file systems take them, in every format; longer ones are named.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("d", 255) + "/" + strings.Repeat("e", 255) + "/" + strings.Repeat("f", 255)
	for name, b := range map[string][]byte{
		"a.tar": archivetest.Tar(t, archivetest.Entry{Name: long, Body: "x"}),
		"a.zip": archivetest.Zip(t, archivetest.Entry{Name: long, Body: "x"}),
	} {
		dir, err := unpackInto(t, name, b, Job{})
		if err != nil {
			t.Error(err)
		}
		want(t, filepath.Join(dir, long), "x")
	}
	if _, err := unpackInto(t, "a.tar", archivetest.Tar(t, archivetest.Entry{Name: long + "f", Body: "x"}), Job{}); err == nil || !strings.Contains(err.Error(), "file name too long") {
		t.Error(err)
	}
}
