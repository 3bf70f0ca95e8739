package command

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func run(t *testing.T, c *cobra.Command, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	c.SilenceErrors = true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		make func() *cobra.Command
		args []string
		want string
	}{
		{NewMasterCommand, []string{"--port=5050"}, "--work_dir is needed"},
		{NewMasterCommand, []string{"--registry=in_memory", "--ip=nowhere"}, `--ip="nowhere" is not an IP address`},
		{NewMasterCommand, []string{"--registry=in_memory", "--zk=zk://127.0.0.1/mesos"}, "does not elect leaders"},
		{NewMasterCommand, []string{"--agent_ping_timeout=soon"}, "is not a number and a unit"},
		{NewMasterCommand, []string{"--no-such-flag"}, "unknown flag"},
		{NewMasterCommand, []string{"extra"}, "unknown command"},
		{NewAgentCommand, []string{"--work_dir=/tmp"}, "master: missing"},
		{NewAgentCommand, []string{"--work_dir=/tmp", "--master=zk://127.0.0.1/mesos"}, "give host:port"},
	} {
		_, err := run(t, c.make(), c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []*cobra.Command{NewMasterCommand(), NewAgentCommand()} {
		out, err := run(t, c, "--help")
		for _, want := range []string{"Examples:", "--work_dir", "tandem mesos " + c.Name()} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s --help: %v, no %q in\n%s", c.Name(), err, want, out)
			}
		}
	}
}

// TestMasterRuns starts the master by its command, with both spellings of
// flags and one without effect, and ends it by its context.
func TestMasterRuns(t *testing.T) {
	t.Parallel()
	c := NewMasterCommand()
	r, w := io.Pipe()
	c.SetErr(w)
	c.SetOut(w)
	c.SetArgs([]string{"--port=0", "--work-dir", t.TempDir(), "--max_agent_ping_timeouts=3", "--quorum=1"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx); w.Close() }()
	said := ""
	buf := make([]byte, 4096)
	for !strings.Contains(said, "mesos master at ") || !strings.HasSuffix(said, "\n") {
		n, err := r.Read(buf)
		said += string(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, said)
		}
	}
	go io.Copy(io.Discard, r)
	if !strings.Contains(said, "--quorum has no effect") {
		t.Errorf("no warning in %q", said)
	}
	_, url, _ := strings.Cut(said, "mesos master at ")
	resp, err := http.Get(strings.TrimSpace(url) + "/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/health: %d", resp.StatusCode)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the master did not end")
	}
}
