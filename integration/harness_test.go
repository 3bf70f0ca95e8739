// Package integration tests the built binaries against real components: the
// embedded Mesos master and agents, a Docker Engine, the process daemon.
package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/processdaemon"
)

// harness is what all tests of this package share.
var harness struct {
	// bin holds the binaries, built once.
	bin string
	// engine is nil, and noEngine says why, where there is no Docker Engine.
	engine   *client.Client
	noEngine string
	// image is busybox with a few of its commands; nothing is pulled.
	image string
}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	// What is started by nohup(1) ignores the signal of a lost terminal, and so does all that it starts. Tests send it,
	// and programs that a test has not ended end with their terminal.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "tandem-integration-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	harness.bin = filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-trimpath", "-o", harness.bin+"/", "../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	// TANDEM_TEST_RACE=1 runs the binaries with the race detector; a race ends them with exit code 66.
	if os.Getenv("TANDEM_TEST_RACE") != "" {
		build = exec.Command("go", "build", "-race", "-o", harness.bin+"/", "../cmd/...")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	ctx := context.Background()
	if err := startEngine(ctx); err != nil {
		harness.engine, harness.noEngine = nil, err.Error()
		fmt.Fprintln(os.Stderr, "tests that need a Docker Engine are skipped:", err)
	} else {
		defer func() {
			if _, rmErr := harness.engine.ImageRemove(ctx, harness.image, image.RemoveOptions{Force: true}); rmErr != nil && err == nil {
				err = fmt.Errorf("test image stays: %w", rmErr)
			}
			harness.engine.Close()
		}()
	}
	testkit.SideBySide(3)
	return cgrouptest.Run(m.Run), nil
}

// startEngine finds the engine and makes the image.
func startEngine(ctx context.Context) error {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	if _, err := c.Ping(ctx); err != nil {
		c.Close()
		return err
	}
	harness.engine = c
	harness.image = fmt.Sprintf("tandem-test-integration-%d-%d:latest", os.Getpid(), rand.IntN(1<<30))
	return importBusybox(ctx, c, harness.image)
}

// needEngine skips a test where there is no Docker Engine.
func needEngine(t *testing.T) {
	t.Helper()
	if harness.noEngine != "" {
		t.Skip("no Docker Engine: " + harness.noEngine)
	}
}

// importBusybox makes an image without any registry.
func importBusybox(ctx context.Context, c *client.Client, name string) error {
	var binary []byte
	err := errors.New("no busybox: install busybox-static")
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if b, readErr := os.ReadFile(p); readErr == nil {
			binary, err = b, nil
			break
		}
	}
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, binary)
	for _, n := range []string{"sh", "sleep", "cat", "echo", "nc", "ls", "env", "ip", "kill", "httpd", "wget", "mkdir"} {
		add(tar.Header{Name: "bin/" + n, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}, nil)
	}
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	body, err := c.ImageImport(ctx, image.ImportSource{Source: &buf, SourceName: "-"}, name, image.ImportOptions{
		// What a container does that is given no command.
		Changes: []string{`CMD ["/bin/sh", "-c", "echo hello; exit 4"]`},
	})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// patience stretches what a step takes on an idle machine: the race detector, and other tests on the same two cores,
// make it several times as long. How long something takes is a matter for benchmarks.
const patience = 4

// eventually polls until ok returns true, and fails the test when that takes longer than limit, with patience.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	limit *= patience
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// daemon is a running tandem-processd.
type daemon struct {
	t      *testing.T
	args   []string
	cmd    *exec.Cmd
	done   chan struct{}
	log    *lockedBuffer
	socket string
}

// startDaemon starts a process daemon on dir, which must have a short path: it
// holds the socket. It is stopped at the end of the test.
func startDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	binary := filepath.Join(harness.bin, "tandem-processd")
	if _, err := os.Stat(binary); err != nil {
		t.Skip("no tandem-processd: " + err.Error())
	}
	expectGroups(filepath.Join(dir, "data"))
	d := &daemon{t: t, log: &lockedBuffer{}, socket: filepath.Join(dir, "p.sock")}
	d.args = []string{binary, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", d.socket, "--workspace", filepath.Join(dir, "workspace")}
	d.start()
	t.Cleanup(func() {
		d.end(syscall.SIGTERM)
		if t.Failed() {
			t.Log("process daemon:\n" + d.log.String())
		}
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.cmd = exec.Command(d.args[0], d.args[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.done = make(chan struct{})
	go func() { defer close(d.done); d.cmd.Wait() }()
	eventually(d.t, 10*time.Second, "the process daemon's socket", func() bool {
		select {
		case <-d.done:
			d.t.Fatalf("the process daemon ended:\n%s", d.log.String())
		default:
		}
		_, err := os.Stat(d.socket)
		return err == nil
	})
}

// end sends a signal and waits for the end, which SIGKILL brings when it takes too long.
func (d *daemon) end(sig syscall.Signal) {
	d.cmd.Process.Signal(sig)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second * patience):
		d.t.Errorf("the process daemon did not end after %s", sig)
		d.cmd.Process.Kill()
		<-d.done
	}
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// expectGroups says that a process daemon works on a data directory, whose control groups must not be left.
func expectGroups(dataDir string) { cgrouptest.Expect(processdaemon.Trees(dataDir)) }

// processesWith returns the pids of processes whose command line holds text.
func processesWith(t *testing.T, text string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}
