package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent"
	session "tandem/scheduler/mesos"
)

// executorLog is what the executor of a group has written to its log.
func (c *cluster) executorLog(group string) string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "agent", "slaves", "*", "frameworks", "*", "executors", group, "runs", "latest", "stderr"))
	if err != nil {
		c.t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			text.Write(b)
		}
	}
	return text.String()
}

// waitLog waits until the executor's log holds a text.
func (c *cluster) waitLog(group, text string) {
	c.t.Helper()
	eventually(c.t, 15*time.Second, fmt.Sprintf("%q in the executor's log", text), func() bool { return strings.Contains(c.executorLog(group), text) })
}

// waitExit waits until the framework hears of the executor's end, and returns its raw wait status.
func (c *cluster) waitExit(group string) int {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "the news of the executor's end", func() bool { return c.failure(group) != nil })
	return c.failure(group).Status
}

// withTokens makes an agent that lets in only executors with a token of its own.
func withTokens(t *testing.T) (flags func(*agent.Flags), keyFile string) {
	t.Helper()
	keyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte("first key"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(f *agent.Flags) { f.AuthenticateHTTPExecutors, f.JWTSecretKey = true, keyFile }, keyFile
}

// tokenStart is how every token begins: the header of a JWT, {"alg":"HS256", in base64.
const tokenStart = "eyJhbGciOiJIUzI1NiI"

func TestExecutorTokenReachesTheAgentAndNobodyElse(t *testing.T) {
	t.Parallel()
	needEngine(t)
	flags, _ := withTokens(t)
	c := startCluster(t, clusterOptions{checkpoint: true, agent: flags})
	b := box("b", "HOST", "env; exec sleep 1000")
	g := c.launch(proc(c, "a", "env; exec sleep 1000"), b)
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.waitState(g, "b", mesos.TASK_RUNNING)
	for what, pid := range map[string]int{"executor": c.executorPid(g), "process": c.report(g, "a").Pid, "container": c.report(g, "b").Pid, "daemon": c.daemon.cmd.Process.Pid} {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || strings.Contains(string(env), tokenStart) {
			t.Errorf("the environment of the %s, pid %d: %q, %v", what, pid, env, err)
		}
	}
	// It is good for an agent that was restarted, too.
	c.agent.Kill()
	c.startAgent()
	c.waitLog(g, "again=true")
	c.kill(g, "a")
	c.kill(g, "b")
	c.waitState(g, "a", mesos.TASK_KILLED)
	c.waitState(g, "b", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	c.nothingLeft()
	files := 0
	err := filepath.WalkDir(filepath.Join(c.dir, "agent", "slaves"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		if strings.Contains(string(text), tokenStart) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil || files < 2 {
		t.Errorf("%d files in the sandboxes, error %v", files, err)
	}
	if strings.Contains(c.log.String()+c.daemon.log.String(), tokenStart) {
		t.Error("a log holds the token")
	}
}

func TestFaultTokenIsNotAcceptedAnyMore(t *testing.T) {
	t.Parallel()
	flags, keyFile := withTokens(t)
	c := startCluster(t, clusterOptions{checkpoint: true, backoff: 10 * time.Second, agent: flags})
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	pid := c.report(g, "a").Pid
	c.agent.Kill()
	if err := os.WriteFile(keyFile, []byte("another key"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.startAgent()
	c.waitExecutorGone(g)
	if log := c.executorLog(g); !strings.Contains(log, "does not accept the executor's token") || !strings.Contains(log, "401") {
		t.Error("the executor's log does not say why it ended")
	}
	if alive(pid) {
		t.Errorf("process %d lives", pid)
	}
	c.nothingLeft()
}

func TestExecutorWithoutAGoodToken(t *testing.T) {
	t.Parallel()
	flags, _ := withTokens(t)
	c := startCluster(t, clusterOptions{checkpoint: true, agent: flags})
	for value, want := range map[string]string{"": "given none in MESOS_EXECUTOR_AUTHENTICATION_TOKEN", "stolen": "does not accept the executor's token"} {
		c.executorEnv = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN=" + value
		g := c.launch(proc(c, "a", "exec sleep 1000"))
		// It ends at once, with exit code 1, and does not wait until the agent gives it up.
		if status := c.waitExit(g); status != 1<<8 {
			t.Errorf("%q: wait status %#x, want that of exit code 1", value, status)
		}
		c.waitState(g, "a", mesos.TASK_FAILED)
		if log := c.executorLog(g); !strings.Contains(log, want) || strings.Contains(log, "stolen") {
			t.Errorf("%q: the executor's log lacks %q, or holds the token", value, want)
		}
	}
	c.nothingLeft()
}

func TestExecutorOverTheAgentsUnixSocket(t *testing.T) {
	t.Parallel()
	flags, _ := withTokens(t)
	c := startCluster(t, clusterOptions{checkpoint: true, agent: func(f *agent.Flags) { flags(f); f.HTTPExecutorDomainSockets = true }})
	// Nobody listens there: whoever does not use the socket fails.
	c.executorEnv = "MESOS_AGENT_ENDPOINT=127.0.0.1:1"
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	c.agent.Kill()
	c.startAgent()
	c.waitLog(g, "again=true")
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	c.nothingLeft()
}

func TestFaultRecoveryTimeoutPasses(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	c := startCluster(t, clusterOptions{checkpoint: true, backoff: 200 * time.Millisecond, agent: func(f *agent.Flags) { f.RecoveryTimeout = limit }})
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	pid := c.report(g, "a").Pid
	began := time.Now()
	c.agent.Kill()
	c.waitExecutorGone(g)
	if took := time.Since(began); took < limit-100*time.Millisecond {
		t.Errorf("the executor waited %s for its agent, not %s", took, limit)
	}
	if !strings.Contains(c.executorLog(g), "not subscribed for 1.5s") {
		t.Error("the executor's log does not say why it ended")
	}
	if alive(pid) {
		t.Errorf("process %d lives", pid)
	}
	c.nothingLeft()
	c.startAgent()
}

// defiant starts a process that SIGTERM does not end, with far more grace than the agent gives the executor, and returns its group.
func defiant(c *cluster) string {
	s := proc(c, "a", "trap '' TERM; while :; do sleep 0.1; done")
	s.KillPolicy.GracePeriodSeconds = 600
	g := c.launch(s)
	c.waitState(g, "a", mesos.TASK_RUNNING)
	eventually(c.t, 20*time.Second, "its trap", func() bool { return withstandsTerm(c.report(g, "a").Pid) })
	return g
}

// withstandsTerm tells whether SIGTERM is caught or ignored by a process (proc_pid_status(5)):
// a shell that runs only just now has not come to its trap.
func withstandsTerm(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigIgn" && name != "SigCgt" {
			continue
		}
		if set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && set&(1<<(syscall.SIGTERM-1)) != 0 {
			return true
		}
	}
	return false
}

func TestExecutorEndsWithinTheAgentsGrace(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*cluster, string){
		"SHUTDOWN": func(c *cluster, g string) {
			if !c.session.Send(session.Shutdown(g, c.last(g, "a").AgentID.GetValue())) {
				c.t.Error("SHUTDOWN could not be sent")
			}
		},
		"SIGTERM": func(c *cluster, g string) {
			if err := syscall.Kill(c.executorPid(g), syscall.SIGTERM); err != nil {
				c.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterOptions{checkpoint: true, agent: func(f *agent.Flags) { f.ExecutorShutdownGracePeriod = 8 * time.Second }})
			g := defiant(c)
			pid := c.report(g, "a").Pid
			end(c, g)
			// It ended by itself: the agent kills what takes longer than the grace period.
			if status := c.waitExit(g); status != 0 {
				t.Errorf("wait status %#x, want that of exit code 0", status)
			}
			s := c.waitState(g, "a", mesos.TASK_KILLED)
			if s.GetSource() != mesos.SOURCE_EXECUTOR {
				t.Errorf("the end was told by %s, not by the executor", s.GetSource())
			}
			if alive(pid) {
				t.Errorf("process %d lives", pid)
			}
			c.nothingLeft()
		})
	}
}

func TestFaultExecutorStaysUntilItsLastUpdateIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{checkpoint: true, backoff: 200 * time.Millisecond})
	w := newWire(t, c.agentAddress())
	c.executorEnv = "MESOS_AGENT_ENDPOINT=" + w.listener.Addr().String()
	g := c.launch(proc(c, "a", "exec sleep 1000"))
	c.waitState(g, "a", mesos.TASK_RUNNING)
	w.set(true)
	w.cut()
	if err := syscall.Kill(c.report(g, "a").Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.waitLog(g, "task is over")
	// It has nothing left to do but to tell, and tries that again and again.
	tried := strings.Count(c.executorLog(g), "not subscribed with the agent")
	eventually(t, 20*time.Second, "attempts to subscribe", func() bool {
		return strings.Count(c.executorLog(g), "not subscribed with the agent") >= tried+5
	})
	if c.executorPid(g) == 0 || c.over(g, "a") {
		t.Fatalf("the executor ended, or its agent knows, while there was no connection")
	}
	w.set(false)
	c.waitState(g, "a", mesos.TASK_FAILED)
	if status := c.waitExit(g); status != 0 {
		t.Errorf("wait status %#x", status)
	}
	c.nothingLeft()
}
