package container

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
)

// ownEngine is a Docker Engine of a test's own, to be stopped and started under
// the runtime. It is in a network namespace of its own: an engine without a default
// bridge takes away the docker0 that it finds, which is that of the machine's engine.
type ownEngine struct {
	t      *testing.T
	dir    string
	host   string
	args   []string
	cmd    *exec.Cmd
	client *client.Client
}

// startOwnEngine starts an engine with these further arguments, and puts the test image in it.
func startOwnEngine(t *testing.T, args ...string) *ownEngine {
	t.Helper()
	if noEngine != "" {
		t.Skip("no Docker Engine: ", noEngine)
	}
	if _, err := exec.LookPath("dockerd"); err != nil || os.Geteuid() != 0 {
		t.Skip("an engine of one's own needs root and the program dockerd")
	}
	// Not t.TempDir: the path of a unix socket may have 107 bytes only.
	dir, err := os.MkdirTemp("", "tandem")
	if err != nil {
		t.Fatal(err)
	}
	e := &ownEngine{t: t, dir: dir, host: "unix://" + filepath.Join(dir, "d.sock")}
	e.args = append([]string{"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
		"--host", e.host, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--storage-driver=vfs"}, args...)
	if e.client, err = client.NewClientWithOpts(client.WithHost(e.host), client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.client.Close()
		if e.cmd != nil {
			e.end(syscall.SIGTERM)
		}
		e.unmount()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	e.start()
	if err := importImage(t.Context(), e.client); err != nil {
		t.Fatal(err)
	}
	return e
}

// start starts the engine and waits until it answers.
func (e *ownEngine) start() {
	e.t.Helper()
	var log bytes.Buffer
	for range 3 { // one that was killed may leave a containerd behind that is still ending
		log.Reset()
		e.cmd = exec.Command("dockerd", e.args...)
		e.cmd.Stdout, e.cmd.Stderr = &log, &log
		e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := e.cmd.Start(); err != nil {
			e.t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(e.cmd)
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
			if _, err := e.client.Ping(context.Background()); err == nil {
				return
			}
			if len(ended) > 0 {
				break
			}
		}
		_ = e.cmd.Process.Kill()
		<-ended
	}
	e.cmd = nil
	e.t.Fatalf("the engine does not start:\n%s", log.String())
}

// end ends the engine by a signal and waits until it is gone, and its containerd with it.
func (e *ownEngine) end(sig syscall.Signal) {
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

func (e *ownEngine) await(p *procid.Process) {
	e.t.Helper()
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx); err != nil && !errors.Is(err, procid.ErrGone) {
		e.t.Errorf("pid %d does not end: %v", p.Identity().Pid, err)
	}
}

// unmount takes away what a killed engine has left mounted.
func (e *ownEngine) unmount() {
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

// fixture is one whose runtime speaks to this engine.
func (e *ownEngine) fixture(change ...func(*Options)) *fixture {
	f := newFixture(e.t, append([]func(*Options){func(o *Options) { o.Host = e.host }}, change...)...)
	f.docker, f.host = e.client, e.host
	return f
}
