package procid

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func spawn(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestSignalAndWait(t *testing.T) {
	t.Parallel()
	cmd := spawn(t, "sleep", "60")
	p, err := OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Identity().Alive() {
		t.Error("not alive")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wait: %v", err)
	}
	if _, err := p.Reap(); err == nil {
		t.Fatal("a running child was reaped")
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ctx2, cancel2 := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel2()
	if err := p.Wait(ctx2); err != nil {
		t.Fatal(err)
	}
	if p.Identity().Alive() {
		t.Error("a zombie is not alive")
	}
	st, err := p.Reap()
	if err != nil || st.Signal != int(syscall.SIGTERM) {
		t.Fatalf("reap: %+v %v", st, err)
	}
	if _, err := p.Reap(); !errors.Is(err, ErrNotChild) {
		t.Errorf("second reap: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a gone process: %v", err)
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	cmd := spawn(t, "sh", "-c", "exit 7")
	p, err := OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Reap(); err != nil || st.Code != 7 || st.Signal != 0 {
		t.Fatalf("reap: %+v %v", st, err)
	}
}

func TestReusedPidIsRefused(t *testing.T) {
	t.Parallel()
	id, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	other := id
	other.StartTime++
	if _, err := Open(other); !errors.Is(err, ErrGone) {
		t.Errorf("other start time: %v", err)
	}
	other = id
	other.BootID = "another boot"
	if _, err := Open(other); !errors.Is(err, ErrGone) {
		t.Errorf("other boot: %v", err)
	}
	if other.Alive() {
		t.Error("alive after a reboot")
	}
	if _, err := Open(Identity{BootID: id.BootID}); !errors.Is(err, ErrGone) {
		t.Errorf("zero: %v", err)
	}
	if _, err := Of(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("no such pid: %v", err)
	}
}

func TestCloseEndsWait(t *testing.T) {
	t.Parallel()
	cmd := spawn(t, "sleep", "60")
	p, err := OpenPid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Wait(context.Background()) }()
	time.AfterFunc(10*time.Millisecond, func() { p.Close() })
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("wait did not end")
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"
	for _, name := range []string{"sh", "a b", "a) (b", "))"} {
		st, err := parseStat("12 (" + name + ")" + tail)
		if err != nil || st.start != 4242 || st.state != 'S' {
			t.Errorf("%q: %+v %v", name, st, err)
		}
	}
	for _, bad := range []string{"", "12 (sh", "12 (sh) S 1", "12 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseStat(s) })
}
