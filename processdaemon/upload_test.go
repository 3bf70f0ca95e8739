package processdaemon

import (
	"os"
	"path/filepath"
	"testing"

	"tandem/internal/atomicfile"
)

// TestUnfinishedUploadIsRemoved: by the next daemon, and nothing else is by a note that
// says otherwise.
func TestUnfinishedUploadIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), atomicfile.TempPrefix+"x")
	work := filepath.Join(dir, "work")
	write(t, filepath.Join(work, "sub", atomicfile.TempPrefix+"1"), "half", 0o600)
	write(t, filepath.Join(work, "conf"), "mine", 0o600)
	write(t, outside, "sings", 0o600)
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(work, "out")); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{store: &store{dir: dir}}
	for _, file := range []string{"sub/" + atomicfile.TempPrefix + "1", "conf", "out/" + atomicfile.TempPrefix + "x", "../../" + filepath.Base(outside), "none/" + atomicfile.TempPrefix + "y"} {
		if err := d.noteUpload(work, file); err != nil {
			t.Fatal(err)
		}
		_ = d.forgetUpload() // a note of nonsense may be told of
		if exists(filepath.Join(dir, unfinishedName)) {
			t.Errorf("%s: the note stays", file)
		}
	}
	if exists(filepath.Join(work, "sub", atomicfile.TempPrefix+"1")) || !exists(filepath.Join(work, "conf")) || !exists(outside) {
		t.Error("not what was to be removed")
	}
	if err := d.forgetUpload(); err != nil {
		t.Errorf("without a note: %v", err)
	}
}
