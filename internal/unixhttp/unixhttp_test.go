package unixhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/testkit"
)

const childEnv = "UNIXHTTP_TEST_SOCKET"

// TestMain doubles as a caller under another user.
func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		code, body, err := get(path)
		if err != nil {
			body = err.Error()
		}
		io.WriteString(os.Stdout, http.StatusText(code)+"|"+body)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func get(path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://tandem/x", nil)
	if err != nil {
		return 0, "", err
	}
	c := Client(path)
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func serve(t *testing.T, path, group string) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), path, group)
	if err != nil {
		t.Fatal(err)
	}
	s := Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is still there")
		}
	})
	return l
}

func TestServeOverSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.PublicDir(t), "sub", "a.sock")
	serve(t, path, "")
	st, err := os.Lstat(path)
	if err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if code, body, err := get(path); code != 200 || body != "hello" || err != nil {
		t.Fatal(code, body, err)
	}
	if _, err := Listen(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), "another daemon is listening") {
		t.Errorf("second listener: %v", err)
	}
	if e, _ := os.ReadDir(filepath.Dir(path)); len(e) != 1 {
		t.Errorf("left beside the socket: %v", e)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.PublicDir(t), "a.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd)
	serve(t, path, "")
	if code, _, err := get(path); code != 200 || err != nil {
		t.Fatal(code, err)
	}
}

func TestBadPaths(t *testing.T) {
	t.Parallel()
	dir := testkit.PublicDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "needs a path", file: "another kind of file",
		filepath.Join(dir, strings.Repeat("x", 120)): "107 at most",
	} {
		if _, err := Listen(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := Listen(t.Context(), filepath.Join(dir, "s"), "no-such-group"); err == nil {
		t.Error("unknown group accepted")
	}
	if b, _ := os.ReadFile(file); string(b) != "keep" {
		t.Error("the file was touched")
	}
	// The longest path that the kernel takes works.
	long := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	serve(t, long, "")
	if code, _, err := get(long); code != 200 || err != nil {
		t.Fatal(code, err)
	}
}

func TestOtherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := testkit.PublicDir(t)
	path := filepath.Join(dir, "a.sock")
	serve(t, path, "daemon")
	exe := filepath.Join(dir, "child")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	call := func(gid uint32, groups []uint32) string {
		cmd := exec.Command(exe)
		cmd.Env = []string{childEnv + "=" + path}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: gid, Groups: groups}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	const daemonGid = 1
	if got := call(daemonGid, nil); got != "OK|hello" {
		t.Errorf("primary group: %s", got)
	}
	if got := call(65534, []uint32{daemonGid}); got != "OK|hello" {
		t.Errorf("supplementary group: %s", got)
	}
	if got := call(65534, nil); !strings.Contains(got, "permission denied") {
		t.Errorf("a stranger got past the file mode: %s", got)
	}
	// With the mode widened by mistake, the peer check still holds.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := call(65534, nil); !strings.HasPrefix(got, "Forbidden|") {
		t.Errorf("a stranger got past the peer check: %s", got)
	}
}

// TestListenBesideOneThatIsFull: a daemon that hangs, for which as many wait as may, is not taken
// for one that has ended, and it is said what is wrong.
func TestListenBesideOneThatIsFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.ShortDir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	const most = 10
	for range most {
		c, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if l, err := Listen(t.Context(), path, ""); err == nil || !strings.Contains(err.Error(), "another daemon is listening") {
		t.Errorf("%v, %v", l, err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("its socket is gone: %v", err)
	}
}
