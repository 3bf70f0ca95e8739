package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestZipsMadeElsewhere: archives of systems that know no users say nothing of who may write. Go's
// zip package, as the manual of the format has it, takes that for everybody.
func TestZipsMadeElsewhere(t *testing.T) {
	t.Parallel()
	const fat, ntfs = 0, 11
	for _, system := range []uint16{fat, ntfs} {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, name := range []string{"plain.txt", `win\dows\a.txt`, "dir/"} {
			e, err := w.CreateHeader(&zip.FileHeader{Name: name, CreatorVersion: system<<8 | 20})
			if err != nil {
				t.Fatal(err)
			}
			if name[len(name)-1] == '/' {
				continue
			}
			if _, err := e.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir, err := unpackInto(t, b.Bytes(), true, options(false))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]os.FileMode{"plain.txt": 0o644, "win/dows/a.txt": 0o644, "dir": os.ModeDir | 0o755} {
			if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode() != want {
				t.Errorf("system %d, %s: %v %v, want %v", system, name, st, err, want)
			}
		}
	}
	// What leads out with backslashes is refused as with slashes; with modes, they are part of a name.
	for name, system := range map[string]uint16{`..\..\x`: fat, `a\..\..\x`: ntfs} {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		if _, err := w.CreateHeader(&zip.FileHeader{Name: name, CreatorVersion: system << 8}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := unpackInto(t, b.Bytes(), true, options(false)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestEntriesOfGNUTar: the label of an archive is no file, and a directory of an incremental one
// is a directory.
func TestEntriesOfGNUTar(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "backup of july", Typeflag: 'V', Format: tar.FormatGNU},
		{Name: "etc/", Typeflag: 'D', Mode: 0o750, Size: 4, Format: tar.FormatGNU},
		{Name: "etc/a", Typeflag: tar.TypeReg, Mode: 0o640, Size: 4, Format: tar.FormatGNU},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("Ya\x00\x00")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir, err := unpackInto(t, b.Bytes(), false, options(false))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(dir, "etc")); err != nil || st.Mode() != os.ModeDir|0o750 {
		t.Errorf("%v %v", st, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}
