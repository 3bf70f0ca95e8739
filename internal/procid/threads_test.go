package procid

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const threadsEnv = "PROCID_TEST_MAIN_THREAD_ENDS"

func init() {
	if os.Getenv(threadsEnv) == "" {
		return
	}
	// The main thread: package initialization runs on it, locked.
	runtime.LockOSThread()
	go func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			// Field 3 of its own stat, as the kernel shows the whole process.
			if st, err := readStat(os.Getpid()); err == nil && st.state == 'Z' {
				os.Stdout.WriteString("ready\n")
				time.Sleep(time.Hour) // a program that waits for nothing is ended as deadlocked
			}
		}
		os.Exit(3)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // ends this thread alone
}

// TestProcessWithoutItsMainThreadIsAlive: the kernel shows a process as a zombie whose main thread has
// ended. As long as others run it is none, and a wait for it goes on.
func TestProcessWithoutItsMainThreadIsAlive(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), threadsEnv+"=1")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child says %q", line)
	}
	p, err := OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Identity().Alive() {
		t.Error("it is taken for dead")
	}
	if !Headless(cmd.Process.Pid) || Headless(os.Getpid()) {
		t.Error("its main thread has ended, and this program's has not")
	}
	if led, err := p.leads(cmd.Process.Pid); err != nil || !led {
		t.Errorf("it is not taken for one of its group: %v", err)
	}
	_ = p.Signal(unix.SIGKILL)
	for end := time.Now().Add(15 * time.Second); p.Identity().Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not end")
		}
	}
	if st, err := readStat(cmd.Process.Pid); err != nil || st.state != 'Z' {
		t.Errorf("%+v %v", st, err)
	}
}
