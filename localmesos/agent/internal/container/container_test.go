package container

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	NewLauncher(testCgroup).Close()
	os.Exit(code)
}

const testCgroup = "mesos-container-test"

func start(t *testing.T, l *Launcher, s Spec) *Container {
	t.Helper()
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	s.ID = "test-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	c, err := l.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Destroy(ctx); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	return c
}

func wait(t *testing.T, c *Container) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sh(script string) Spec {
	return Spec{Program: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + DefaultPath}}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	l := NewLauncher(testCgroup)
	for script, want := range map[string]int32{"exit 0": 0, "exit 3": 3 << 8, "kill -9 $$": 137 << 8, "kill -15 $$": 143 << 8} {
		c := start(t, l, sh(script))
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, c); got != want {
			t.Errorf("%s: %d, not %d", script, got, want)
		}
	}
	for _, p := range []string{"/no/such", "no-such", "./no-such", "/etc/passwd", "/"} {
		dir := t.TempDir()
		c := start(t, l, Spec{Dir: dir, Program: p, Args: []string{p}})
		if got := wait(t, c); got != StatusNotExecuted {
			t.Errorf("%s: %d", p, got)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "stderr")); err != nil || !strings.Contains(string(b), "Failed to execute command") {
			t.Errorf("%s: stderr %q %v", p, b, err)
		}
	}
}

func TestArgvAndPath(t *testing.T) {
	t.Parallel()
	l := NewLauncher(testCgroup)
	dir := t.TempDir()
	c := start(t, l, Spec{Dir: dir, Program: "cat", Args: []string{"anything", "/proc/self/cmdline"}, Env: []string{"PATH=/nowhere:/usr/bin:/bin"}})
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	if s := wait(t, c); s != 0 {
		t.Errorf("status %d", s)
	}
	b, _ := os.ReadFile(filepath.Join(dir, "stdout"))
	if !strings.HasSuffix(string(b), "/proc/self/cmdline\x00") {
		t.Errorf("argv: %q", b)
	}
}

func pidIn(t *testing.T, path string) procid.Identity {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && strings.HasSuffix(string(b), "\n") {
			id, err := procid.Of(pid)
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	t.Fatalf("no pid in %s", path)
	return procid.Identity{}
}

func TestDestroyFindsDaemons(t *testing.T) {
	t.Parallel()
	l := NewLauncher(testCgroup)
	dir := t.TempDir()
	s := sh(`(setsid sh -c 'echo $$ > daemon; exec sleep 600' &) ; sleep 600`)
	s.Dir = dir
	c := start(t, l, s)
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	daemon := pidIn(t, filepath.Join(dir, "daemon"))
	if strings.HasPrefix(l.String(), "no cgroups") {
		t.Skip("without cgroups a daemon that leaves the session is not found")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Destroy(ctx); err != nil {
		t.Fatal(err)
	}
	if daemon.Alive() || c.Identity().Alive() {
		t.Error("something lives on")
	}
	if got := wait(t, c); got != 137<<8 {
		t.Errorf("status %d", got)
	}
}

func TestFindAgain(t *testing.T) {
	t.Parallel()
	l := NewLauncher(testCgroup)
	s := sh("read x < fifo; exit 5")
	s.Dir = t.TempDir()
	if err := unix.Mkfifo(filepath.Join(s.Dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, l, s)
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	id := c.Identity()
	c.Close() // the first agent is gone
	again, err := l.Find(c.id, id)
	if err != nil || again.Identity() != id {
		t.Fatalf("%v %v", again, err)
	}
	defer again.Close()
	if err := os.WriteFile(filepath.Join(s.Dir, "fifo"), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, again); got != 5<<8 {
		t.Errorf("status %d", got)
	}
	id.StartTime++
	stranger, err := l.Find(c.id, id)
	if err != nil || !stranger.Identity().IsZero() {
		t.Errorf("a stranger was taken for it: %v", err)
	}
	if got := wait(t, stranger); got != StatusUnknown {
		t.Errorf("status %d", got)
	}
}

func TestWhatIsHeldBackDiesWithTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := sh("echo $$ > ran")
	s.Dir = dir
	l := NewLauncher(testCgroup)
	c := &Container{id: "held", group: l.tree.Group("held-" + filepath.Base(dir))}
	if _, err := c.group.Create(noLimits); err != nil {
		t.Fatal(err)
	}
	defer c.group.Remove()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	attr := attributes(s, []*os.File{null, null, null})
	if err := c.spawnGated(s.Program, s.Args, attr, os.Stderr); err != nil {
		t.Fatal(err)
	}
	id := c.Identity()
	if !id.Alive() {
		t.Fatal("not started")
	}
	c.dropGate()
	if got := wait(t, c); got != 125<<8 {
		t.Errorf("status %d", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran")
	}
	c.Close()
}

func TestLogsAreNotOpenedThroughLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "stdout")); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenLog(dir, "stdout", nil); err == nil {
		f.Close()
		t.Error("opened")
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	if _, err := LookupUser("no-such-user"); err == nil || err.Error() != "No such user 'no-such-user'" {
		t.Errorf("%v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run something as another user")
	}
	u, err := LookupUser("nobody")
	if err != nil {
		t.Skip("there is no user nobody")
	}
	dir := testkit.ShortDir(t)
	if err := os.Chown(dir, int(u.UID), int(u.GID)); err != nil {
		t.Fatal(err)
	}
	s := sh("id -un; id -G; grep CapEff /proc/self/status")
	s.Dir, s.User = dir, u
	c := start(t, NewLauncher(testCgroup), s)
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, c); got != 0 {
		t.Errorf("status %d", got)
	}
	b, _ := os.ReadFile(filepath.Join(dir, "stdout"))
	if !strings.HasPrefix(string(b), "nobody\n") || !strings.Contains(string(b), "CapEff:\t0000000000000000") || strings.Contains(string(b), "\n0") {
		t.Errorf("%s", b)
	}
}
