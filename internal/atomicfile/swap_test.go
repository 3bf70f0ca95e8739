package atomicfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwap: the file has what was written last, whatever was longer before; two inodes take turns, and
// a spare that has become unusable is made anew.
func TestSwap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record.json")
	inodes := map[uint64]bool{}
	check := func(text string) {
		t.Helper()
		var st unix.Stat_t
		b, err := os.ReadFile(path)
		if err != nil || string(b) != text {
			t.Fatalf("%.20q, want %.20q (%v)", b, text, err)
		}
		if err := unix.Stat(path, &st); err != nil || st.Mode&0o777 != 0o600 {
			t.Fatalf("mode %o, %v", st.Mode, err)
		}
		inodes[st.Ino] = true
	}
	for i, n := range []int{10, 9000, 3, 0, 500, 12, 500} {
		text := strings.Repeat(strconv.Itoa(i), n)
		if err := Swap(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		check(text)
	}
	if len(inodes) != 2 {
		t.Errorf("%d inodes", len(inodes))
	}
	// Cleared at a start: the spare of what is there stays, another one goes.
	if err := os.WriteFile(Spare(filepath.Join(filepath.Dir(path), "gone.json")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTemp(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 2 {
		t.Errorf("%v %v", names, err)
	}
	if err := os.Remove(Spare(path)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(Spare(path), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Swap(path, []byte("x"), 0o600); err == nil {
		t.Error("written into a pipe")
	}
	check(strings.Repeat("6", 500))
	if err := Swap(path, []byte("y"), 0o600); err != nil {
		t.Error(err)
	}
	check("y")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Swap(path, []byte("z"), 0o600); err == nil {
		t.Error("it has taken the place of a directory")
	}
}

// TestSwapOnAFullDisk: a write that fails leaves the file as it is.
func TestSwapOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "a")
	for _, text := range []string{"one", "two"} {
		if err := Swap(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Swap(path, make([]byte, 1<<20), 0o600); err == nil {
		t.Error("a megabyte went into 64 KB")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "two" {
		t.Errorf("%q %v", b, err)
	}
	if err := Swap(path, []byte("three"), 0o600); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "three" {
		t.Errorf("%q %v", b, err)
	}
}

// TestWriteBy: a file that was made ahead, with whatever a killed program left in it, becomes
// the record as it is whole; without one it is made.
func TestWriteBy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, next := filepath.Join(dir, "record.json"), filepath.Join(dir, TempPrefix+"next")
	const none = "none"
	for _, ahead := range []string{"", "something much longer that was never finished", none} {
		if ahead != none {
			if err := os.WriteFile(next, []byte(ahead), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := MakeEmpty(next, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteBy(next, path, []byte("text"), 0o640); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o640 {
			t.Fatalf("%v %v", st, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "text" {
			t.Errorf("%q %v", b, err)
		}
		if _, err := os.Lstat(next); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
	}
	// What cannot be written leaves what was there, and no unfinished file.
	if err := WriteBy(next, filepath.Join(dir, "no/such/dir"), nil, 0o600); err == nil {
		t.Error("written nowhere")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}
