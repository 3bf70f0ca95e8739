// Package stack runs the built binaries as separate processes on this machine,
// as a cluster would: a Mesos master, agents, the scheduler and the process
// daemon. Each can be killed with SIGKILL and started again on the same
// directory, which is what the fault tests do.
//
// It is for tests. It starts and stops its own processes only, by pid.
package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Options describe a stack.
type Options struct {
	// Bin is the directory of the built binaries; Dir is a short, empty
	// directory (the daemon's socket lies in it, and a socket's path is
	// limited to 107 bytes, see unix(7)).
	Bin, Dir string
	// Agents is the number of agents; 0 means 1, the most is MaxAgents.
	Agents int
	// Cluster is a part of every identifier; empty means the scheduler's default.
	Cluster string
	// Flags are given to a process in addition, by its name.
	Flags map[string][]string
	// Env is added to the environment of every process, and of what agents
	// start: the executors.
	Env []string
	// Secure has the scheduler speak TLS to the master; Env and Flags must then say how.
	Secure bool
	// Via returns the address (host:port) by which a process, or Executor,
	// reaches another one at address; nil means directly.
	Via func(from, address string) string
}

// Stack is a running set of processes.
type Stack struct {
	o     Options
	slot  *slot
	ports struct{ master, scheduler int }

	mu    sync.Mutex
	procs map[string]*proc
	env   map[string][]string
}

// proc is one of the processes, and how to start it again.
type proc struct {
	name string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
}

// Names of the processes; the agents are agent-0, agent-1, ...
const (
	Master    = "master"
	Scheduler = "scheduler"
	Daemon    = "processd"
	// Executor stands for all executors, in Options.Via only: agents start them.
	Executor = "executor"
)

// Agent returns the name of an agent's process.
func Agent(i int) string { return fmt.Sprintf("agent-%d", i) }

// New prepares a stack; nothing runs yet. Close releases what it holds.
func New(o Options) (*Stack, error) {
	if o.Agents == 0 {
		o.Agents = 1
	}
	if o.Agents > MaxAgents {
		return nil, fmt.Errorf("stack: %d agents; at most %d have ports of their own", o.Agents, MaxAgents)
	}
	if o.Via == nil {
		o.Via = func(_, address string) string { return address }
	}
	slot, err := takeSlot()
	if err != nil {
		return nil, err
	}
	s := &Stack{o: o, slot: slot, procs: map[string]*proc{}, env: map[string][]string{}}
	s.ports.master, s.ports.scheduler = slot.port(0), slot.port(1)
	return s, nil
}

// Start starts everything and waits until the scheduler is ready. After an error some of it may run until Close.
func (s *Stack) Start(ctx context.Context) error {
	o := &s.o
	if err := s.launch(Daemon, "tandem-processd", "--default-user", "root", "--data-dir", s.dir("tandem"), "--socket", s.Socket(), "--workspace", s.dir("workspace")); err != nil {
		return err
	}
	if err := s.launch(Master, "tandem", "mesos", "master", "--ip=127.0.0.1", "--port="+strconv.Itoa(s.ports.master), "--hostname=127.0.0.1", "--work_dir="+s.dir("master")); err != nil {
		return err
	}
	for i := range o.Agents {
		ip := AgentIP(i)
		begin, end := s.slot.agentPorts(i)
		if err := s.launch(Agent(i), "tandem",
			"mesos", "agent", "--ip="+ip, "--port="+strconv.Itoa(s.slot.port(2+i)), "--hostname="+ip,
			"--master="+o.Via(Agent(i), s.masterAddress()), "--work_dir="+s.dir(Agent(i)),
			fmt.Sprintf("--resources=cpus:8;mem:8192;disk:20480;ports:[%d-%d]", begin, end),
			fmt.Sprintf("--attributes=zone:%c", 'a'+i), "--cgroups_root="+s.Cgroup(),
		); err != nil {
			return err
		}
	}
	args := []string{
		"scheduler", "--master", s.scheme() + o.Via(Scheduler, s.masterAddress()), "--data-dir", s.dir("scheduler"),
		"--listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.scheduler)), "--executor-command", s.executorCommand(),
	}
	if o.Cluster != "" {
		args = append(args, "--cluster", o.Cluster)
	}
	if err := s.launch(Scheduler, "tandem", args...); err != nil {
		return err
	}
	return s.WaitReady(ctx)
}

// executorCommand is the shell command by which agents start executors. The
// shell sees to it that executors reach their own agent by Options.Via.
func (s *Stack) executorCommand() string {
	command := fmt.Sprintf("exec %s --data-dir %s --processd-socket %s --log-level debug", filepath.Join(s.o.Bin, "tandem-executor"), s.dir("tandem"), s.Socket())
	for i := range s.o.Agents {
		own := s.AgentAddress(i)
		if via := s.o.Via(Executor, own); via != own {
			command = fmt.Sprintf("if [ \"$MESOS_AGENT_ENDPOINT\" = %s ]; then export MESOS_AGENT_ENDPOINT=%s; fi; %s", own, via, command)
		}
	}
	return command
}

func (s *Stack) masterAddress() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.master))
}

func (s *Stack) scheme() string {
	if s.o.Secure {
		return "https://"
	}
	return "http://"
}

// Agents is the number of agents.
func (s *Stack) Agents() int { return s.o.Agents }

// AgentAddress is host:port of an agent.
func (s *Stack) AgentAddress(i int) string {
	return net.JoinHostPort(AgentIP(i), strconv.Itoa(s.slot.port(2+i)))
}

// Cgroup is the name of the control group below which the agents keep executors.
func (s *Stack) Cgroup() string { return "mesos-" + filepath.Base(s.o.Dir) }

// SparePorts is how many ports SparePort has.
const SparePorts = sparePorts

// SparePort returns a port that belongs to this stack and that no agent offers.
func (s *Stack) SparePort(i int) int { return s.slot.spare(i) }

// SetEnv gives a process that is started from now on more environment, in place
// of what an earlier call gave it.
func (s *Stack) SetEnv(name string, env ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env[name] = env
}

// Pid returns the pid of a process that was started, whether or not it still runs.
func (s *Stack) Pid(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[name]; p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Ended returns a channel that is closed when a process has ended.
func (s *Stack) Ended(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[name]; p != nil {
		return p.done
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// AgentIP is the address of an agent: 127.0.0.1, 127.0.0.2, and so on.
func AgentIP(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// Server is the URL of the scheduler.
func (s *Stack) Server() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports.scheduler) }

// MasterURL is the URL of the master.
func (s *Stack) MasterURL() string { return fmt.Sprintf("%s127.0.0.1:%d", s.scheme(), s.ports.master) }

// Socket is the path of the process daemon's socket.
func (s *Stack) Socket() string { return filepath.Join(s.o.Dir, "p.sock") }

// Dir is the directory that everything lies in.
func (s *Stack) Dir() string { return s.o.Dir }

func (s *Stack) dir(name string) string { return filepath.Join(s.o.Dir, name) }

// Log returns what a process has written so far.
func (s *Stack) Log(name string) string {
	text, err := os.ReadFile(s.dir(name + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tandem runs the command line against this stack and returns its output (stdout and stderr together) and exit code.
func (s *Stack) Tandem(ctx context.Context, args ...string) (string, int) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.o.Bin, "tandem"), args...)
	cmd.Env = append(os.Environ(), "TANDEM_SERVER="+s.Server(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	case err != nil:
		return string(out) + err.Error(), -1
	}
	return string(out), 0
}

// WaitReady waits until the scheduler says that it is subscribed and has its state.
func (s *Stack) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Server()+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stack in %s: the scheduler was not ready in time; its log ends:\n%s", s.o.Dir, tail(s.Log(Scheduler), 2000))
		case <-tick.C:
		}
	}
}

// Kill ends a process with SIGKILL and waits until it is gone.
func (s *Stack) Kill(name string) error { return s.end(name, syscall.SIGKILL) }

// Terminate ends a process with SIGTERM, and with SIGKILL when that takes longer than ten seconds.
func (s *Stack) Terminate(name string) error { return s.end(name, syscall.SIGTERM) }

func (s *Stack) end(name string, sig syscall.Signal) error {
	s.mu.Lock()
	p := s.procs[name]
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("stack: no process %q", name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stack: signal %v to %s: %w", sig, name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
	}
	_ = p.cmd.Process.Kill() // it may have ended just now
	<-p.done
	if sig != syscall.SIGKILL {
		return fmt.Errorf("stack: %s did not end within 10 s of signal %v", name, sig)
	}
	return nil
}

// Restart starts a process again that was ended.
func (s *Stack) Restart(name string) error {
	s.mu.Lock()
	p := s.procs[name]
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("stack: no process %q", name)
	}
	return s.launch(p.name, p.args[0], p.args[1:]...)
}

// Close ends everything: the scheduler first, the daemon last. Executors that
// still live are ended through their agents' sandboxes by the caller's clean-up
// of tasks; call it after the taskgroups are deleted.
func (s *Stack) Close() {
	s.mu.Lock()
	names := []string{Scheduler}
	for i := range s.o.Agents {
		names = append(names, Agent(i))
	}
	names = append(names, Master, Daemon)
	var running []string
	for _, name := range names {
		if s.procs[name] != nil {
			running = append(running, name)
		}
	}
	s.mu.Unlock()
	for _, name := range running {
		_ = s.Terminate(name) // an error means that it had to be killed, which it was
	}
	s.slot.release()
}

func (s *Stack) launch(name, binary string, args ...string) error {
	log, err := os.OpenFile(s.dir(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("stack: log of %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.o.Bin, binary), append(slices.Clone(args), s.o.Flags[name]...)...) //nolint:noctx // it outlives the caller's context; Close ends it
	cmd.Stdout, cmd.Stderr = log, log
	s.mu.Lock()
	cmd.Env = slices.Concat(os.Environ(), s.o.Env, s.env[name])
	s.mu.Unlock()
	// In a session of its own: a signal to the test's group must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("stack: starting %s: %w", name, err)
	}
	p := &proc{name: name, args: append([]string{binary}, args...), cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	s.mu.Lock()
	s.procs[name] = p
	s.mu.Unlock()
	return nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}
