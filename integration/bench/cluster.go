package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a master or an agent in a process of its own.
type server struct {
	cmd *exec.Cmd
	log *os.File
	url string
}

// startMaster starts a master with a durable registry in a directory.
func startMaster(ctx context.Context, bin, dir string) (*server, error) {
	return start(ctx, bin, filepath.Join(dir, "master"), "master")
}

// startAgent starts an agent of a master.
func startAgent(ctx context.Context, bin, dir string, master *server) (*server, error) {
	return start(ctx, bin, filepath.Join(dir, "agent"), "agent", "--master", master.url, "--hostname", "127.0.0.1",
		"--resources", "cpus:100;mem:100000;disk:100000;ports:[31000-31999]")
}

// startBoth starts a master and an agent. stop ends the agent, with its executors, and then the master.
func startBoth(ctx context.Context, bin, dir string) (master, agent *server, stop func(), err error) {
	if master, err = startMaster(ctx, bin, dir); err != nil {
		return nil, nil, nil, err
	}
	if agent, err = startAgent(ctx, bin, dir, master); err != nil {
		master.stop(syscall.SIGTERM)
		return nil, nil, nil, err
	}
	return master, agent, func() {
		agent.stop(syscall.SIGUSR1)
		master.stop(syscall.SIGTERM)
	}, nil
}

func start(ctx context.Context, bin, dir, what string, args ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	args = append([]string{"mesos", what, "--ip", "127.0.0.1", "--port", port, "--work_dir", dir}, args...)
	s := &server{cmd: exec.CommandContext(ctx, filepath.Join(bin, "tandem"), args...), log: log, url: "http://127.0.0.1:" + port}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	if err := s.cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}
	if err := s.answers(ctx); err != nil {
		text, _ := os.ReadFile(log.Name()) // the error says enough without it
		s.stop(syscall.SIGKILL)
		return nil, fmt.Errorf("mesos %s: %w\n%s", what, err, text)
	}
	return s, nil
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func (s *server) answers(ctx context.Context) error {
	client := newClient()
	defer client.CloseIdleConnections()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			return nil
		}
	}
	return fmt.Errorf("no answer within %s", patience)
}

// stop ends the server. SIGUSR1 makes an agent end its executors first.
func (s *server) stop(sig syscall.Signal) {
	s.cmd.Process.Signal(sig) //nolint:errcheck // it may have ended
	s.cmd.Wait()              //nolint:errcheck // as above
	s.log.Close()
}

// memory is what the server has of physical memory, in MiB.
func (s *server) memory() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[0]) == "VmRSS:" {
			kb, err := strconv.ParseFloat(string(f[1]), 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}

// cpu is the time that a process has spent on processors; schedstat counts
// nanoseconds where stat counts hundredths of a second. Threads of a Go program
// do not end.
func cpu(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(err, fmt.Errorf("process %d has no schedstat", pid))
	}
	var total time.Duration
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		total += time.Duration(ns)
	}
	return total, nil
}
