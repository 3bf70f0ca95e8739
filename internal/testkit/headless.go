package testkit

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// HeadlessVar is the environment variable that makes a test program which uses this package,
// started with any value of it, a headless process, see Headless.
const HeadlessVar = "TANDEM_TEST_HEADLESS"

func init() {
	if os.Getenv(HeadlessVar) == "" {
		return
	}
	// Package initialization runs on the main thread, locked to it.
	runtime.LockOSThread()
	go func() {
		const limit, pause = time.Minute, time.Millisecond
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(pause) {
			if stat, err := os.ReadFile("/proc/self/stat"); err == nil && bytes.Contains(stat, []byte(") Z ")) {
				os.Stdout.WriteString(headlessReady)
				time.Sleep(time.Hour) // a program that waits for nothing is ended as deadlocked
			}
		}
		os.Exit(1)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends this thread alone
}

const headlessReady = "ready\n"

// Headless starts this test program once more, as a process whose main thread has ended while
// another runs. It is killed and waited for at the end of the test. attr may be nil.
func Headless(t testing.TB, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), HeadlessVar+"=1")
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // whether it has ended, Wait tells
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != headlessReady {
		t.Fatalf("the headless process says %q, %v", line, err)
	}
	return cmd
}
