package procid

import (
	"os"
	"tandem/internal/testkit"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestProcessWithoutItsMainThreadIsAlive: the kernel shows a process as a zombie whose main thread has
// ended. As long as others run it is none, and a wait for it goes on.
func TestProcessWithoutItsMainThreadIsAlive(t *testing.T) {
	t.Parallel()
	cmd := testkit.Headless(t, &unix.SysProcAttr{Setpgid: true})
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
