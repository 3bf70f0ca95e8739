package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/testkit"
	"tandem/localmesos/internal/ssl"
	"tandem/localmesos/internal/ssl/ssltest"
)

func TestDomainSocket(t *testing.T) {
	t.Parallel()
	m := newMaster(t)
	f := testFlags(t, m)
	withKey(t, &f)
	f.HTTPExecutorDomainSockets, f.DomainSocketLocation = true, filepath.Join(testkit.PublicDir(t), "agent.sock")
	a := startAgent(t, f)
	waitRegistered(t, a)
	m.running(runOf(true, "x1", "ok", "t1"))
	quiet(t, a)
	fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "environment"), "MESOS_DOMAIN_SOCKET="+f.DomainSocketLocation)
	restart(t, a, nil)
	m.kill("t1")
	m.ack(m.update("t1", mesos.TASK_KILLED))
	over := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.DomainSocketLocation)
	}}}
	defer over.CloseIdleConnections()
	for path, want := range map[string]int{"/state": 404, "/api/v1": 404, "/api/v1/executor": 401, "/slave(1)/api/v1/executor": 401} {
		resp, err := over.Post("http://agent"+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// Only users that have executors here are served.
func TestDomainSocketRefusesStrangers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	m := newMaster(t)
	f := testFlags(t, m)
	f.HTTPExecutorDomainSockets, f.DomainSocketLocation = true, filepath.Join(testkit.PublicDir(t), "agent.sock")
	a := startAgent(t, f)
	// Go builds tests where nobody else may look. Not written by this process: a
	// child that is just being forked would keep it open for writing, and from being run.
	program := filepath.Join(testkit.PublicDir(t), "executor")
	if out, err := exec.Command("install", "-m", "0755", os.Args[0], program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dial := func() error {
		cmd := exec.Command(program)
		cmd.Env = []string{"AGENT_TEST_EXECUTOR=dial:" + f.DomainSocketLocation}
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd.Run()
	}
	var status *exec.ExitError
	if err := dial(); !errors.As(err, &status) {
		t.Errorf("a stranger is served: %v", err)
	}
	a.socket.admit(65534)
	if err := dial(); err != nil {
		t.Errorf("the user of an executor is not served: %v", err)
	}
}

func TestDomainSocketPaths(t *testing.T) {
	t.Parallel()
	dir := testkit.PublicDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("unix", filepath.Join(dir, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for path, want := range map[string]string{file: "no socket", busy.Addr().String(): "another agent", filepath.Join(dir, "no", "such"): "domain_socket_location"} {
		f := testFlags(t, newMaster(t))
		f.HTTPExecutorDomainSockets, f.DomainSocketLocation = true, path
		a, err := New(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	f := testFlags(t, newMaster(t))
	f.HTTPExecutorDomainSockets, f.DomainSocketLocation = true, "/"+strings.Repeat("x", 107)
	if _, err := New(f); err == nil || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("a long path: %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for name, clientCert := range map[string]string{"server only": "false", "both": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := ssltest.Certificate(t)
			vars["LIBPROCESS_SSL_REQUIRE_CLIENT_CERT"] = clientCert
			m := &fakeMaster{t: t, id: newUUIDText() + "-S0"}
			m.server = httptest.NewUnstartedServer(m)
			config, err := ssl.Server(vars)
			if err != nil {
				t.Fatal(err)
			}
			m.server.TLS = config
			m.server.StartTLS()
			t.Cleanup(m.server.Close)
			f := testFlags(t, m)
			f.SSL, f.Master = vars, m.server.Listener.Addr().String()
			f.ExecutorEnvironment = map[string]string{"OF_ALL": "1"}
			a := startAgent(t, f)
			waitRegistered(t, a)
			if !strings.HasPrefix(a.URL(), "https://") {
				t.Errorf("URL %s", a.URL())
			}
			m.running(runOf(true, "x1", "ok", "t1"))
			env := fileWith(t, filepath.Join(sandboxOf(t, a, "x1"), "environment"), "LIBPROCESS_SSL_CA_FILE=")
			if strings.Contains(env, "SSL_KEY_FILE") != (clientCert == "true") {
				t.Errorf("the executor's environment: %s", env)
			}
			m.kill("t1")
			m.ack(m.update("t1", mesos.TASK_KILLED))
			conn, err := tls.Dial("tcp", a.address(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}) //nolint:gosec // it must fail
			if err == nil {
				conn.Close()
				t.Error("TLS 1.1 is spoken")
			}
			if resp, err := http.Get("http://" + a.address() + "/health"); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					t.Error("plain HTTP is served")
				}
			}
		})
	}
}

func TestTLSNeedsItsFiles(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]string){
		"KEY_FILE is":          func(v map[string]string) { delete(v, "LIBPROCESS_SSL_KEY_FILE") },
		"/no/such":             func(v map[string]string) { v["LIBPROCESS_SSL_CERT_FILE"] = "/no/such" },
		"is not true":          func(v map[string]string) { v["LIBPROCESS_SSL_ENABLED"] = "perhaps" },
		"SUPPORT_DOWNGRADE":    func(v map[string]string) { v["LIBPROCESS_SSL_SUPPORT_DOWNGRADE"] = "1" },
		"no certificate in":    func(v map[string]string) { v["LIBPROCESS_SSL_CA_FILE"] = v["LIBPROCESS_SSL_KEY_FILE"] },
		"nothing to check":     func(v map[string]string) { v["LIBPROCESS_SSL_REQUIRE_CERT"] = "1"; delete(v, "LIBPROCESS_SSL_CA_FILE") },
		"SSL_VERIFY_SERVER_CE": func(v map[string]string) { v["LIBPROCESS_SSL_VERIFY_SERVER_CERT"] = "no" },
	} {
		f := testFlags(t, newMaster(t))
		f.SSL = ssltest.Certificate(t)
		change(f.SSL)
		if _, err := New(f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
