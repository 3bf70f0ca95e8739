package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSweepAfterADeathInTheFirstWrite: an owner that was killed while it wrote
// its first record left an unfinished file, which no record leads to.
func TestSweepAfterADeathInTheFirstWrite(t *testing.T) {
	t.Parallel()
	j, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	unfinished := func(owner string) string {
		dir := filepath.Join(j.records(), encode(owner))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".tmp-1"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	live, err := j.Own("live")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	dead, alive := unfinished("dead"), unfinished("live")
	if err := j.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead owner's directory is still there (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(alive, ".tmp-1")); err != nil {
		t.Errorf("what a living owner is writing is gone: %v", err)
	}
}
