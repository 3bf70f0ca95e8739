package procid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/testkit"
)

const scarceEnv = "PROCID_TEST_WITHOUT_FILES"

func init() {
	var id Identity
	if n, _ := fmt.Sscanf(os.Getenv(scarceEnv), "%d %d %s", &id.Pid, &id.StartTime, &id.BootID); n != 3 {
		return
	}
	// Nothing has been asked about yet, also not what is asked about once.
	var alive, gone bool
	var openErr, led error
	err := testkit.WithoutFiles(func() {
		alive, gone = id.Alive(), id.Gone()
		_, openErr = Open(id)
		_, led = (&Process{id: id}).leads(id.Pid)
	})
	fmt.Printf("alive %t gone %t scarce: open %t led %t then alive %t gone %t %v\n", alive, gone, Scarce(openErr), Scarce(led), id.Alive(), id.Gone(), err)
	os.Exit(0)
}

// TestWithoutFiles: a process that cannot be looked at for want of file descriptors is not
// taken for gone, and neither is it for ever unknown.
func TestWithoutFiles(t *testing.T) {
	t.Parallel()
	id, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", scarceEnv, id.Pid, id.StartTime, id.BootID))
	out, err := cmd.CombinedOutput()
	const want = "alive false gone false scarce: open true led true then alive true gone false <nil>"
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v\n%s\nwant %s", err, out, want)
	}
}

// TestNumberOfAThread: the number of a process that has ended may be given to a thread of
// another one. There is no process of that number then, whatever /proc shows.
func TestNumberOfAThread(t *testing.T) {
	t.Parallel()
	tids, stop := make(chan int), make(chan struct{})
	defer close(stop)
	for range 2 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tids <- unix.Gettid()
			<-stop
		}()
	}
	tid, other := <-tids, <-tids
	if tid == os.Getpid() {
		tid = other // one of them may be the main thread
	}
	if p, err := OpenPid(tid); !errors.Is(err, ErrGone) {
		t.Errorf("%v, %v", p, err)
	}
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	before := Identity{BootID: boot, Pid: tid, StartTime: 1}
	if p, err := Open(before); !errors.Is(err, ErrGone) {
		t.Errorf("%v, %v", p, err)
	}
	if before.Alive() || !before.Gone() {
		t.Error("it is taken for alive")
	}
}

// TestWaitWithoutPoller: the end is noticed when the runtime's poller has no room for the handle.
func TestWaitWithoutPoller(t *testing.T) {
	t.Parallel()
	cmd := spawn(t, "sleep", "60")
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(id.Pid, 0) // a blocking file is not polled
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{id: id, f: os.NewFile(uintptr(fd), "pidfd")}
	defer p.Close()
	if err := p.f.SetReadDeadline(time.Time{}); !errors.Is(err, os.ErrNoDeadline) {
		t.Fatalf("it is polled: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it runs: %v", err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := p.Wait(long); err != nil {
		t.Errorf("it has ended: %v", err)
	}
	p.Close()
	if err := p.Wait(long); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a handle that was closed: %v", err)
	}
}
