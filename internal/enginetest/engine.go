package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/testkit"
)

// Engine is a Docker Engine of a test's own, to be stopped and started while
// something uses it. It is in a network namespace of its own: an engine without a default
// bridge takes away the docker0 that it finds, which is that of the machine's engine.
type Engine struct {
	// Host is its address as unix:///path, Client one that looks at it.
	Host   string
	Client *client.Client

	t    testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
}

// StartEngine starts an engine with these further arguments. It ends with the
// test, which is skipped where there can be none.
func StartEngine(t testing.TB, args ...string) *Engine {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		t.Skip("an engine of one's own needs root and the program dockerd")
	}
	dir := testkit.ShortDir(t)
	e := &Engine{t: t, dir: dir, Host: "unix://" + filepath.Join(dir, "d.sock")}
	e.args = append([]string{"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
		"--host", e.Host, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--storage-driver=vfs"}, args...)
	var err error
	if e.Client, err = client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Client.Close()
		if e.cmd != nil {
			e.End(syscall.SIGTERM)
		}
		e.unmount()
	})
	e.Start()
	return e
}

// Start starts the engine and waits until it answers.
func (e *Engine) Start() {
	e.t.Helper()
	var log bytes.Buffer
	for range 3 { // one that was killed may leave a containerd behind that is still ending
		log.Reset()
		e.cmd = exec.CommandContext(context.Background(), "dockerd", e.args...) // it ends by End
		e.cmd.Stdout, e.cmd.Stderr = &log, &log
		e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := e.cmd.Start(); err != nil {
			e.t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(e.cmd)
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
			if _, err := e.Client.Ping(context.Background()); err == nil {
				return
			}
			if len(ended) > 0 {
				break
			}
		}
		_ = e.cmd.Process.Kill()
		<-ended //nolint:errcheck // killed is how it ends
	}
	e.cmd = nil
	e.t.Fatalf("the engine does not start:\n%s", log.String())
}

// End ends the engine by a signal and waits until it is gone, and its containerd with it.
func (e *Engine) End(sig syscall.Signal) {
	e.t.Helper()
	var helper *procid.Process
	if b, err := os.ReadFile(filepath.Join(e.dir, "exec", "containerd", "containerd.pid")); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			helper, _ = procid.OpenPid(pid)
		}
	}
	if p, err := procid.OpenPid(e.cmd.Process.Pid); err == nil {
		_ = p.Signal(sig)
		e.await(p)
	}
	if helper != nil {
		if sig == syscall.SIGKILL {
			_ = helper.Signal(sig)
		}
		e.await(helper)
	}
	if sig == syscall.SIGKILL {
		// A successor takes a zombie of this number for a containerd at work.
		os.Remove(filepath.Join(e.dir, "pid"))
		os.Remove(filepath.Join(e.dir, "exec", "containerd", "containerd.pid"))
	}
	e.cmd = nil
}

func (e *Engine) await(p *procid.Process) {
	e.t.Helper()
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx); err != nil && !errors.Is(err, procid.ErrGone) {
		e.t.Errorf("pid %d does not end: %v", p.Identity().Pid, err)
	}
}

// unmount takes away what a killed engine has left mounted.
func (e *Engine) unmount() {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		e.t.Error(err)
		return
	}
	defer f.Close()
	var left []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			left = append(left, fields[4])
		}
	}
	slices.Reverse(left)
	for _, path := range left {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			e.t.Errorf("unmount %s: %v", path, err)
		}
	}
}
