package processdaemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tandem/internal/execstream"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// safeBuffer may be written to and read at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// slowly writes to a buffer as one does who cannot keep up.
type slowly struct{ safeBuffer }

func (s *slowly) Write(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return s.safeBuffer.Write(p)
}

// A session has the user, the directory, the environment and the control group of
// its task, and its output and exit code are whole.
func TestSessionRunsAsTheTaskDoes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	s := spec(d, "a", "sleep 600")
	s.Env = []string{"COLOUR=green"}
	user := "root"
	if os.Getuid() == 0 {
		s.User, user = "nobody", "nobody"
	}
	st := run(t, d, s)
	its := read(t, "/proc/"+strconv.Itoa(st.Pid)+"/cgroup")
	var out, errOut safeBuffer
	code, err := c.Session(limited(t, time.Minute), "a", protocol.SessionRequest{
		Argv: []string{"/bin/sh", "-c", `echo "$COLOUR $(id -un) $(pwd) $(id -u; ulimit -c)" | tr '\n' ' '; cat /proc/self/cgroup >&2; exit 7`},
	}, execstream.Terminal{Stdout: &out, Stderr: &errOut})
	if err != nil || code != 7 || !strings.HasPrefix(out.String(), "green "+user+" "+s.WorkPath) {
		t.Errorf("code %d, %q, %v", code, out.String(), err)
	}
	if d.tree.Mode() != "session" && errOut.String() != its {
		t.Errorf("the command is in\n%s, the task in\n%s", errOut.String(), its)
	}
	// Input far beyond every buffer comes back whole, also to one who is slow.
	text := strings.Repeat("0123456789abcdef", 40<<10)
	var slow slowly
	code, err = c.Session(limited(t, time.Minute), "a", protocol.SessionRequest{Argv: []string{"cat"}, Stdin: true},
		execstream.Terminal{Stdin: strings.NewReader(text), Stdout: &slow, Stderr: io.Discard})
	if err != nil || code != 0 || slow.String() != text {
		t.Errorf("cat: code %d, %d bytes of %d, %v", code, len(slow.String()), len(text), err)
	}
}

func TestSessionOutcomes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	run(t, d, spec(d, "a", "sleep 600"))
	for name, x := range map[string]struct {
		argv []string
		code int
		text string
	}{
		"signal":     {[]string{"/bin/sh", "-c", "kill -9 $$"}, 137, ""},
		"no program": {[]string{"no-such-program"}, 127, "no such program in PATH"},
		"no binary":  {[]string{"/etc/passwd"}, 127, "not executable"},
		// It holds the output open, and the session does not wait for it.
		"left behind": {[]string{"/bin/sh", "-c", "setsid sleep 600 & echo end"}, 0, "end\n"},
		"no input":    {[]string{"cat"}, 0, ""},
	} {
		var out safeBuffer
		code, err := c.Session(limited(t, time.Minute), "a", protocol.SessionRequest{Argv: x.argv}, execstream.Terminal{Stdout: &out, Stderr: &out})
		if err != nil || code != x.code || !strings.Contains(out.String(), x.text) {
			t.Errorf("%s: code %d, %q, %v", name, code, out.String(), err)
		}
	}
	if _, err := c.Session(limited(t, time.Minute), "b", protocol.SessionRequest{Argv: []string{"true"}}, execstream.Terminal{}); !client.IsCode(err, protocol.CodeNotFound) {
		t.Errorf("unknown task: %v", err)
	}
}

// A session with a terminal: the command has it as its own, of the right owner and
// size, hears of a new size, and its control characters act.
func TestSessionOnATerminal(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	s := spec(d, "a", "sleep 600")
	if os.Getuid() == 0 {
		s.User = "nobody"
	}
	run(t, d, s)
	in, typed := io.Pipe()
	sizes := make(chan execstream.Size, 1)
	var out safeBuffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, err := c.Session(limited(t, time.Minute), "a", protocol.SessionRequest{
			Argv:  []string{"/bin/sh", "-c", `trap 'stty size' WINCH; trap 'echo interrupted; exit 4' INT; test -O $(tty) && stty size; while :; do sleep 0.02; done`},
			Stdin: true, TTY: true, Width: 91, Height: 33,
		}, execstream.Terminal{Stdin: in, Stdout: &out, Resize: sizes})
		if err != nil || code != 4 {
			t.Errorf("code %d, %v", code, err)
		}
	}()
	shows := func(text string) {
		t.Helper()
		eventually(t, text, func() bool { return strings.Contains(out.String(), text+"\r\n") })
	}
	shows("33 91")
	sizes <- execstream.Size{Width: 120, Height: 50}
	shows("50 120")
	if _, err := io.WriteString(typed, "\x03"); err != nil {
		t.Fatal(err)
	}
	shows("interrupted")
	<-ended
}

// Whoever hangs up takes along what the session runs, in the background too, but
// nothing of the task; so does the end of the task.
func TestSessionEndsWithItsUserAndItsTask(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	s := spec(d, "a", "sleep 600")
	st := run(t, d, s)
	tryEnd(t, d, c, st.Pid, "user", func(cancel context.CancelFunc) { cancel() })
	if now, err := d.Status("a"); err != nil || now.State != running || now.Pid != st.Pid {
		t.Errorf("the task: %+v %v", now, err)
	}
	tryEnd(t, d, c, st.Pid, "task", func(context.CancelFunc) {
		if _, err := d.Stop("a", 0); err != nil {
			t.Error(err)
		}
	})
	awaitState(t, d, "a", ended)
}

func tryEnd(t *testing.T, d *Daemon, c *client.Client, main int, name string, end func(context.CancelFunc)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out safeBuffer
	done := make(chan error, 1)
	go func() {
		_, err := c.Session(ctx, "a", protocol.SessionRequest{Argv: []string{"/bin/sh", "-c", "set -m; sleep 600 & echo up; wait"}, TTY: true}, execstream.Terminal{Stdout: &out})
		done <- err
	}()
	eventually(t, "the session", func() bool { return strings.Contains(out.String(), "up") })
	end(cancel)
	if err := <-done; err == nil {
		t.Errorf("%s: the session ended well", name)
	}
	task, err := d.task("a")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of what it ran", func() bool {
		pids, err := task.group.Pids()
		return err == nil && (len(pids) == 0 || len(pids) == 1 && pids[0] == main)
	})
}

// A daemon that goes ends its sessions, so that it does not wait for them.
func TestSessionEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	run(t, d, spec(d, "a", "sleep 600"))
	socket := filepath.Join(testkit.PublicDir(t), "s")
	l, err := unixhttp.Listen(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	serving := make(chan error, 1)
	go func() { serving <- d.Serve(ctx, l) }()
	c := client.New(socket)
	defer c.Close()
	var out safeBuffer
	done := make(chan error, 1)
	go func() {
		_, err := c.Session(limited(t, time.Minute), "a", protocol.SessionRequest{Argv: []string{"/bin/sh", "-c", "echo up; exec sleep 600"}}, execstream.Terminal{Stdout: &out, Stderr: &out})
		done <- err
	}()
	eventually(t, "the session", func() bool { return strings.Contains(out.String(), "up") })
	cancel()
	if err := <-serving; err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	s := spec(d, "a", "sleep 600")
	if os.Getuid() == 0 {
		s.User = "nobody"
	}
	outside := testkit.PublicDir(t)
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("sings"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, d, s)
	for _, err := range []error{
		os.Mkdir(filepath.Join(s.WorkPath, "etc"), 0o755), os.Mkdir(filepath.Join(s.WorkPath, "real"), 0o755),
		os.Symlink("real", filepath.Join(s.WorkPath, "link")), os.Symlink(outside, filepath.Join(s.WorkPath, "out")),
		os.Symlink("../../../../../../../../.."+outside, filepath.Join(s.WorkPath, "up")), os.Symlink(canary, filepath.Join(s.WorkPath, "etc/song")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(path string, mode uint32, text string) error {
		return c.Upload(t.Context(), "a", protocol.File{Path: path, Content: []byte(text), Mode: mode})
	}
	owner := func(path string) string {
		t.Helper()
		info, err := os.Lstat(filepath.Join(s.WorkPath, path))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().String() + " " + ownerOf(t, info)
	}
	me := strconv.Itoa(os.Getuid())
	if s.User != "" {
		as, err := lookupAccount(s.User)
		if err != nil {
			t.Fatal(err)
		}
		me = strconv.Itoa(as.uid)
	}
	for _, x := range []struct {
		path string
		mode uint32
		at   string
		want string
	}{
		{"etc/new", 0, "etc/new", "-rw-r--r-- " + me},
		{s.WorkPath + "/etc/tool", 0o750, "etc/tool", "-rwxr-x--- " + me},
		{"etc/tool", 0, "etc/tool", "-rwxr-x--- " + me}, // what is replaced lends its mode
		{"link/f", 0o600, "real/f", "-rw------- " + me},
		{"etc/song", 0, "etc/song", "-rw-r--r-- " + me}, // the link itself is replaced
	} {
		text := "content of " + x.path
		if err := put(x.path, x.mode, text); err != nil {
			t.Errorf("%s: %v", x.path, err)
			continue
		}
		if got := read(t, filepath.Join(s.WorkPath, x.at)); got != text {
			t.Errorf("%s: %q", x.path, got)
		}
		if got := owner(x.at); got != x.want {
			t.Errorf("%s: %s, want %s", x.path, got, x.want)
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(filepath.Join(s.WorkPath, "etc/tool"), 12, 12); err != nil {
			t.Fatal(err)
		}
		if err := put("etc/tool", 0, "again"); err != nil || owner("etc/tool") != "-rwxr-x--- 12" {
			t.Errorf("%v, %s", err, owner("etc/tool"))
		}
	}
	for path, want := range map[string]string{
		"../x": "beneath workPath", canary: "beneath workPath", "out/canary": "escapes", "up/canary": "escapes", ".": "beneath workPath", "etc/": "beneath workPath",
		"etc": "no regular file", "none/x": "does not exist", "etc/new/x": "not a directory",
	} {
		if err := put(path, 0, "evil"); !client.IsCode(err, protocol.CodeInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := c.Upload(t.Context(), "a", protocol.File{Path: "x", User: "no-such-user"}); !client.IsCode(err, protocol.CodeInvalid) || exists(filepath.Join(s.WorkPath, "x")) {
		t.Errorf("unknown user: %v", err)
	}
	if got := read(t, canary); got != "sings" {
		t.Errorf("the canary: %q", got)
	}
	left, err := filepath.Glob(filepath.Join(s.WorkPath, "*/.tmp-*"))
	if len(left) > 0 || err != nil {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := d.Stop("a", 0); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
	if err := put("etc/late", 0, "x"); !client.IsCode(err, protocol.CodeConflict) {
		t.Errorf("after its end: %v", err)
	}
}

// Limits are changed under what runs, are kept over a restart of the daemon and of
// the task, and one that cannot be had changes nothing.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	if d.tree.Mode() == "session" {
		t.Skip("this machine has no control groups")
	}
	s := spec(d, "a", "sleep 600 & sleep 600; true")
	st := run(t, d, s)
	quota := func() string {
		t.Helper()
		return limitOf(t, st.Pid, "cpu", "cpu.cfs_quota_us", "cpu.max")
	}
	if err := c.SetLimits(t.Context(), "a", protocol.Limits{CPUs: 0.5, MemMB: 64}); err != nil {
		t.Fatal(err)
	}
	if got := quota(); !strings.HasPrefix(got, "50000") {
		t.Errorf("quota %s", got)
	}
	if got := limitOf(t, st.Pid, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(64<<20) {
		t.Errorf("memory %s", got)
	}
	if now := awaitState(t, d, "a", running); now.Pid != st.Pid {
		t.Errorf("it was restarted: %+v", now)
	}
	if err := c.SetLimits(t.Context(), "a", protocol.Limits{CPUs: -1}); !client.IsCode(err, protocol.CodeInvalid) {
		t.Error(err)
	}
	if _, err := c.Restart(t.Context(), "a", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the restart", func() bool {
		now, err := d.Status("a")
		st.Pid = now.Pid
		return err == nil && now.State == running && now.Restarts == 1
	})
	if got := quota(); !strings.HasPrefix(got, "50000") {
		t.Errorf("quota after a restart: %s", got)
	}
	// The first specification is still the task's: a repeated create has no effect.
	if _, err := c.Create(t.Context(), &s); err != nil {
		t.Error(err)
	}
	if err := c.SetLimits(t.Context(), "a", protocol.Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := quota(); !strings.HasPrefix(got, "-1") && !strings.HasPrefix(got, "max") {
		t.Errorf("quota %s", got)
	}
}

// limitOf reads a limit of the control group of a process, of either version.
func limitOf(t *testing.T, pid int, controller, v1, v2 string) string {
	t.Helper()
	for line := range strings.SplitSeq(read(t, "/proc/"+strconv.Itoa(pid)+"/cgroup"), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) < 3 {
			continue
		}
		for _, path := range []string{"/sys/fs/cgroup/" + controller + f[2] + "/" + v1, "/sys/fs/cgroup" + f[2] + "/" + v2} {
			if b, err := os.ReadFile(path); err == nil && (f[0] == "0" || slices.Contains(strings.Split(f[1], ","), controller)) {
				return strings.TrimSpace(string(b))
			}
		}
	}
	t.Fatalf("process %d has no %s limit", pid, controller)
	return ""
}

func ownerOf(t *testing.T, info os.FileInfo) string {
	t.Helper()
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner")
	}
	return strconv.Itoa(int(st.Uid))
}
