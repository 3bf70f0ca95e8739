package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/testkit"
)

const filesEnv = "NETNS_TEST_WITHOUT_FILES"

func init() {
	if os.Getenv(filesEnv) == "" {
		return
	}
	// Nothing has been opened yet, also not what is opened once.
	ns, err := os.Open("/proc/thread-self/ns/net")
	var scarce error
	err = errors.Join(err, testkit.WithoutFiles(func() { _, scarce = socket(ns, loopback) }))
	fd, later := socket(ns, loopback)
	fmt.Println("scarce", procid.Scarce(scarce), "then", fd >= 0, later, err)
	os.Exit(0)
}

// TestSocketAfterAWantOfFiles: that the first socket could not be made for want of file
// descriptors does not keep every later one from being made.
func TestSocketAfterAWantOfFiles(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("network namespaces are entered by root only")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), filesEnv+"=1")
	out, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "scarce true then true <nil> <nil>" {
		t.Errorf("%v %s", err, got)
	}
}

// TestProcessWithoutItsMainThread: the kernel shows no namespace of a process whose main
// thread has ended while others run. It lives, and is in one.
func TestProcessWithoutItsMainThread(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("network namespaces are made and entered by root only")
	}
	cmd := testkit.Headless(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	p, err := procid.OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ns, err := Open(p)
	if err != nil || ns == nil {
		t.Fatalf("namespace %v, error %v", ns, err)
	}
	defer ns.Close()
	// It is another one than this program's, in which nothing is up.
	if fd, err := socket(ns, loopback); err != nil {
		t.Error(err)
	} else {
		unix.Close(fd)
	}
	_ = p.Signal(unix.SIGKILL)
	for end := time.Now().Add(30 * time.Second); p.Identity().Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not end")
		}
	}
	if ns, err := Open(p); !errors.Is(err, procid.ErrGone) {
		t.Errorf("of one that has ended: %v, %v", ns, err)
	}
}
