package group

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestSyncEmptiesTheGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var g Group
	for i := range 100 {
		path := filepath.Join(dir, strconv.Itoa(i))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		g.File(path, f)
		g.Dir(dir)
		if g.Opened(path) != f {
			t.Fatal("the file is not there to be written again")
		}
	}
	if g.Len() != 100 || g.Empty() {
		t.Errorf("%d files", g.Len())
	}
	g.Dir(filepath.Join(dir, "removed since"))
	if err := g.Sync(); err != nil {
		t.Error(err)
	}
	if !g.Empty() || g.Opened(filepath.Join(dir, "1")) != nil {
		t.Error("something is left")
	}
	if err := g.Sync(); err != nil {
		t.Error(err)
	}
}

func TestSyncSaysWhatFailed(t *testing.T) {
	t.Parallel()
	var g Group
	path := filepath.Join(t.TempDir(), "x")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	g.File(path, f)
	if err := g.Sync(); err == nil {
		t.Error("a file that cannot be synced is no error")
	}
}
