package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tandem/internal/testkit"
	"tandem/processdaemon/protocol"
)

// TestAsk: tasks and logs as people ask for them.
func TestAsk(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	sock := filepath.Join(dir, "s")
	cmd, c := startProgram(t, dir, binary, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", sock, "--kill-on-exit", "--kill-grace", "1ms")
	startTask(t, c, dir, "a", "sh -c 'echo out; echo err >&2; mkdir log; echo own > log/x.log; exec sleep 60'")
	if _, err := c.Create(t.Context(), &protocol.Spec{
		ID: "b", Owner: "other", StartCmd: "true", Sandbox: filepath.Join(dir, "sandbox/b"), WorkPath: filepath.Join(dir, "sandbox/a"), LogPath: "log/*.log",
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it writes", func() bool { _, err := os.Stat(filepath.Join(dir, "sandbox/a/log/x.log")); return err == nil })
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(append(args, "--socket", sock), &out, &out)
		return code, out.String()
	}
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"tasks"}, exitOK, "ready"},
		{[]string{"tasks", "--owner", "o"}, exitOK, "running"},
		{[]string{"logs", "a"}, exitOK, "out\n"},
		{[]string{"logs", "a", "--stream", "stderr"}, exitOK, "err\n"},
		{[]string{"logs", "b", "--list"}, exitOK, "x.log"},
		{[]string{"logs", "b", "--stream", "log/x.log"}, exitOK, "own\n"},
		{[]string{"logs", "b", "--stream", "log"}, exitOK, "own\n"},
		{[]string{"logs"}, exitUsage, "want the id of a task"},
		{[]string{"logs", "a", "--bytes", "0"}, exitUsage, "--bytes 0"},
		{[]string{"logs", "none"}, exitFailure, "is not known to the process daemon"},
	} {
		if code, out := ask(x.args...); code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("%v: %d %q, want %d %q", x.args, code, out, x.code, x.want)
		}
	}
	if _, out := ask("tasks", "--owner", "o"); strings.Contains(out, "ready") {
		t.Errorf("another owner's: %s", out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
