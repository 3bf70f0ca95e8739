package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"tandem/localmesos/cmdexec"
	"tandem/localmesos/fault"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "mesos" {
		os.Exit(mesosMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// mesosMain makes this test binary a master, an agent or an executor.
func mesosMain(args []string) int {
	root := &cobra.Command{Use: "mesos"}
	root.AddCommand(NewMasterCommand(), NewAgentCommand(),
		&cobra.Command{Use: "command-executor", Run: func(*cobra.Command, []string) { os.Exit(cmdexec.Main()) }})
	root.SetArgs(args)
	if root.Execute() != nil {
		return 1
	}
	return 0
}

// child is a master or agent as a process of its own.
type child struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	url  string
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var address = regexp.MustCompile(`mesos (?:master|agent) at (http://\S+)\n`)

func start(t *testing.T, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self, append([]string{"mesos"}, args...)...), out: &output{}, done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(c.done); c.cmd.Wait() }()
	t.Cleanup(func() {
		c.cmd.Process.Signal(syscall.SIGUSR1) // an agent takes its executors along
		if args[0] == "master" {
			c.cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case <-c.done:
		case <-time.After(20 * time.Second):
			t.Error("it does not end")
			c.cmd.Process.Kill()
			<-c.done
		}
		if t.Failed() {
			t.Log(c.out.String())
		}
	})
	eventually(t, "its address", func() bool {
		m := address.FindStringSubmatch(c.out.String())
		if m != nil {
			c.url = m[1]
		}
		return m != nil
	})
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// agents asks a master.
func agents(t *testing.T, master string) (ids []string) {
	t.Helper()
	resp, err := http.Get(master + "/slaves")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var body struct {
		Slaves []struct {
			ID     string
			Active bool
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	for _, s := range body.Slaves {
		if s.Active {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func faultCommandLine(t *testing.T, master *child, args ...string) (string, error) {
	t.Helper()
	return run(t, NewFaultCommand(), append([]string{"--master", master.url}, args...)...)
}

// TestFaultsOfProcesses drives a master and an agent, each a process of its own,
// from the command line.
func TestFaultsOfProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	master := start(t, "master", "--port=0", "--work_dir", filepath.Join(dir, "master"), "--enable-faults")
	agent := start(t, "agent", "--port=0", "--ip=127.0.0.1", "--hostname=node-1", "--master", strings.TrimPrefix(master.url, "http://"),
		"--work_dir", filepath.Join(dir, "agent"), "--resources=cpus:1;mem:64", "--enable_faults", "--no-switch_user")
	connected := func() bool { return len(agents(t, master.url)) == 1 }
	eventually(t, "the agent", connected)
	first := agents(t, master.url)

	do := func(want string, args ...string) {
		t.Helper()
		if out, err := faultCommandLine(t, master, args...); err != nil || !strings.Contains(out, want) {
			t.Fatalf("%v: %v, %q, want %q", args, err, out, want)
		}
	}
	refused := func(kind error, args ...string) {
		t.Helper()
		if out, err := faultCommandLine(t, master, args...); !errors.Is(err, kind) {
			t.Errorf("%v: %v, %q, want %v", args, err, out, kind)
		}
	}
	do("no faults", "list")
	do("drop update task=t1 2 times for 1m0s", "drop", "--task", "t1", "--times", "2")
	do("delay executor by 1s for 2s", "delay", "executor", "1s", "--on", "node-1", "--for", "2s")
	do("drop update", "list")
	do(`"kind": "drop"`, "list", "-o", "json")
	do("1 cleared", "clear", "1")
	do("cleared", "clear")
	do("freeze", "freeze", "node-1", "--for", "30s")
	do("1 cleared", "thaw", "node-1")
	refused(fault.ErrUnknown, "freeze", "node-7")
	refused(fault.ErrUnknown, "clear", "99")
	refused(fault.ErrUnknown, "rescind")
	refused(fault.ErrInvalid, "cut", "executor")
	refused(fault.ErrInvalid, "cut")
	refused(fault.ErrInvalid, "freeze", "master", "--for", "2h")
	refused(fault.ErrInvalid, "list", "-o", "yaml")
	refused(fault.ErrUnreachable, "freeze", "127.0.0.1:1")

	// A restart keeps process, port and identity; what is in force is forgotten.
	do("pause-offers", "pause-offers")
	do("restart", "restart", "master")
	eventually(t, "the next master", func() bool { return strings.Count(master.out.String(), "mesos master at "+master.url) == 2 })
	eventually(t, "the agent at the next master", connected)
	do("no faults", "list")
	do("restart", "restart", "node-1", "--away", "200ms")
	eventually(t, "the next agent", func() bool { return strings.Count(agent.out.String(), "mesos agent at "+agent.url) == 2 })
	eventually(t, "the agent again", connected)
	do("reboot", "reboot", "node-1")
	eventually(t, "the agent after the reboot", func() bool { return strings.Count(agent.out.String(), "mesos agent at "+agent.url) == 3 })
	eventually(t, "the agent again", connected)
	if !strings.Contains(agent.out.String(), "the machine was started anew") {
		t.Error("the agent has not noticed that its machine was started anew")
	}
	if now := agents(t, master.url); !slices.Equal(first, now) {
		t.Errorf("the agent was %s and is %s", first, now)
	}
	do("lose", "lose", "node-1")
	<-agent.done
	do("kill", "kill", "master")
	<-master.done
	for _, c := range []*child{agent, master} {
		if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Errorf("%s", c.cmd.ProcessState)
		}
	}
	refused(fault.ErrUnreachable, "list")
}

// TestNoFaultsUnlessEnabled: the endpoint is not there.
func TestNoFaultsUnlessEnabled(t *testing.T) {
	t.Parallel()
	master := start(t, "master", "--port=0", "--registry=in_memory")
	if _, err := faultCommandLine(t, master, "freeze", "master"); !errors.Is(err, fault.ErrDisabled) || !strings.Contains(err.Error(), "--enable-faults") {
		t.Error(err)
	}
	resp, err := http.Get(master.url + "/faults")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("%s", resp.Status)
	}
}

func TestRestartArgs(t *testing.T) {
	t.Parallel()
	first := restartArgs([]string{"tandem", "mesos", "master", "--port=0"}, 5050, time.Second)
	again := restartArgs(first, 5050, 0)
	if want := "tandem mesos master --port=0 --port=5050 --restart_away=0s"; strings.Join(again, " ") != want {
		t.Errorf("%s, want %s", again, want)
	}
}

func TestFaultCompletion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	master := start(t, "master", "--port=0", "--work_dir", filepath.Join(dir, "master"), "--enable-faults")
	start(t, "agent", "--port=0", "--ip=127.0.0.1", "--hostname=node-1", "--master", strings.TrimPrefix(master.url, "http://"), "--work_dir", filepath.Join(dir, "agent"))
	eventually(t, "the agent", func() bool { return len(agents(t, master.url)) == 1 })
	for line, want := range map[string]string{
		"":                    "cut",
		"cut ":                "scheduler",
		"drop ":               "acknowledgement",
		"drop --state ":       "TASK_RUNNING",
		"freeze ":             "node-1",
		"restart ":            "master",
		"reboot ":             "node-1",
		"cut scheduler --on ": "node-1",
		"cut agent --agent ":  "node-1",
	} {
		args := append([]string{cobra.ShellCompRequestCmd, "--master", master.url}, strings.Split(line, " ")...)
		// Completion belongs to the root of a command tree.
		out, err := run(t, NewFaultCommand(), args...)
		if err != nil || !strings.Contains("\n"+out, "\n"+want) {
			t.Errorf("%q: %v, no %q in %q", line, err, want, out)
		}
	}
}
