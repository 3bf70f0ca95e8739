package integration

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Commands run in a container: their output, input and exit code are the caller's.
func TestCLIExecInAContainer(t *testing.T) {
	needEngine(t)
	s := startLocal(t)
	s.ok("apply", "--wait", "-f", file(t, "a.json", `{"apiVersion":"v4","kind":"application","metadata":{"name":"box","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":1},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"NONE","containers":[{"image":"`+harness.image+`","imagePullPolicy":"Never",
  "command":"/bin/sleep","args":["1000"],"env":[{"name":"MARK","value":"in here"}],
  "resources":{"limits":{"cpu":"0.5","memory":"32"}}}]}}}}`))
	run := func(stdin string, args ...string) (code int, out, errOut string) {
		cmd := exec.Command(filepath.Join(harness.bin, "tandem"), append([]string{"exec", "box-0", "-n", "test", "--server", s.server}, args...)...)
		var o, e bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
	if code, out, errOut := run("", "--", "sh", "-c", `echo "$MARK"; echo trouble >&2; exit 7`); code != 7 || out != "in here\n" || errOut != "trouble\n" {
		t.Errorf("code %d, %q, %q", code, out, errOut)
	}
	// Input far beyond every buffer comes back whole, and its end ends the command.
	text := strings.Repeat("0123456789abcdef", 64<<10)
	if code, out, errOut := run(text, "-i", "--", "cat"); code != 0 || out != text || errOut != "" {
		t.Errorf("cat: code %d, %d bytes of %d, %q", code, len(out), len(text), errOut)
	}
	// A command that does not read its input ends nevertheless, and its last words arrive.
	if code, out, errOut := run(text, "-i", "--", "sh", "-c", "echo enough; exit 3"); code != 3 || out != "enough\n" {
		t.Errorf("no reader: code %d, %q, %q", code, out, errOut)
	}
	if code, _, errOut := run("", "-t", "--", "sh"); code != 2 || !strings.Contains(errOut, "leave -t out, or run tandem in a terminal") {
		t.Errorf("no terminal: code %d, %q", code, errOut)
	}
	if code, _, errOut := run("", "--", "/no/such/program"); code == 0 {
		t.Errorf("no program: code %d, %q", code, errOut)
	}
	if code, _, errOut := run("", "--task", "nobody", "--", "true"); code != 4 || !strings.Contains(errOut, "nobody") {
		t.Errorf("no task: code %d, %q", code, errOut)
	}
}

// A command that reads none of its input ends with the one who sends it, however
// that one ends and however much is on its way.
func TestCLIExecEndsWithItsUser(t *testing.T) {
	s := startLocal(t)
	s.ok("apply", "--wait", "-f", file(t, "nap.json", sleeper("nap", 1)))
	const mark = "98764.25" // by which its command is found
	running := func() bool {
		return exec.Command("pgrep", "-f", "^sleep "+mark).Run() == nil
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(harness.bin, "tandem"), "exec", "nap-0", "-n", "test", "--server", s.server, "-i", "--", "sleep", mark)
	cmd.Stdin = endless{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "its command", running)
	time.Sleep(500 * time.Millisecond) // not to wait for anything: to let all buffers fill up
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, 20*time.Second, "the end of its command", func() bool { return !running() })
}

// endless is input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
