package keeper

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
)

// TestFaultTornRecord: cut off at any byte, or with something else in its place, a record
// is set aside, and the others are read.
func TestFaultTornRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"good", "torn"} {
		e := Entry{Key: key, ID: procid.Identity{BootID: "b", Pid: 4242, StartTime: 77}, Tag: "sh"}
		e.finish(procid.Status{Signal: 9}, time.Now())
		if err := s.save(&e); err != nil {
			t.Fatal(err)
		}
	}
	path := s.path("torn")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var damages []func() error
	for n := range whole {
		damages = append(damages, func() error { return os.WriteFile(path, whole[:n], 0o600) })
	}
	newer, err := json.Marshal(diskRecord{recordFormat + 1, Entry{Key: "torn", ID: procid.Identity{Pid: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	damages = append(damages,
		func() error { return os.WriteFile(path, make([]byte, len(whole)), 0o600) },
		func() error { return os.WriteFile(path, newer, 0o600) },
		func() error { return os.Truncate(path, 1<<40) },
		func() error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		func() error { return unix.Mkfifo(path, 0o600) },
	)
	for i, damage := range damages {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if i >= len(damages)-2 {
			os.Remove(path)
		}
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		entries, err := s.load(func(string, ...any) {})
		if err != nil || len(entries) != 1 || entries[0].Key != "good" {
			t.Fatalf("damage %d: %+v %v", i, entries, err)
		}
	}
	if e, err := os.ReadDir(filepath.Join(dir, "corrupt")); err != nil || len(e) != len(damages) {
		t.Errorf("%d set aside, want %d; %v", len(e), len(damages), err)
	}
}
