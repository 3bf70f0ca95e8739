package processdaemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestLogPath: files that a process writes itself are rotated by size and count, one
// that it appends to and one that it does not, those made later and those in a directory made later; they are
// listed and read.
func TestLogPath(t *testing.T) {
	t.Parallel()
	const limit, keep = 64 << 10, 2
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = limit, keep })
	c := serve(t, d)
	user := ""
	if os.Getuid() == 0 {
		user = "nobody"
	}
	for id, pattern := range map[string]string{"pattern": "log/*.log", "directory": "log", "file": "log/app.log"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			// dd does not append: after a cut it goes on at its old place.
			s := spec(d, id, `mkdir log; (i=0; while [ ! -e stop ]; do echo line $i 0123456789012345678901234567890123456789; i=$((i+1)); done >>log/app.log; echo last >>log/app.log) &
exec 3>log/plain.log; while [ ! -e stop ]; do echo 0123456789012345678901234567890123456789012345678901234567890123456789 >&3; done; wait; sleep 60`)
			s.LogPath, s.User = pattern, user
			run(t, d, s)
			dir := filepath.Join(s.WorkPath, "log")
			pieces := func(name string) []string {
				names, err := filepath.Glob(filepath.Join(dir, name+".*"))
				if err != nil {
					t.Fatal(err)
				}
				return slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, cuttingEnd) })
			}
			// So often that the first piece is gone.
			rotated := func(name string) bool {
				all := pieces(name)
				return len(all) >= keep && !slices.Contains(all, filepath.Join(dir, pieceName(name, 0)))
			}
			eventually(t, "it is rotated", func() bool { return rotated("app.log") })
			if id != "file" {
				eventually(t, "the other one is rotated", func() bool { return rotated("plain.log") })
			}
			stop := filepath.Join(s.WorkPath, "stop")
			write(t, stop, "", 0o644)
			text := func() string {
				var b strings.Builder
				if err := c.Logs(t.Context(), id, "log/app.log", 100, false, &b); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			eventually(t, "the last line", func() bool { return strings.HasSuffix(text(), "last\n") })
			files, err := c.LogFiles(t.Context(), id)
			if err != nil || len(files) == 0 || len(files) > 2 {
				t.Fatalf("%+v %v", files, err)
			}
			for _, f := range files {
				if id == "file" && f.Name != "app.log" || f.Name != "app.log" && f.Name != "plain.log" {
					t.Errorf("%+v", files)
				}
			}
			eventually(t, "no pieces of pieces, nor too many of them", func() bool {
				all := pieces("app.log")
				return len(all) <= keep && !slices.ContainsFunc(all, func(n string) bool { return strings.Count(filepath.Base(n), ".") > 2 })
			})
		})
	}
}

// TestLogPathIsNotFooled: the daemon is root, the user is not. What the user puts in
// the place of a log file is neither read nor cut.
func TestLogPathIsNotFooled(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to be misled")
	}
	dir := testkit.PublicDir(t)
	victim := filepath.Join(dir, "victim")
	secret := strings.Repeat("secret", 50<<10)
	write(t, victim, secret, 0o600)
	as, err := lookupAccount("nobody")
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, as.uid, as.gid); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(own, "app.log")
	for what, put := range map[string]func() error{
		"link":           func() error { return os.Symlink(victim, name) },
		"hard link":      func() error { return os.Link(victim, name) },
		"another's file": func() error { return os.WriteFile(name, []byte(secret), 0o644) },
		"pipe":           func() error { return syscall.Mkfifo(name, 0o666) },
		"directory":      func() error { return os.Mkdir(name, 0o755) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{name, own, filepath.Join(own, "*")} {
			p := newLogPlace(pattern, as)
			_ = p.rotate(1<<10, 2) // an error in most cases
			if n, _, err := p.readAt("app.log", 0, make([]byte, 10)); err == nil && n > 0 {
				t.Errorf("%s, %s: it was read", what, pattern)
			}
			if files, _ := p.list(); len(files) > 0 {
				t.Errorf("%s, %s: listed as %v", what, pattern, files)
			}
		}
		if read(t, victim) != secret {
			t.Fatalf("%s: it was cut", what)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	// A directory that is not the user's, by its name or through a link.
	if err := os.Symlink("/etc", filepath.Join(own, "etc")); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"/etc/*", "/etc/passwd", filepath.Join(own, "etc/passwd"), filepath.Join(own, "etc")} {
		p := newLogPlace(pattern, as)
		if files, err := p.list(); err == nil || len(files) > 0 {
			t.Errorf("%s: %v %v", pattern, files, err)
		}
		if n, _, err := p.readAt("passwd", 0, make([]byte, 10)); err == nil || n > 0 {
			t.Errorf("%s: it was read", pattern)
		}
	}
	if e, err := os.ReadDir(own); err != nil || len(e) != 1 {
		t.Errorf("left: %v %v", e, err)
	}
}

// TestFaultFullDiskOfLogPath: a full disk keeps nobody from running, and the newest lines are there.
func TestFaultFullDiskOfLogPath(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, func(o *Options) { o.LogSize, o.LogFiles = 64<<10, 3 })
	s := spec(d, "a", `i=0; while :; do echo $i 0123456789012345678901234567890123456789 >>log/app.log; i=$((i+1)); [ -e stop ] && exit 0; done 2>/dev/null`)
	s.LogPath = "log"
	dir := filepath.Join(s.WorkPath, "log")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	// So full that a third piece has no room.
	write(t, filepath.Join(dir, "ballast.1"), strings.Repeat("0123456789", 30<<10), 0o644)
	run(t, d, s)
	last := func() (line string) {
		var b strings.Builder
		if err := d.Logs(context.Background(), "a", "log", "app.log", 200, false, func(p []byte) error { b.Write(p); return nil }); err != nil {
			return ""
		}
		text := strings.TrimSpace(b.String())
		line, _, _ = strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], " ")
		return line
	}
	// More than would ever fit.
	eventually(t, "it writes on", func() bool { n, _ := strconv.Atoi(last()); return n > 512<<10/40 })
	write(t, filepath.Join(s.WorkPath, "stop"), "", 0o644)
	if st := awaitState(t, d, "a", ended); st.Exit == nil || *st.Exit != (protocol.Exit{Known: true}) {
		t.Errorf("%+v %+v", st, st.Exit)
	}
}

// TestLogPathErrors: without one, with nothing there yet, with a name that is not meant.
func TestLogPathErrors(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := serve(t, d)
	a, b := spec(d, "a", "sleep 60"), spec(d, "b", "sleep 60")
	b.LogPath = "log/*.log"
	run(t, d, a)
	run(t, d, b)
	write(t, filepath.Join(b.WorkPath, "other"), "x", 0o644)
	if _, err := c.LogFiles(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "has no logPath") {
		t.Error(err)
	}
	if files, err := c.LogFiles(t.Context(), "b"); err != nil || len(files) != 0 {
		t.Error(files, err)
	}
	var out strings.Builder
	if err := c.Logs(t.Context(), "b", "log", 10, false, &out); err == nil || !strings.Contains(err.Error(), "names no file yet") {
		t.Error(err)
	}
	for _, name := range []string{"../other", "other", "/etc/passwd"} {
		if err := c.Logs(t.Context(), "b", "log/"+name, 10, false, &out); out.Len() > 0 {
			t.Errorf("%s: %q %v", name, out.String(), err)
		}
	}
	bad := spec(d, "c", "true")
	bad.LogPath = "log/[.log"
	if _, err := d.Create(bad); !isCode(err, protocol.CodeInvalid) || !strings.Contains(fmt.Sprint(err), "logPath") {
		t.Error(err)
	}
	// Follows what is made after it began to look.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	write(t, filepath.Join(b.WorkPath, "log/new.log"), "first\n", 0o644)
	err := d.Logs(ctx, "b", "log", "", 100, true, func(p []byte) error {
		out.Write(p)
		if strings.HasSuffix(out.String(), "second\n") {
			cancel()
			return nil
		}
		f, err := os.OpenFile(filepath.Join(b.WorkPath, "log/new.log"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			defer f.Close()
			_, err = f.WriteString("second\n")
		}
		return err
	})
	if err != nil || out.String() != "first\nsecond\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// TestPiecesOfALogPathAreRead: what was cut off the file of another user than root is that user's, with the
// file's mode, and read like the rest.
func TestPiecesOfALogPathAreRead(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: files are another user's")
	}
	dir := testkit.PublicDir(t)
	as, err := lookupAccount("nobody")
	if err != nil {
		t.Fatal(err)
	}
	path, text := filepath.Join(dir, "app.log"), numbers(1, 30000)
	write(t, path, text, 0o640)
	for _, p := range []string{dir, path} {
		if err := os.Chown(p, as.uid, as.gid); err != nil {
			t.Fatal(err)
		}
	}
	p := newLogPlace(filepath.Join(dir, "*.log"), as)
	if err := p.rotate(64<<10, 10); err != nil {
		t.Fatal(err)
	}
	pieces, err := filepath.Glob(path + ".*")
	if err != nil || len(pieces) == 0 {
		t.Fatal(pieces, err)
	}
	for _, name := range pieces {
		st, err := os.Stat(name)
		if err != nil || st.Size() > 0 && (st.Mode() != 0o640 || ownerOf(t, st) != strconv.Itoa(as.uid)) {
			t.Errorf("%s: %v, of user %s, %v", name, st.Mode(), ownerOf(t, st), err)
		}
	}
	var got strings.Builder
	for at, buf := int64(0), make([]byte, 10_000); ; {
		n, next, err := p.readAt("app.log", at, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		got.Write(buf[:n])
		at = next
	}
	if got.String() != text {
		t.Errorf("%d bytes are read of %d", got.Len(), len(text))
	}
}
