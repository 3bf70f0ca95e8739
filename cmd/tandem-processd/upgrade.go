package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/unixhttp"
)

// An upgrade replaces the program of this process by what is at its path now
// (execve(2)). The pid stays, so systemd sees no end and the keeper keeps its next
// subreaper; the socket stays open, so whoever connects meanwhile waits in the
// kernel's queue; the processes are the keeper's and notice nothing.

// successor is the program that follows, resolved when this one starts: once its
// file is replaced the kernel calls it deleted.
type successor struct {
	path string
	args []string
	err  error
}

func findSuccessor() *successor {
	path, err := os.Executable()
	return &successor{path: path, args: os.Args, err: err}
}

// checkTime bounds the trial run of a new program.
const checkTime = 20 * time.Second

// check lets the program look at its configuration, so that one that does not run
// here, or does not know a flag, never takes over.
func (s *successor) check(ctx context.Context, run func(*exec.Cmd) ([]byte, error)) error {
	if s.err != nil {
		return fmt.Errorf("where this program is: %w", s.err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, append([]string{flagConfig, "check"}, s.args[1:]...)...)
	if out, err := run(cmd); err != nil {
		return fmt.Errorf("%s %s: %w: %s", s.path, strings.Join(cmd.Args[1:], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// become replaces this program. It returns only when that failed.
func (s *successor) become(socket *os.File, path string, own bool, notify notifier) error {
	// File descriptors are closed on exec unless somebody says otherwise.
	fd := socket.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("hand over the socket: %w", err)
	}
	defer unix.CloseOnExec(int(fd))
	whose := "systemd"
	if own {
		whose = "own"
	}
	env := append(os.Environ(), fmt.Sprintf("%s=%d %s %s", handedOver, fd, whose, path))
	if notify.address != "" {
		env = append(env, "NOTIFY_SOCKET="+notify.address)
	}
	// Their default is to end a program that has not said yet what it does with them.
	signal.Ignore(syscall.SIGUSR2, syscall.SIGHUP)
	err := syscall.Exec(s.path, s.args, env)
	signal.Reset(syscall.SIGUSR2, syscall.SIGHUP)
	return fmt.Errorf("run %s: %w", s.path, err)
}

// reloading is what systemd is told before: sd_notify(3).
func reloading() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "RELOADING=1"
	}
	return "RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10)
}

// resume makes a listener of a kept socket again, after an upgrade that failed.
func resume(socket *os.File, path, group string, own bool) (*unixhttp.Listener, error) {
	l, err := unixhttp.Inherit(socket, path, group, own)
	if err != nil {
		return nil, errors.Join(errors.New("go on without an upgrade"), err)
	}
	return l, nil
}
