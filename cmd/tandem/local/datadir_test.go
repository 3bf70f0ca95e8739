package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/cmd/tandem/exit"
)

func TestDataDirBelongsToOneStack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, err := openDataDir(dir, "http://127.0.0.1:7070")
	if err != nil {
		t.Fatal(err)
	}
	_, err = openDataDir(dir, "http://127.0.0.1:7071")
	if exit.Of(err) != exit.Refused || !strings.Contains(err.Error(), "http://127.0.0.1:7070") || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("second stack: code %d, %v", exit.Of(err), err)
	}
	d.Close()
	d, err = openDataDir(dir, "http://127.0.0.1:7071")
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	d.Close()
}

func TestUnusableDataDirIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Modes do not stop root, so the refusals are those that stop everybody.
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/tandem"} {
		_, err := openDataDir(dir, "")
		if exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "data directory "+dir+" cannot be used: ") || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("%s: code %d, %v", dir, exit.Of(err), err)
		}
	}
}

func TestStateIsReadBack(t *testing.T) {
	t.Parallel()
	d, err := openDataDir(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, found, err := d.readState(); found || err != nil {
		t.Errorf("new directory: %v %v", found, err)
	}
	want := state{Clean: true, Machines: []machine{{Name: "agent-1", IP: "127.0.0.1"}}, Master: 5050}
	if err := d.writeState(want); err != nil {
		t.Fatal(err)
	}
	got, found, err := d.readState()
	if err != nil || !found || !got.Clean || len(got.Machines) != 1 || got.Machines[0] != want.Machines[0] {
		t.Errorf("%+v %v %v", got, found, err)
	}
}

func TestRuntimeDirIsShortStableAndPrivate(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 1 << 20 // as another user would get it, so that nothing is made in /run
	}
	_, err := runtimeDir(strings.Repeat("/long", 60), env("XDG_RUNTIME_DIR", base), uid)
	if os.Geteuid() == 0 && (err == nil || !strings.Contains(err.Error(), "remove it")) {
		t.Errorf("a directory of somebody else was taken: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("the rest makes a directory in /run, which needs root")
	}
	dir, err := runtimeDir(strings.Repeat("/long", 60), env(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer removeRuntimeDir(dir)
	again, err := runtimeDir(strings.Repeat("/long", 60), env(), 0)
	if err != nil || again != dir || len(dir) > 60 {
		t.Errorf("%s, then %s, %v", dir, again, err)
	}
}
