package local

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startChild makes a daemon of a program that does nothing.
func startChild(args ...string) (*daemon, error) {
	p := &daemon{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{}), log: "log", record: "/nonexistent/record"}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func TestDaemonThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	s, err := supervise(t.Context(), func(context.Context) (*daemon, error) { return startChild("sleep", "60") }, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	first := s.daemon()
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for s.daemon() == first {
		if time.Now().After(deadline) {
			t.Fatal("no other daemon was started")
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.stop(context.Background()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-failed:
		t.Errorf("a wanted end counts as a failure: %v", err)
	default:
	}
}

func TestDaemonThatEndsAgainAndAgainIsAFailure(t *testing.T) {
	t.Parallel()
	var starts atomic.Int32
	failed := make(chan error, 1)
	s, err := supervise(t.Context(), func(context.Context) (*daemon, error) {
		starts.Add(1)
		return startChild("false")
	}, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if n := starts.Load(); n != maxRestarts+1 || err == nil {
			t.Errorf("%d starts, then %v", n, err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no failure was told")
	}
	if err := s.stop(context.Background()); err != nil {
		t.Error(err)
	}
	_, err = supervise(t.Context(), func(context.Context) (*daemon, error) { return nil, errors.New("cannot") }, nil)
	if err == nil {
		t.Error("a first start that fails must be told")
	}
}
