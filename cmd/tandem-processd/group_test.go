package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/internal/unixhttp"
)

// TestSocketBelongsToTheUsualGroup: without --group it is the group tandem where there
// is one, and nobody's where there is none.
func TestSocketBelongsToTheUsualGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only it may give the socket to a group, and mount another /etc/group")
	}
	const gid = 54321
	for name, want := range map[string]uint32{"tandem": gid, "another": 0} {
		dir := t.TempDir()
		file := filepath.Join(dir, "group")
		if err := os.WriteFile(file, fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", name, gid), 0o644); err != nil {
			t.Fatal(err)
		}
		got := make(chan uint32, 1)
		fault := make(chan error, 1)
		go func() {
			// The thread is not let go of, so that it ends with its mounts.
			runtime.LockOSThread()
			err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(file, "/etc/group", "", unix.MS_BIND, ""))
			var l *unixhttp.Listener
			if err == nil {
				l, err = listen(context.Background(), &options{socket: filepath.Join(dir, "s")})
			}
			if err != nil {
				fault <- err
				return
			}
			info, err := os.Stat(filepath.Join(dir, "s"))
			if err = errors.Join(err, l.Close()); err != nil {
				fault <- err
				return
			}
			if mode := info.Mode().Perm(); mode != 0o660 {
				fault <- fmt.Errorf("mode %o", mode)
				return
			}
			got <- info.Sys().(*syscall.Stat_t).Gid
		}()
		select {
		case err := <-fault:
			if errors.Is(err, unix.EPERM) {
				t.Skip("no mounts of its own here: ", err)
			}
			t.Error(name, err)
		case gid := <-got:
			if gid != want {
				t.Errorf("with a group %s the socket belongs to gid %d, want %d", name, gid, want)
			}
		}
	}
}
