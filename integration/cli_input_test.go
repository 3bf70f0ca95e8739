package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/integration/leftover"
	"tandem/internal/testkit"
)

// outcome is what a command line of the built tandem gave.
type outcome struct {
	code        int
	out, errOut string
}

// tandem runs the built binary with a few more variables, NAME=value.
func tandem(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(harness.bin, "tandem"), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("tandem %v: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// refused checks that a command failed with a code and one message that holds the texts.
func refused(t *testing.T, o outcome, code int, texts ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d; it says:\n%s%s", o.code, code, o.out, o.errOut)
	}
	for _, text := range texts {
		if !strings.Contains(o.errOut, text) {
			t.Errorf("the message lacks %q:\n%s", text, o.errOut)
		}
	}
	if n := strings.Count(o.errOut, "tandem: "); n != 1 {
		t.Errorf("%d messages, want one:\n%s", n, o.errOut)
	}
}

// nothingLeft looks at the end of the test whether anything of it is left.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	o := leftover.Options{Marks: []string{dir}, MarkedOnly: true}
	before := leftover.Take(t.Context(), o)
	t.Cleanup(func() {
		for _, thing := range leftover.Wait(context.Background(), before, o, 10*time.Second*patience) {
			t.Errorf("left behind: %s", thing)
		}
	})
}

// file writes a file in a new directory and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCLIMalformedArtifact(t *testing.T) {
	broken := file(t, "broken.json", "{\n  \"kind\": \"process\",\n")
	wrong := file(t, "wrong.yaml", "kind: process\nmetadata: {name: Web_1}\nspec: {instance: -1}\n")
	o := tandem(t, []string{"TANDEM_SERVER=http://127.0.0.1:1"}, "apply", "-f", broken, "-f", wrong)
	refused(t, o, 2, broken+":", wrong+":", "metadata.name", "spec.instance", "nothing was changed")
}

func TestCLIUnreachableScheduler(t *testing.T) {
	o := tandem(t, nil, "get", "tasks", "--server", "http://127.0.0.1:1")
	refused(t, o, 3, `scheduler http://127.0.0.1:1: connection refused; start one with "tandem local" or set --server/TANDEM_SERVER`)
	o = tandem(t, []string{"TANDEM_SERVER=ftp://x"}, "get", "tasks")
	refused(t, o, 2, `TANDEM_SERVER "ftp://x" is not a URL`)
}

func TestCLIUnknownSubcommand(t *testing.T) {
	refused(t, tandem(t, nil, "aply", "-f", "x"), 2, `unknown command "aply"`, `did you mean "apply"?`)
	refused(t, tandem(t, nil, "mesos", "slave"), 2, `unknown command "slave"`)
	refused(t, tandem(t, nil, "get", "podz", "--server", "http://127.0.0.1:1"), 4, `unknown kind "podz"`, `did you mean "pod"?`)
}

func TestCLILocalRefusesDataDirectoryThatCannotBeUsed(t *testing.T) {
	plain := file(t, "plain", "kept")
	nothingLeft(t, plain)
	// Modes do not stop root; a file in the way and /proc stop everybody.
	for _, dir := range []string{plain, filepath.Join(plain, "below"), "/proc/tandem"} {
		refused(t, tandem(t, nil, "local", "--data-dir", dir), 2, "data directory "+dir+" cannot be used", "--data-dir")
	}
	if b, err := os.ReadFile(plain); err != nil || string(b) != "kept" {
		t.Errorf("the file in the way was touched: %q, %v", b, err)
	}
}

func TestCLILocalRefusesTakenPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dir := filepath.Join(testkit.ShortDir(t), "data")
	nothingLeft(t, dir)
	for _, flag := range []string{"--listen=127.0.0.1:" + port, "--master-port=" + port, "--agent-port=" + port} {
		name, _, _ := strings.Cut(flag, "=")
		args := append(localPorts(t), flag)
		o := tandem(t, nil, append([]string{"local", "--data-dir", dir}, args...)...)
		refused(t, o, 6, "port "+port+" is already used by ", fmt.Sprintf("(pid %d)", os.Getpid()), name)
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: the data directory was left", flag)
		}
	}
}

func TestCLILocalNamesMissingPrograms(t *testing.T) {
	dir := t.TempDir()
	binary, err := os.ReadFile(filepath.Join(harness.bin, "tandem"))
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(dir, "tandem")
	if err := os.WriteFile(alone, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(alone, "local", "--data-dir", filepath.Join(dir, "data"))
	cmd.Env = []string{"PATH=/nonexistent", "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d, %v", cmd.ProcessState.ExitCode(), err)
	}
	for _, want := range []string{"tandem-executor is missing", "tandem-processd is missing", dir, "make build"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("the data directory was left")
	}
}
