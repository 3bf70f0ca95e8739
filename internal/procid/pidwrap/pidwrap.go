// Package pidwrap lets tests force what takes a busy machine days: that the pid of a
// process that has ended is given to another one. A test runs in a pid namespace of
// its own, in which it chooses the next pid. It is for tests alone.
package pidwrap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
)

const (
	nameEnv = "TANDEM_TEST_PID_NAMESPACE"
	// lastPid holds the pid that was given last in the writer's namespace
	// (proc_sys_kernel(5), ns_last_pid).
	lastPid = "/proc/sys/kernel/ns_last_pid"
	limit   = 4 * time.Minute
)

// Inside runs the calling test once more in a process that is the first one of a new
// pid namespace, with a /proc and mounts of its own, and fails when that one fails.
// It returns true there, and false to the caller, which has nothing left to do.
// Whatever the test leaves running ends with its namespace.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(nameEnv) == t.Name() {
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.Mount("proc", "/proc", "proc", 0, "")
		}
		if err != nil {
			t.Fatal("a /proc of its own:", err)
		}
		return true
	}
	if _, err := os.Stat(lastPid); err != nil {
		t.Skipf("the next pid cannot be chosen: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+limit.String())
	cmd.Env = append(os.Environ(), nameEnv+"="+t.Name())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	// A child that the namespace's end kills may hold the pipe for a moment.
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("a pid namespace cannot be made: %v", err)
	}
	if err != nil {
		t.Errorf("in its pid namespace: %v", err)
	}
	t.Logf("%s", out.Bytes())
	return false
}

// Choose makes pid the next one that is given in the namespace, to whichever process
// or thread is the first to be made.
func Choose(pid int) error {
	return os.WriteFile(lastPid, []byte(strconv.Itoa(pid-1)), 0)
}

// Stranger starts a process of the caller that has the pid of one that is gone, and
// is younger than that one by the kernel's count. It ends with the test.
func Stranger(t *testing.T, of procid.Identity, argv ...string) procid.Identity {
	t.Helper()
	for end := time.Now().Add(limit / 4); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := Choose(of.Pid); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it is killed below
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() } // it may have ended
		id, err := procid.Of(cmd.Process.Pid)
		// Another thread may have been quicker, and start times have ticks of 10 ms.
		if err == nil && id.Pid == of.Pid && id.StartTime != of.StartTime {
			t.Cleanup(kill)
			return id
		}
		kill()
	}
	t.Fatalf("no process could be given pid %d", of.Pid)
	return procid.Identity{}
}

// Gone waits until nothing has the pid of a process any more, not even a zombie.
func Gone(t *testing.T, id procid.Identity) {
	t.Helper()
	for end := time.Now().Add(limit / 4); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", id.Pid)); os.IsNotExist(err) {
			return
		}
	}
	t.Fatalf("process %v is still there", id)
}
