package safepath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("giving files to others needs root")
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"roots/sub", "theirs/sub/deep", "outside/sub"} {
		if err := os.MkdirAll(in(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const uid = 65534
	for link, to := range map[string]string{
		"own": "roots", "own-absolute": in("roots"), "foreign": "roots", "dangling": "nowhere/at/all", "circle": "circle", "into": "theirs/sub",
		"theirs/inside": "sub", "theirs/up": "../outside", "theirs/absolute": in("outside"),
	} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"foreign", "theirs", "theirs/sub", "theirs/inside", "theirs/up", "theirs/absolute"} {
		if err := os.Lchown(in(name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	for path, c := range map[string]struct{ is, err string }{
		"roots/sub": {"roots/sub", ""}, "own/sub": {"roots/sub", ""}, "own": {"roots", ""}, "own-absolute/sub": {"roots/sub", ""}, "": {"", ""},
		"into/deep": {"theirs/sub/deep", ""}, "theirs": {"theirs", ""}, "theirs/inside/deep": {"theirs/sub/deep", ""},
		"foreign": {"", "is a symbolic link of user 65534"}, "foreign/sub": {"", "is a symbolic link of user 65534"},
		"theirs/up": {"", "escapes"}, "theirs/up/sub": {"", "escapes"}, "theirs/absolute/sub": {"", "escapes"}, "circle/x": {"", "too many symbolic links"},
	} {
		for _, create := range []bool{false, true} {
			root, err := OpenRoot(in(path), create)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", path, err, c.err)
			}
			if err != nil {
				continue
			}
			want, err1 := os.Stat(in(c.is))
			got, err2 := root.Stat(".")
			if err := errors.Join(err1, err2); err != nil || !os.SameFile(want, got) {
				t.Errorf("%s is not %s: %v", path, c.is, err)
			}
			root.Close()
		}
	}
	for path, made := range map[string]string{"new/a/b": "new/a/b", "own/new/c": "roots/new/c", "theirs/inside/new": "theirs/sub/new", "dangling/x": "nowhere/at/all/x"} {
		if _, err := OpenRoot(in(path), false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
		root, err := OpenRoot(in(path), true)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		root.Close()
		if _, err := os.Stat(in(made)); err != nil {
			t.Error(err)
		}
	}
	if e, err := os.ReadDir(in("outside")); err != nil || len(e) != 1 {
		t.Errorf("outside: %v %v", e, err)
	}
	if _, err := OpenRoot("relative", true); err == nil {
		t.Error("a relative path")
	}
}
