package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What somebody put in the way, or a crash left, is replaced and never written through.
func TestWriteInFollowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("sings"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Symlink(canary, filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := WriteIn(root, "f", []byte(text), 0o640, nil); err != nil {
			t.Fatal(err)
		}
		// A link where the unfinished file will be, as one who guesses its name would put it.
		b, err := os.ReadFile(filepath.Join(dir, "f"))
		info, err2 := os.Lstat(filepath.Join(dir, "f"))
		if errors.Join(err, err2) != nil || string(b) != text || info.Mode() != 0o640 {
			t.Errorf("%q %v %v %v", b, info, err, err2)
		}
		if err := os.Symlink(canary, filepath.Join(dir, ".tmp-252f10c83610ebca")); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteIn(root, "f", nil, 0o600, func(*os.File) error { return os.ErrPermission }); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
	if b, err := os.ReadFile(canary); string(b) != "sings" || err != nil {
		t.Errorf("the canary: %q %v", b, err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("left: %v %v", entries, err)
	}
}
