package container

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFaultOutputOnAFullDisk: while the sandbox's disk is full, or has no room for one more
// file, output is lost, and nobody waits for it. What comes later is kept again.
func TestFaultOutputOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{"bytes": "size=64k", "files": "size=1m,nr_inodes=4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
				t.Skip("no file system can be mounted: ", err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			c := &copier{tail: &tail{}}
			if err := c.open(dir, &Options{LogSize: 16, LogFiles: 100}); err != nil {
				t.Fatal(err)
			}
			defer c.close()
			w := c.writer(streamStdout)
			say := func(text string) {
				t.Helper()
				if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatal(n, err)
				}
			}
			say("before 90123456\n")
			filler := filepath.Join(dir, "filler")
			if err := os.WriteFile(filler, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "bytes" {
				err := os.WriteFile(filler, make([]byte, 1<<20), 0o600)
				if !errors.Is(err, unix.ENOSPC) {
					t.Fatal(err)
				}
			}
			say("lost 3456789012\n")
			say("lost too 789012\n")
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			say("after 789012345\n")
			if got := written(t, dir, "stdout"); got != "before 90123456\nafter 789012345\n" {
				t.Errorf("kept: %q", got)
			}
			if got := c.tail.last(1 << 10); got != "before 90123456\nlost 3456789012\nlost too 789012\nafter 789012345\n" {
				t.Errorf("the tail: %q", got)
			}
		})
	}
}
