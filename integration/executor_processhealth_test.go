package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
)

// grpcVariable makes this program a server of grpc.health.v1.Health on that address.
const grpcVariable = "TANDEM_TEST_GRPC"

func init() {
	address := os.Getenv(grpcVariable)
	if address == "" {
		return
	}
	s := http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		serving := byte(1)
		if _, err := os.Stat("sick"); err == nil {
			serving = 2
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, serving})
		w.Header().Set("Grpc-Status", "0")
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	fmt.Fprintln(os.Stderr, s.ListenAndServe())
	os.Exit(1)
}

// TestP10HealthOfARealProcessInEveryWay: HTTP, TCP and a command that runs as the
// process's user; one that is only not ready goes on.
func TestP10HealthOfARealProcessInEveryWay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	port := closedPort(t)
	s := withPort(proc(c, "web", fmt.Sprintf("touch live ready; exec busybox httpd -f -p 127.0.0.1:%d -h .", port)), "http", port, port)
	s.Process.User = "nobody"
	web := everySecond(api.HealthCheck{Type: api.CheckHTTP, Probe: api.ProbeReadiness, HTTP: &api.HTTPCheck{PortName: "http", Path: "/ready"}}, 1)
	tcp := everySecond(api.HealthCheck{Type: api.CheckTCP, TCP: &api.TCPCheck{PortName: "http"}}, 1)
	s.HealthChecks = []api.HealthCheck{web, tcp, byCommand(`test "$(id -un)" = nobody -a -e live`, 1)}
	for i := range s.HealthChecks {
		s.HealthChecks[i].DelaySeconds, s.HealthChecks[i].GracePeriodSeconds = 1, 30
	}
	s.HealthChecks[2].GracePeriodSeconds = 0
	g := c.launch(s)
	c.waitHealth(g, "web", true)
	work := filepath.Join(c.dir, "workspace/work_dir/test.app.web")
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	remove("ready")
	if u := c.waitHealth(g, "web", false); u.GetState() != mesos.TASK_RUNNING || !strings.Contains(u.GetMessage(), "HTTP") {
		t.Errorf("%s %q", u.GetState(), u.GetMessage())
	}
	if err := os.WriteFile(filepath.Join(work, "ready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.waitHealth(g, "web", true)
	remove("live")
	if u := c.waitState(g, "web", mesos.TASK_FAILED); !strings.Contains(u.GetMessage(), "health check COMMAND") {
		t.Errorf("message %q", u.GetMessage())
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}

// TestGRPCHealthOfAProcessInAPrivateNetwork: the check is made in its namespace,
// where alone the port is.
func TestGRPCHealthOfAProcessInAPrivateNetwork(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := withPort(proc(c, "grpc", self), "grpc", 4719, 0)
	s.Network.Mode = "BRIDGE"
	s.Env = []api.TaskEnvVar{{Name: grpcVariable, Value: "127.0.0.1:${ports.grpc}"}}
	check := everySecond(api.HealthCheck{Type: api.CheckGRPC, GRPC: &api.GRPCCheck{PortName: "grpc"}}, 1)
	check.DelaySeconds = 1
	s.HealthChecks = []api.HealthCheck{check}
	g := c.launch(s)
	c.waitHealth(g, "grpc", true)
	if r := c.report(g, "grpc"); len(r.IPs) != 1 || r.IPs[0] == "127.0.0.1" {
		t.Errorf("addresses %v", r.IPs)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "workspace/work_dir/test.app.grpc/sick"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if u := c.waitState(g, "grpc", mesos.TASK_FAILED); !strings.Contains(u.GetMessage(), "health check GRPC") {
		t.Errorf("message %q", u.GetMessage())
	}
	c.waitAllGone(g)
}

// TestSecretsOfAProcess: as files with owner and mode, in directories that are
// made for them, and as variables; gone at the end.
func TestSecretsOfAProcess(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := proc(c, "p", `stat -c "%U %a %n" etc/app/password etc/app etc/conf && cat etc/app/password && echo $TOKEN && cp etc/conf etc/app/copy && exec sleep 1000`)
	s.Process.User = "nobody"
	s.Files = []api.TaskFile{
		{Path: "etc/app/password", Content: []byte("xyzzy\n"), Mode: 0o404, Secret: true},
		{Path: "${workPath}/etc/conf", Content: []byte("${hostip}"), Mode: 0o444, User: "root"},
	}
	s.Env = []api.TaskEnvVar{{Name: "TOKEN", Value: "pl${u}gh", Literal: true}}
	g := c.launch(s)
	c.waitState(g, "p", mesos.TASK_RUNNING)
	work := filepath.Join(c.dir, "workspace/work_dir/test.app.p")
	eventually(t, 10*time.Second, "the copy", func() bool { _, err := os.Stat(work + "/etc/app/copy"); return err == nil })
	out, err := os.ReadFile(filepath.Join(c.report(g, "p").Sandbox, "stdout"))
	want := "nobody 400 etc/app/password\nnobody 755 etc/app\nroot 444 etc/conf\nxyzzy\npl${u}gh\n"
	if err != nil || string(out) != want {
		t.Errorf("output %q, want %q; %v", out, want, err)
	}
	c.kill(g, "p")
	c.waitState(g, "p", mesos.TASK_KILLED)
	for _, name := range []string{"etc/app/password", "etc/conf"} {
		if _, err := os.Lstat(filepath.Join(work, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	if b, err := os.ReadFile(work + "/etc/app/copy"); err != nil || string(b) != "${hostip}" {
		t.Errorf("content of a file is not ours to expand: %q, %v", b, err)
	}
	c.waitExecutorGone(g)
	c.nothingLeft()
}
