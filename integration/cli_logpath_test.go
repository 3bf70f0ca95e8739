package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/integration/stack"
)

// The files that a process writes itself are listed, read and followed over rotations,
// also where their directory is that of another user than root.
func TestCLIReadsTheFilesOfALogPath(t *testing.T) {
	f := startFault(t, faultOptions{flags: map[string][]string{stack.Daemon: {"--output-max-mb=1", "--output-files=2"}}})
	s := &localStack{t: t, server: f.s.Server()}
	dir := t.TempDir()
	const rounds, each = 5, 90_000
	s.ok("apply", "--wait", "-f", file(t, "p.json", fmt.Sprintf(`{"apiVersion":"v4","kind":"process","metadata":{"name":"talk","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":2},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"talk","workPath":"%s","logPath":"log/*.log",
  "startCmd":"mkdir -p log; echo old > log/old.log; touch -d @1000 log/old.log; i=0; while [ $i -lt %d ]; do seq $((i*%d)) $((i*%d+%d)) >> log/own.log; until [ -e go$i ]; do sleep 0.02; done; i=$((i+1)); done; echo bye >> log/own.log",
  "resources":{"limits":{"cpu":"0.5","memory":"64"}}},
  {"name":"mute","procName":"mute","startCmd":"sleep 1000","resources":{"limits":{"cpu":"0.1","memory":"16"}}}]}}}}`, dir, rounds, each, each, each-1)))
	logs := func(args ...string) outcome {
		return s.tandem(append([]string{"logs", "talk-0", "-n", "test"}, args...)...)
	}
	eventually(t, 20*time.Second, "the first lines", func() bool {
		return logs("--task", "talk", "--stream", "log", "--tail", "2").out == counted(each-2, each-1)
	})
	if out := logs("--list").out; strings.Count(out, "talk-0") != 6 || !strings.Contains(out, "log/own.log  ") || !strings.Contains(out, "1970-01-01") {
		t.Errorf("the list:\n%s", out)
	}
	if out := s.ok("__complete", "logs", "talk-0", "-n", "test", "--stream", ""); !strings.Contains(out, "log/old.log\nlog/own.log\nstderr\nstdout\n") {
		t.Errorf("completion:\n%s", out)
	}
	if out := logs("--task", "talk", "--stream", "log/old.log").out; out != "old\n" {
		t.Errorf("an older file: %q", out)
	}
	refused(t, logs("--task", "talk", "--stream", "log/none.log"), 6, "names no file none.log; there are log/old.log, log/own.log")
	refused(t, logs("--task", "mute", "--stream", "log"), 6, `process "mute" has no logPath`)
	refused(t, logs("--task", "mute", "--stream", "own.log"), 2, "use stdout, stderr, log")
	out, ended := follow(t, s.server, "talk-0", "--task", "talk", "--stream", "log/own.log")
	for i := range rounds {
		last := fmt.Sprintf("\n%d\n", i*each+each-1)
		eventually(t, 30*time.Second, "line "+strings.TrimSpace(last), func() bool { return out.endsWith(last) })
		if i == rounds-2 {
			eventually(t, 30*time.Second, "a rotation", func() bool {
				pieces, err := filepath.Glob(filepath.Join(dir, "log/own.log.0*"))
				return err == nil && len(pieces) > 0
			})
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("go", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	untilEnded(t, ended)
	same(t, out.all(), counted(0, rounds*each-1)+"bye\n")
	eventually(t, 20*time.Second, "the end", func() bool { return strings.Contains(s.ok("get", "tasks", "-n", "test"), "FINISHED") })
	// What it wrote is kept, as far as the pieces were, and what was there before is not.
	kept := logs("--task", "talk", "--stream", "log").out
	if whole := "\n" + counted(0, rounds*each-1) + "bye\n"; len(kept) < 1<<20 || !strings.HasSuffix(whole, "\n"+kept) {
		t.Errorf("%d bytes are kept: %.40q", len(kept), kept)
	}
	if out := logs("--task", "talk", "--stream", "log/own.log", "--tail", "2", "-f").out; out != counted(rounds*each-1, rounds*each-1)+"bye\n" {
		t.Errorf("the last lines: %q", out)
	}
	if out := logs("--list").out; !strings.Contains(out, "log/own.log  ") || strings.Contains(out, "old.log") {
		t.Errorf("the list of what is kept:\n%s", out)
	}
	refused(t, logs("--task", "talk", "--stream", "log/old.log"), 4, "no file old.log of its logPath is kept; there are log/own.log")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	same(t, logs("--task", "talk", "--stream", "log").out, kept)
	s.ok("delete", "process", "talk", "-n", "test", "--wait")
}
