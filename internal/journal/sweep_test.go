package journal

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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

// TestSweepAfterADeathBeforeTheFirstWrite: an owner that was killed before it
// recorded anything left its lock, and nothing that leads to it.
func TestSweepAfterADeathBeforeTheFirstWrite(t *testing.T) {
	t.Parallel()
	j, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	live, err := j.Own("live")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	for _, name := range []string{"dead", "being-made", "set-back"} {
		if err := os.WriteFile(j.lockPath(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Minute)
	for _, name := range []string{"dead", "live"} {
		if err := os.Chtimes(j.lockPath(name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	// The clock was set back since.
	if err := os.Chtimes(j.lockPath("set-back"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := j.Sweep(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"dead": false, "being-made": true, "live": true, "set-back": false} {
		if _, err := os.Stat(j.lockPath(name)); (err == nil) != want {
			t.Errorf("lock of %s: there %v, want %v", name, err == nil, want)
		}
	}
}
