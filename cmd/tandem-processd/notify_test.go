package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/testkit"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
)

// TestNotify: readiness once it serves, the watchdog while it does, and the end.
func TestNotify(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cgrouptest.Expect(processdaemon.Trees(filepath.Join(dir, "data")))
	cmd := exec.Command(binary, "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "n"), "WATCHDOG_USEC=40000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await := func(want string) {
		t.Helper()
		buf := make([]byte, 256)
		if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := l.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if string(buf[:n]) == want {
				return
			}
		}
	}
	await("READY=1")
	if _, err := os.Stat(filepath.Join(dir, "s")); err != nil {
		t.Errorf("ready, and does not listen: %v", err)
	}
	await("WATCHDOG=1")
	await("WATCHDOG=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestUnit: the unit that is shipped names flags that there are.
func TestUnit(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../contrib/systemd/tandem-processd.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Type=notify", "KillMode=process", "WatchdogSec=", "ExecReload=/bin/sh -c 'kill -USR2 $MAINPID'", "NotifyAccess=main", "StartLimitIntervalSec=0"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("lacks %s", want)
		}
	}
	_, line, _ := strings.Cut(string(b), "ExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	for _, word := range strings.Fields(line)[1:] {
		if name, ok := strings.CutPrefix(word, "--"); ok && command(os.Stdout, os.Stderr).PersistentFlags().Lookup(name) == nil {
			t.Errorf("there is no flag %s", word)
		}
	}
}

// TestWatchdogIsNotFedByASickDaemon: what does not answer, or says that it is not
// well, is not told to be.
func TestWatchdogIsNotFedByASickDaemon(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var looks, pings int
	notifier{filepath.Join(dir, "n")}.watchdog(ctx, 10*time.Millisecond, func(context.Context) error {
		switch looks++; {
		case looks == 6:
			cancel()
		case looks%2 == 0:
			return nil
		}
		return errors.New("not well")
	})
	for limit := 20 * time.Second; ; {
		if err := l.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(make([]byte, 64)); err != nil {
			break
		}
		// What was sent waits in the socket: a third would be there by now.
		if pings++; pings == 2 {
			limit = 50 * time.Millisecond
		}
	}
	if pings != 2 {
		t.Errorf("%d pings, want 2 (%d looks)", pings, looks)
	}
}

// TestSocketUnit: the socket unit makes what the daemon looks for, where the service and
// its clients expect it.
func TestSocketUnit(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../contrib/systemd/tandem-processd.socket")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ListenStream=" + client.DefaultSocket, "SocketMode=0660", "FileDescriptorName=" + socketName, "RemoveOnStop=yes"} {
		if !strings.Contains(string(b), want+"\n") {
			t.Errorf("lacks %s", want)
		}
	}
}
