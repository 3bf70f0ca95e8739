package unpack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/testkit"
)

// reader reads files as somebody.
type reader struct {
	t   testing.TB
	dir string
	run Runner
}

func (r *reader) read(j ReadJob) (string, FileState, bool, error) {
	r.t.Helper()
	if j.MaxBytes == 0 {
		j.MaxBytes = 1 << 20
	}
	to, err := os.CreateTemp(r.t.TempDir(), "to")
	if err != nil {
		r.t.Fatal(err)
	}
	defer to.Close()
	state, copied, err := r.run.Read(r.t.Context(), j, to, nil)
	b, readErr := os.ReadFile(to.Name())
	if readErr != nil {
		r.t.Fatal(readErr)
	}
	return string(b), state, copied, err
}

func (r *reader) put(name string, mode os.FileMode, uid, gid int) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("content of "+name), 0o600), os.Chmod(path, mode)); err != nil {
		r.t.Fatal(err)
	}
	if uid >= 0 {
		if err := os.Chown(path, uid, gid); err != nil {
			r.t.Fatal(err)
		}
	}
	return path
}

// TestReadWithTheRightsOfItsUser: no more than that user can read, by any of its
// groups, and no less.
func TestReadWithTheRightsOfItsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	r := &reader{t: t, dir: testkit.PublicDir(t)}
	const other = 65533
	r.put("closed/file", 0o644, -1, 0)
	if err := os.Chmod(filepath.Join(r.dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	alone := &syscall.Credential{Uid: 65534, Gid: 65534}
	for _, c := range []struct {
		path string
		as   *syscall.Credential
		may  bool
	}{
		{r.put("own", 0o400, 65534, 65534), asNobody, true},
		{r.put("open", 0o644, 0, 0), asNobody, true},
		{r.put("group", 0o640, 0, 65534), asNobody, true},
		{r.put("supplementary", 0o640, 0, 4242), asNobody, true},
		{r.put("supplementary of another", 0o640, 0, 4242), alone, false},
		{r.put("root group", 0o640, 0, 0), asNobody, false},
		{r.put("secret", 0o600, 0, 0), asNobody, false},
		{r.put("another's", 0o600, other, other), asNobody, false},
		{r.put("own without the right", 0o044, 65534, 65534), asNobody, false},
		{filepath.Join(r.dir, "closed/file"), asNobody, false},
		{"/etc/shadow", asNobody, false},
		{r.put("for root", 0o600, other, other), &syscall.Credential{}, true},
		{r.put("for the daemon", 0o600, other, other), nil, true},
	} {
		text, state, copied, err := r.read(ReadJob{Path: c.path, As: c.as})
		switch {
		case c.may && (err != nil || !copied || text != "content of "+filepath.Base(c.path) || state.Size != int64(len(text))):
			t.Errorf("%s: %q %+v %v %v", c.path, text, state, copied, err)
		case !c.may && (err == nil || copied || text != "" || !strings.Contains(err.Error(), "uid 65534, whom it is for, may not read it: permission denied")):
			t.Errorf("%s: %q %v", c.path, text, err)
		}
		// What the daemon has already is no way around.
		if _, _, _, err := r.read(ReadJob{Path: c.path, As: c.as, PeekOnly: true}); (err == nil) != c.may {
			t.Errorf("%s, looked at: %v", c.path, err)
		}
	}
}

// TestReadTakesNothingOfTheDaemon: what /proc/self names is the child's.
func TestReadTakesNothingOfTheDaemon(t *testing.T) {
	t.Parallel()
	r := &reader{t: t, dir: testkit.PublicDir(t)}
	secret, err := os.Open(r.put("secret", 0o600, -1, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	as := users()["nobody"]
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fds {
		for _, self := range []string{"self", "thread-self"} {
			if text, _, _, err := r.read(ReadJob{Path: "/proc/" + self + "/fd/" + f.Name(), As: as}); strings.Contains(text, "content of") {
				t.Errorf("descriptor %s: %q %v", f.Name(), text, err)
			}
		}
	}
	for _, name := range []string{"cmdline", "maps", "mem", "auxv"} {
		if text, _, _, err := r.read(ReadJob{Path: "/proc/self/" + name, As: as}); err == nil {
			t.Errorf("%s: %q", name, text)
		}
	}
	// The child's is empty, or nearly.
	if text, _, _, err := r.read(ReadJob{Path: "/proc/self/environ", As: as}); strings.Contains(text, "PATH=") || strings.Contains(text, "TEST") {
		t.Errorf("environ: %q %v", text, err)
	}
}

// TestReadRegularFilesOnly: others are not even opened, and nothing is waited for.
func TestReadRegularFilesOnly(t *testing.T) {
	t.Parallel()
	r := &reader{t: t, dir: testkit.PublicDir(t)}
	pipe, sock, leased := filepath.Join(r.dir, "pipe"), filepath.Join(r.dir, "sock"), r.put("leased", 0o644, -1, 0)
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(sock, unix.S_IFSOCK|0o666, 0); err != nil {
		t.Fatal(err)
	}
	// Who waits for a reader must not get one.
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				unix.Close(fd)
				got <- errors.New("the pipe was opened")
				return
			}
			time.Sleep(time.Millisecond)
		}
		got <- nil
	}()
	f, err := os.OpenFile(leased, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Children of other tests have it open between fork and exec.
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		pipe: "it is not a regular file (a pipe)", sock: "(a socket)", r.dir: "(a directory)", "/dev/zero": "(a device)",
		leased: "somebody is writing to it", filepath.Join(r.dir, "none"): "no such file on this agent", leased + "/x": "no such file on this agent",
		"/proc/version": "is none that is stored",
	} {
		if _, _, _, err := r.read(ReadJob{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	cancel()
	if err := <-got; err != nil {
		t.Error(err)
	}
	big := r.put("big", 0o644, -1, 0)
	if _, _, _, err := r.read(ReadJob{Path: big, MaxBytes: 3}); err == nil || !strings.Contains(err.Error(), "it has 14 bytes, more than the limit of 3") {
		t.Errorf("%v", err)
	}
}

// TestReadOnlyWhatHasChanged: as often as it likes, but by any change.
func TestReadOnlyWhatHasChanged(t *testing.T) {
	t.Parallel()
	r := &reader{t: t, dir: testkit.PublicDir(t)}
	path := r.put("file", 0o644, -1, 0)
	_, state, copied, err := r.read(ReadJob{Path: path})
	if err != nil || !copied {
		t.Fatal(err)
	}
	if text, again, copied, err := r.read(ReadJob{Path: path, Known: state}); err != nil || copied || text != "" || !again.Same(state) {
		t.Errorf("%q %+v %v %v", text, again, copied, err)
	}
	if text, _, copied, err := r.read(ReadJob{Path: path, PeekOnly: true}); err != nil || copied || text != "" {
		t.Errorf("%q %v %v", text, copied, err)
	}
	// Another content of the same length, with its times set back.
	for tick := state; tick.ChangeTime.Equal(state.ChangeTime); {
		// The kernel's clock of files is a coarse one.
		if err := errors.Join(os.WriteFile(path, []byte("CONTENT OF FILE"[:state.Size]), 0o644), os.Chtimes(path, state.ModTime, state.ModTime)); err != nil {
			t.Fatal(err)
		}
		if _, tick, _, err = r.read(ReadJob{Path: path, PeekOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	if text, _, copied, err := r.read(ReadJob{Path: path, Known: state}); err != nil || !copied || text != "CONTENT OF FILE"[:state.Size] {
		t.Errorf("%q %v %v", text, copied, err)
	}
}

// TestReadThatHangsEnds: with whoever wanted it.
func TestReadThatHangsEnds(t *testing.T) {
	t.Parallel()
	r := &reader{t: t, dir: testkit.PublicDir(t), run: Runner{Points: "unpack/read=sleep(1h)"}}
	path := r.put("file", 0o644, -1, 0)
	to, err := os.CreateTemp(t.TempDir(), "to")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("not wanted any more")
	time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	if _, _, err := r.run.Read(ctx, ReadJob{Path: path, MaxBytes: 100}, to, nil); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	r.run.Points = "unpack/read=panic"
	if _, _, _, err := r.read(ReadJob{Path: path}); err == nil || !strings.Contains(err.Error(), "ended before it was done") {
		t.Errorf("%v", err)
	}
}
