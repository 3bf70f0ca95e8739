package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
)

// passed makes a listening socket as systemd does, for a program that is started.
func passed(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// asSystemd starts the daemon with LISTEN_PID set to its own pid, which only a
// shell can know before the exec.
func asSystemd(args ...string) []string {
	return append([]string{"-c", `LISTEN_PID=$$; export LISTEN_PID; exec "$@"`, "sh", binary}, args...)
}

// TestSocketActivation: the daemon serves on the socket that systemd made, found by
// its name among others; who connected before it was started is answered; the
// socket's file stays; an upgrade keeps it.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	sock := filepath.Join(dir, "s")
	other, f := passed(t, filepath.Join(dir, "other")), passed(t, sock)
	early := make(chan error, 1)
	go func() {
		resp, err := unixhttp.Client(sock).Get("http://processd/healthz")
		if err == nil {
			resp.Body.Close()
		}
		early <- err
	}()
	cmd, c := startProgram(t, dir, "/bin/sh", []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=other:processd"}, []*os.File{other, f},
		asSystemd("--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "unused"))...)
	if err := <-early; err != nil {
		t.Error("who came first:", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "unused")); err == nil {
		t.Error("it made a socket of its own beside")
	}
	// What it starts is told nothing of sockets.
	startTask(t, c, dir, "a", "sh -c 'env; exec sleep 60'")
	eventually(t, "its output", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "sandbox/a/stdout"))
		return strings.Contains(string(b), "PATH=")
	})
	if b, _ := os.ReadFile(filepath.Join(dir, "sandbox/a/stdout")); strings.Contains(string(b), "LISTEN_") {
		t.Errorf("%s", b)
	}
	if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next one serves", func() bool { return strings.Count(logOf(dir), "msg=serving socket="+sock) == 2 })
	if st, err := c.Stop(t.Context(), "a", 0); err != nil {
		t.Errorf("%+v %v", st, err)
	}
	awaitEnd(t, c, "a")
	if err := c.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(sock); err != nil {
		t.Error("systemd's socket was removed:", err)
	}
}

func TestSocketActivationErrors(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcpFile, err := tcp.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcpFile.Close()
	a, b := passed(t, filepath.Join(dir, "a")), passed(t, filepath.Join(dir, "b"))
	for _, c := range []struct {
		env   []string
		files []*os.File
		want  string
	}{
		{[]string{"LISTEN_FDS=1"}, []*os.File{file}, "inherited descriptor 3"},
		{[]string{"LISTEN_FDS=1"}, []*os.File{tcpFile}, "it is no unix socket"},
		{[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:b"}, []*os.File{a, b}, "FileDescriptorName=processd"},
		{[]string{"LISTEN_FDS=many"}, nil, `LISTEN_FDS="many"`},
		{[]string{handedOver + "=x"}, nil, "it is set by the daemon itself"},
	} {
		cmd := exec.Command("/bin/sh", asSystemd("--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))...)
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), c.env...), c.files
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v %s, want %q", c.env, err, out, c.want)
		}
	}
}

// TestJournal: on the journal's stream each line has its priority and no time;
// elsewhere, whatever the variable says, it is plain.
func TestJournal(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	log := filepath.Join(dir, "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	sys := st.Sys().(*syscall.Stat_t)
	for _, c := range []struct{ stream, want, not string }{
		{fmt.Sprintf("%d:%d", sys.Dev, sys.Ino), "<6>msg=serving", "time="},
		{fmt.Sprintf("%d:%d", sys.Dev, sys.Ino+1), "level=INFO msg=serving", "<6>"},
	} {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
		out, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr, cmd.Env = out, append(os.Environ(), "JOURNAL_STREAM="+c.stream)
		err = cmd.Start()
		out.Close()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it serves", func() bool { return strings.Contains(logOf(dir), "msg=serving") })
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if text := logOf(dir); !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("JOURNAL_STREAM=%s:\n%s", c.stream, text)
		}
	}
}
