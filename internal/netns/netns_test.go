package netns

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// inside starts a process in a network namespace of its own, with its loopback
// interface up, and opens that namespace.
func inside(t *testing.T) (*os.File, *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces are made and entered by root only")
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := procid.OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ns, err := Open(p)
	if err != nil || ns == nil {
		t.Fatalf("namespace %v, error %v", ns, err)
	}
	t.Cleanup(func() { ns.Close() })
	fd, err := socket(ns, loopback)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
	return ns, cmd
}

// listen makes a listening socket inside and returns its address.
func listen(t *testing.T, ns *os.File, backlog int) netip.AddrPort {
	t.Helper()
	fd, err := socket(ns, loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(loopback, 0))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(name.(*unix.SockaddrInet4).Port))
}

func TestDialReachesWhatListensInsideOnly(t *testing.T) {
	ns, _ := inside(t)
	to := listen(t, ns, 128)
	c, err := DialTCP(t.Context(), ns, to)
	if err != nil {
		t.Fatal(err)
	}
	if err := ReachTCP(t.Context(), ns, to); err != nil {
		t.Error(err)
	}
	if err := ReachTCP(t.Context(), nil, to); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("outside: %v, want a refusal", err)
	}
	if got := c.RemoteAddr().String(); got != to.String() {
		t.Errorf("connected to %s, want %s", got, to)
	}
	c.Close()
	if c, err := DialTCP(t.Context(), nil, to); !errors.Is(err, syscall.ECONNREFUSED) {
		if c != nil {
			c.Close()
		}
		t.Errorf("outside: %v, want a refusal", err)
	}
}

func TestDialTellsWhyNot(t *testing.T) {
	ns, _ := inside(t)
	if _, err := DialTCP(t.Context(), ns, netip.AddrPortFrom(loopback, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("closed port: %v", err)
	}
	if _, err := DialTCP(t.Context(), ns, netip.MustParseAddrPort("192.0.2.1:80")); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("no route: %v", err)
	}
	// Nobody accepts: once the queue is full, the kernel drops every SYN.
	to := listen(t, ns, 0)
	for {
		limited, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		c, err := DialTCP(limited, ns, to)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("mute port: %v", err)
			}
			break
		}
		defer c.Close()
	}
	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := DialTCP(cancelled, ns, to); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNoThreadStaysInside(t *testing.T) {
	ns, _ := inside(t)
	to := listen(t, ns, 4096)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c, err := DialTCP(t.Context(), ns, to)
				if err != nil {
					t.Error(err)
					return
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	its, err := ns.Stat()
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, path := range threads {
		if st, err := os.Stat(path); err == nil && os.SameFile(st, its) {
			t.Errorf("%s is the foreign namespace", path)
		}
	}
}

func TestOwnNamespaceIsNil(t *testing.T) {
	p, err := procid.OpenPid(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if ns, err := Open(p); ns != nil || err != nil {
		t.Errorf("%v, %v; want neither", ns, err)
	}
}

func TestAProcessThatHasEndedIsGone(t *testing.T) {
	_, cmd := inside(t)
	p, err := procid.OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := Open(p); !errors.Is(err, procid.ErrGone) {
		t.Errorf("error %v, want ErrGone", err)
	}
}
