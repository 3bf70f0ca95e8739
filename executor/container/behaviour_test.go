package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/network"
)

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// ask connects to a port of this machine and returns what it says, or "".
func ask(port int) string {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	b, _ := io.ReadAll(c)
	return string(b)
}

// TestE9E10SiblingsShareOneNetwork: the second container is reached through the
// ports that the first one publishes for both, hostname or not.
func TestE9E10SiblingsShareOneNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p1, p2 := freePort(t), freePort(t)
	serve := func(text string, port int) string {
		return fmt.Sprintf("while :; do echo %s | nc -l -p %d; done", text, port)
	}
	ports := []api.TaskPort{{Name: "a", ContainerPort: 7001, HostPort: p1, Protocol: "tcp"}, {Name: "b", ContainerPort: 7002, HostPort: p2, Protocol: "tcp"}}
	first := f.task(serve("first", 7001), func(e *executor.Task) {
		e.Spec.Network.Mode, e.Spec.Container.Hostname, e.Publish, e.Spec.Ports = "BRIDGE", "one", ports, ports[:1]
	})
	second := f.task(serve("second", 7002), func(e *executor.Task) {
		e.Spec.Network.Mode, e.Spec.Container.Hostname, e.JoinTask, e.Spec.Ports = "BRIDGE", "two", first.ID, ports[1:]
	})
	if err := f.Create(f.ctx(), second); err == nil || !strings.Contains(err.Error(), "create that one first") {
		t.Errorf("joined nothing: %v", err)
	}
	a, b := f.launch(first), f.launch(second)
	if len(a.IPs) != 1 || len(b.IPs) != 1 || a.IPs[0] != b.IPs[0] {
		t.Errorf("addresses %v and %v", a.IPs, b.IPs)
	}
	eventually(t, "first answers", func() bool { return ask(p1) == "first\n" })
	eventually(t, "second answers", func() bool { return ask(p2) == "second\n" })
	l, err := network.ReadListeners()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []int{p1, p2} {
		if x, ok := l.Conflict(netip.MustParseAddr("127.0.0.1"), p, "tcp"); ok && x.Addr.String() != "127.0.0.1" {
			t.Errorf("published on %v, not on the address asked for", x.Addr)
		}
	}
}

func TestHostNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("hostname; sleep 60", func(e *executor.Task) { e.Spec.Network.Mode, e.Spec.Container.Hostname = "HOST", "ignored" })
	s := f.launch(task)
	if len(s.IPs) != 1 || s.IPs[0] != "127.0.0.1" {
		t.Errorf("addresses %v", s.IPs)
	}
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", s.Pid)); err != nil || theirs != mine {
		t.Errorf("namespace %s, want %s (%v)", theirs, mine, err)
	}
}

func TestTakenHostPortNamesTheListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	task := f.task("sleep 60", func(e *executor.Task) {
		e.Spec.Network.Mode = "BRIDGE"
		e.Publish = []api.TaskPort{{Name: "http", ContainerPort: 80, HostPort: port, Protocol: "tcp"}}
	})
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	_, err = f.Start(f.ctx(), task.ID)
	var inUse *network.InUseError
	if !errors.As(err, &inUse) || inUse.Name != "http" || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
}

// TestCommandReplacesEntrypoint: as the format's documentation says, and unlike what once was.
func TestCommandReplacesEntrypoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for want, change := range map[string]func(*api.ContainerTask){
		"from the image\n": func(c *api.ContainerTask) { c.Args = nil },
		"args only\n":      func(c *api.ContainerTask) { c.Args = []string{"echo args only"} },
		"command -x\n":     func(c *api.ContainerTask) { c.Command, c.Args = []string{"/bin/echo", "command"}, []string{"-x"} },
		"/tmp b\n": func(c *api.ContainerTask) {
			c.WorkingDir, c.Command, c.Args = "/tmp", []string{"/bin/sh", "-c", `echo $(pwd) $A`}, nil
		},
	} {
		task := f.task("", func(e *executor.Task) { e.Env = []string{"A=b"}; change(e.Spec.Container) })
		f.launch(task)
		if exit, out := f.finish(task); exit.Code != 0 || out != want {
			t.Errorf("%+v %q, want %q", exit, out, want)
		}
	}
}

func TestCommandThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("", func(e *executor.Task) { e.Spec.Container.Command = []string{"/bin/nosuch"} })
	if err := f.Create(f.ctx(), task); err != nil {
		t.Fatal(err)
	}
	_, err := f.Start(f.ctx(), task.ID)
	if err == nil || !strings.Contains(err.Error(), `command "/bin/nosuch" does not exist in image`) {
		t.Errorf("got %v", err)
	}
}

// TestE8ReadOnlyVolumeIsReadOnly: tried, not believed. Missing directories are made.
func TestE8ReadOnlyVolumeIsReadOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := filepath.Join(f.dir, "missing", "data")
	task := f.task("touch /ro/a; touch /rw/b; touch /scratch/c; ls /ro", func(e *executor.Task) {
		e.Spec.Container.Volumes = []api.ContainerVolume{
			{HostPath: dir, MountPath: "/ro", ReadOnly: true}, {HostPath: dir, MountPath: "/rw"}, {Name: "scratch", MountPath: "/scratch"},
		}
	})
	f.launch(task)
	_, out := f.finish(task)
	if out != "b\n" || !strings.Contains(f.read(task, "stderr"), "Read-only file system") {
		t.Errorf("stdout %q, stderr %q", out, f.read(task, "stderr"))
	}
	if _, err := os.Stat(filepath.Join(task.Sandbox, "volumes", "scratch", "c")); err != nil {
		t.Error(err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("seq 1 20000")
	f.launch(task)
	_, out := f.finish(task)
	if !strings.HasPrefix(out, "1\n2\n") || !strings.HasSuffix(out, "\n20000\n") || strings.Count(out, "\n") != 20000 {
		t.Errorf("%d lines", strings.Count(out, "\n"))
	}
	tail, err := f.Tail(f.ctx(), task.ID, 15)
	if err != nil || tail != "19999\n20000\n" {
		t.Errorf("tail %q, %v", tail, err)
	}
}

func TestLogIsNotWrittenThroughALink(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("echo evil")
	target := filepath.Join(f.dir, "target")
	if err := os.MkdirAll(task.Sandbox, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(task.Sandbox, "stdout")); err != nil {
		t.Fatal(err)
	}
	f.launch(task)
	if _, err := f.Wait(f.ctx(), task.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("wrote through a symbolic link")
	}
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(f.ctx())
	task := f.task("sleep 60")
	done := make(chan error, 1)
	go func() { done <- f.Create(ctx, task) }()
	cancel()
	<-done
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Error(err)
	}
	if err := f.Remove(f.ctx(), task.ID); err != nil {
		t.Error(err)
	}
	if left := f.containers(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
