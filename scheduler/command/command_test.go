package command

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execute runs the command until ctx ends, and returns its error.
func execute(ctx context.Context, args ...string) error {
	cmd := NewCommand()
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(ctx)
}

// freeAddress returns an address on which nothing listens right now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRefusals: each bad flag gives one message that names it and the remedy,
// before anything is made or sent.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("hush-hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"argument":         {[]string{"extra"}, []string{"extra"}},
		"log level":        {[]string{"--log-level", "loud"}, []string{`--log-level "loud"`, "debug, info, warn or error"}},
		"no secret file":   {[]string{"--principal", "p", "--secret-file", filepath.Join(dir, "none")}, []string{"--secret-file", "none"}},
		"empty secret":     {[]string{"--principal", "p", "--secret-file", empty}, []string{"--secret-file", empty, "empty"}},
		"no authority":     {[]string{"--ca-file", secret}, []string{"--ca-file", secret, "no PEM certificate"}},
		"no ca file":       {[]string{"--ca-file", filepath.Join(dir, "none")}, []string{"--ca-file", "none"}},
		"no principal":     {[]string{"--secret-file", secret}, []string{"--principal"}},
		"zookeeper":        {[]string{"--master", "zk://z1:2181/mesos"}, []string{"zk://", "host:port,host:port"}},
		"no master":        {[]string{"--master", ""}, []string{"--master"}},
		"no executor":      {[]string{"--executor-command", ""}, []string{"--executor-command"}},
		"data dir":         {[]string{"--data-dir", filepath.Join(secret, "below")}, []string{secret, "--data-dir"}},
		"taken address":    {[]string{"--listen", busy.Addr().String()}, []string{busy.Addr().String(), "--listen"}},
		"malformed listen": {[]string{"--listen", "nonsense"}, []string{"nonsense", "--listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			args := append([]string{"--data-dir", data, "--listen", "127.0.0.1:0", "--master", "127.0.0.1:1"}, c.args...)
			err := execute(t.Context(), args...)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, which lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hush-hush") {
				t.Errorf("the message shows the secret: %q", err)
			}
		})
	}
}

// TestRunsWithoutAMaster: the API answers while the master cannot be reached,
// a second scheduler on the same store is refused, and the end is clean.
func TestRunsWithoutAMaster(t *testing.T) {
	t.Parallel()
	data, address := t.TempDir(), freeAddress(t)
	args := []string{"--data-dir", data, "--listen", address, "--master", freeAddress(t)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- execute(ctx, args...) }()

	transport := &http.Transport{DisableKeepAlives: true}
	get := func(path string) (int, string) {
		resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		code, text := get("/healthz")
		if code == http.StatusOK {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("/healthz: %d %s", code, text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "not subscribed") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if code, text := get("/metrics"); code != http.StatusOK || !strings.Contains(text, "tandem_scheduler_connected 0") {
		t.Errorf("/metrics: %d %s", code, text)
	}
	if err := execute(ctx, "--data-dir", data, "--listen", "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "in use by another scheduler") {
		t.Errorf("a second scheduler on the store: %v", err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("end: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	l.Close()
}

func TestHelpShowsExamplesAndFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"tandem scheduler --master m1:5050", "--data-dir", "--listen", "--cluster", "--executor-command", "--executor-uri",
		"--role", "--principal", "--secret-file", "--failover-timeout", "--replace-unreachable-after",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q", want)
		}
	}
}
