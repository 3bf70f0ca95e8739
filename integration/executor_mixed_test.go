package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// reachable waits until a TCP port answers.
func reachable(t *testing.T, address string) {
	t.Helper()
	eventually(t, 10*time.Second, address+" to accept", func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func withPort(s *api.TaskSpec, name string, containerPort, hostPort int) *api.TaskSpec {
	s.Ports = append(s.Ports, api.TaskPort{Name: name, ContainerPort: containerPort, HostPort: hostPort, Protocol: "tcp"})
	return s
}

// TestFirstOfThreeContainersEndsAndTheOthersGoOn: with its exit code 0 it keeps
// them, and the network is not its own.
func TestFirstOfThreeContainersEndsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(
		withPort(box("first", "BRIDGE", "sleep 2; exit 0"), "a", 8080, 31821),
		withPort(box("second", "BRIDGE", "exec httpd -f -p 8081"), "b", 8081, 31822),
		withPort(box("third", "BRIDGE", "exec httpd -f -p 8082"), "c", 8082, 31823),
	)
	c.waitState(g, "third", mesos.TASK_RUNNING)
	ip := c.report(g, "third").IPs[0]
	c.waitState(g, "first", mesos.TASK_FINISHED)
	for _, address := range []string{"127.0.0.1:31822", "127.0.0.1:31823", ip + ":8081", ip + ":8082"} {
		reachable(t, address)
	}
	for _, name := range []string{"second", "third"} {
		if got := c.states(g, name); got != "STARTING RUNNING" {
			t.Errorf("%s: %s", name, got)
		}
		c.kill(g, name)
	}
	c.waitState(g, "second", mesos.TASK_KILLED)
	c.waitState(g, "third", mesos.TASK_KILLED)
	c.waitAllGone(g)
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:31822", time.Second); err == nil {
		conn.Close()
		t.Error("the port is still published")
	}
}

// TestProcessSharesTheNetworkOfItsContainers: it reaches them by the loopback
// interface, its own port is published like theirs, and its checks are made there.
func TestProcessSharesTheNetworkOfItsContainers(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	web := withPort(box("web", "BRIDGE", "echo from-the-container > /tmp/x; exec httpd -f -p 8080 -h /tmp"), "web", 8080, 0)
	p := withPort(proc(c, "proc", "until busybox wget -q -O got http://127.0.0.1:${ports.web}/x; do sleep 0.1; done; exec busybox httpd -f -p ${ports.own} -h ."), "own", 9090, 31831)
	p.Network.Mode = "BRIDGE"
	p.Env = []api.TaskEnvVar{{Name: "MINE", Value: "${ports.own}"}}
	p.Process.StartCmd = strings.ReplaceAll(p.Process.StartCmd, "${ports.own}", "9090")
	check := func(kind string) api.HealthCheck {
		return api.HealthCheck{Type: kind, IntervalSeconds: 1, TimeoutSeconds: 1, GracePeriodSeconds: 60}
	}
	tcp, command := check("TCP"), check("COMMAND")
	tcp.TCP, command.Command = &api.TCPCheck{PortName: "own"}, &api.CommandCheck{Value: "busybox wget -q -O /dev/null http://127.0.0.1:9090/got"}
	p.HealthChecks = []api.HealthCheck{tcp, command}
	g := c.launch(web, p)
	c.waitState(g, "proc", mesos.TASK_RUNNING)
	eventually(t, 20*time.Second, "the process to be healthy", func() bool {
		s := c.last(g, "proc")
		return s.GetHealthy()
	})
	r, of := c.report(g, "proc"), c.report(g, "web")
	if len(r.IPs) != 1 || len(of.IPs) != 1 || r.IPs[0] != of.IPs[0] || r.IPs[0] == "127.0.0.1" {
		t.Errorf("addresses %v and %v, want one for both", r.IPs, of.IPs)
	}
	reachable(t, "127.0.0.1:31831")
	reachable(t, r.IPs[0]+":9090")
	got, err := os.ReadFile(filepath.Join(c.dir, "workspace/work_dir/test.app.proc/got"))
	if err != nil || strings.TrimSpace(string(got)) != "from-the-container" {
		t.Errorf("from the container: %q, %v", got, err)
	}
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:9090", time.Second); err == nil {
		conn.Close()
		t.Error("the process listens in the agent's network")
	}
	c.kill(g, "web")
	c.waitState(g, "web", mesos.TASK_KILLED)
	reachable(t, "127.0.0.1:31831")
	c.kill(g, "proc")
	c.waitState(g, "proc", mesos.TASK_KILLED)
	c.waitExecutorGone(g)
	if left := containersOf(t, g); len(left) > 0 {
		t.Errorf("containers left: %v", left)
	}
	if alive(r.Pid) {
		t.Error("the process lives")
	}
	c.nothingLeft()
}

// TestMixedTaskgroupHasOneOrder: of containers and processes together, init
// tasks first, sidecars before the main tasks, and after them in the end.
func TestMixedTaskgroupHasOneOrder(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	diary := filepath.Join(c.dir, "diary")
	if err := os.MkdirAll(diary, 0o777); err != nil {
		t.Fatal(err)
	}
	write := func(what string) string { return fmt.Sprintf("echo %s >> %s/d; ", what, diary) }
	as := func(lifecycle string, s *api.TaskSpec) *api.TaskSpec {
		s.Lifecycle = lifecycle
		s.KillPolicy.GracePeriodSeconds = 20
		if s.Container != nil {
			s.Container.Volumes = []api.ContainerVolume{{HostPath: diary, MountPath: diary}}
		}
		return s
	}
	onTerm := func(name string) string {
		return write(name) + "trap '" + write(name+"-stops") + "exit 0' TERM; while :; do sleep 0.1; done"
	}
	g := c.launch(
		as("", box("main-box", "HOST", write("main-box")+"while [ ! -e "+diary+"/go ]; do sleep 0.1; done; "+write("main-box-ends"))),
		as("sidecar", box("side-box", "HOST", onTerm("side-box"))),
		as("init", box("init-box", "HOST", "sleep 1; "+write("init-box"))),
		as("", proc(c, "main-proc", write("main-proc")+"while [ ! -e "+diary+"/go ]; do sleep 0.1; done; sleep 1; "+write("main-proc-ends"))),
		as("sidecar", proc(c, "side-proc", onTerm("side-proc"))),
		as("init", proc(c, "init-proc", "sleep 1; "+write("init-proc"))),
	)
	c.waitState(g, "main-box", mesos.TASK_RUNNING)
	c.waitState(g, "main-proc", mesos.TASK_RUNNING)
	for _, name := range []string{"init-box", "init-proc"} {
		if got := c.states(g, name); got != "STARTING FINISHED" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := os.WriteFile(filepath.Join(diary, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main-box", "main-proc", "side-box", "side-proc"} {
		c.waitState(g, name, mesos.TASK_FINISHED)
	}
	c.waitAllGone(g)
	b, err := os.ReadFile(filepath.Join(diary, "d"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	at := map[string]int{}
	for i, l := range lines {
		at[l] = i + 1
	}
	for _, order := range []string{
		"init-box init-proc", "init-proc side-box", "init-proc side-proc", "side-box main-box-ends", "main-box main-box-ends",
		"main-box-ends side-box-stops", "main-proc-ends side-box-stops", "main-proc-ends side-proc-stops",
	} {
		a, b, _ := strings.Cut(order, " ")
		if at[a] == 0 || at[b] == 0 || at[a] > at[b] {
			t.Errorf("%s is to come before %s: %v", a, b, lines)
		}
	}
}

// TestKillOfAMixedTaskgroupTakesOneGrace: whatever ignores its stop signal, the
// whole is gone with the one deadline, and so are its control groups.
func TestKillOfAMixedTaskgroupTakesOneGrace(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	const deaf = "trap '' TERM; while :; do sleep 1000 & wait; done"
	specs := []*api.TaskSpec{box("a", "BRIDGE", deaf), box("b", "BRIDGE", deaf), proc(c, "c", deaf), proc(c, "s", deaf)}
	specs[3].Lifecycle = "sidecar"
	for _, s := range specs {
		s.KillPolicy = api.TaskKillPolicy{GracePeriodSeconds: 4}
	}
	g := c.launch(specs...)
	var pids []int
	for _, s := range specs {
		c.waitState(g, s.Name, mesos.TASK_RUNNING)
		pids = append(pids, c.report(g, s.Name).Pid)
	}
	began := time.Now()
	for _, s := range specs {
		c.kill(g, s.Name)
	}
	for _, s := range specs {
		c.waitState(g, s.Name, mesos.TASK_KILLED)
	}
	took := time.Since(began)
	t.Logf("four deaf tasks with a grace of 4 s ended in %v", took)
	// Four graces one after another are 16 s.
	if took < 4*time.Second {
		t.Errorf("ended in %v, before the grace was over", took)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("pid %d lives after TASK_KILLED", pid)
		}
	}
	c.waitAllGone(g)
}

// TestFaultExecutorOfAMixedTaskgroupIsKilled: the reaper takes the sandbox too.
func TestFaultExecutorOfAMixedTaskgroupIsKilled(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	p := proc(c, "p", "exec sleep 1000")
	p.Network.Mode = "BRIDGE"
	g := c.launch(box("a", "BRIDGE", "exec sleep 1000"), p)
	c.waitState(g, "p", mesos.TASK_RUNNING)
	if n := len(containersOf(t, g)); n != 2 {
		t.Errorf("%d containers, want the task's and the sandbox", n)
	}
	process, err := os.FindProcess(c.executorPid(g))
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the reaper to remove everything", func() bool { return len(containersOf(t, g)) == 0 })
	c.nothingLeft()
	if alive(c.report(g, "p").Pid) {
		t.Error("the process lives")
	}
}

// TestContainersWithoutANetworkShareTheirLoopback: a taskgroup is one namespace in
// every mode but HOST, also where that has no way out.
func TestContainersWithoutANetworkShareTheirLoopback(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	g := c.launch(
		box("server", "NONE", "mkdir /w; echo hello > /w/x; exec httpd -f -p 127.0.0.1:8080 -h /w"),
		box("client", "NONE", "until wget -q -O - http://127.0.0.1:8080/x; do sleep 0.1; done"),
	)
	c.waitState(g, "client", mesos.TASK_FINISHED)
	out, err := os.ReadFile(filepath.Join(c.report(g, "client").Sandbox, "stdout"))
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		t.Errorf("%q, %v", out, err)
	}
	if r := c.report(g, "server"); len(r.IPs) != 0 {
		t.Errorf("addresses %v of a network without any", r.IPs)
	}
	c.kill(g, "server")
	c.waitState(g, "server", mesos.TASK_KILLED)
	c.waitAllGone(g)
}

// TestFaultSandboxKilledFromOutside: without their network the tasks are of no
// use, and their taskgroup fails rather than going on unreachable.
func TestFaultSandboxKilledFromOutside(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	p := proc(c, "p", "exec sleep 1000")
	p.Network.Mode = "BRIDGE"
	g := c.launch(box("a", "BRIDGE", "exec sleep 1000"), p)
	c.waitState(g, "p", mesos.TASK_RUNNING)
	own := c.report(g, "a").ContainerID
	for _, id := range containersOf(t, g) {
		if id != own {
			if err := harness.engine.ContainerKill(t.Context(), id, "KILL"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := c.waitState(g, "a", mesos.TASK_FAILED)
	if !strings.Contains(s.GetMessage(), "holds the network") {
		t.Errorf("message %q", s.GetMessage())
	}
	c.waitState(g, "p", mesos.TASK_KILLED)
	c.waitAllGone(g)
}

// TestStopSignalOfTheKillPolicy comes in the place of the image's, after the drain delay.
func TestStopSignalOfTheKillPolicy(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{noDaemon: true})
	s := box("a", "HOST", "trap 'echo term; exit 1' TERM; trap 'echo quit; exit 0' QUIT; while :; do sleep 0.1; done")
	s.KillPolicy = api.TaskKillPolicy{GracePeriodSeconds: 20, DrainSeconds: 2, StopSignal: "SIGQUIT"}
	g := c.launch(s)
	c.waitState(g, "a", mesos.TASK_RUNNING)
	began := time.Now()
	c.kill(g, "a")
	c.waitState(g, "a", mesos.TASK_KILLED)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("ended %v after the KILL, before the drain delay was over", took)
	}
	out, err := os.ReadFile(filepath.Join(c.report(g, "a").Sandbox, "stdout"))
	if err != nil || strings.TrimSpace(string(out)) != "quit" {
		t.Errorf("it was told %q, %v", out, err)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

// TestSidecarHasItsShareOfTheGrace: a main task that does not end when it is told to leaves
// the sidecar time to end in order, within the one grace period.
func TestSidecarHasItsShareOfTheGrace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	deaf := proc(c, "deaf", "trap '' TERM; while :; do sleep 0.1; done")
	side := proc(c, "side", "trap 'echo flushed; exit 0' TERM; echo up; while :; do sleep 0.05; done")
	side.Lifecycle = api.LifecycleSidecar
	for _, s := range []*api.TaskSpec{deaf, side} {
		s.KillPolicy = api.TaskKillPolicy{GracePeriodSeconds: 8}
	}
	g := c.launch(deaf, side)
	c.waitState(g, "deaf", mesos.TASK_RUNNING)
	text := func() string {
		out, err := os.ReadFile(filepath.Join(c.report(g, "side").Sandbox, "stdout"))
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	eventually(t, 20*time.Second, "the trap", func() bool { return text() == "up\n" })
	began := time.Now()
	c.kill(g, "deaf")
	c.kill(g, "side")
	c.waitState(g, "deaf", mesos.TASK_KILLED)
	took := time.Since(began)
	c.waitState(g, "side", mesos.TASK_KILLED)
	if took < 6*time.Second || text() != "up\nflushed\n" {
		t.Errorf("the main task took %v, and the sidecar wrote %q", took, text())
	}
	c.waitAllGone(g)
}
