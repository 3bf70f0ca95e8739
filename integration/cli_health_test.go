package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/internal/testkit"
)

// A process that is not healthy fails, is started again by its policy, and is healthy then.
func TestCLIUnhealthyTaskIsRestarted(t *testing.T) {
	s := startLocal(t)
	mark := filepath.Join(testkit.ShortDir(t), "fine")
	if err := os.WriteFile(mark, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.ok("apply", "-f", file(t, "p.json", `{"apiVersion":"v4","kind":"process","metadata":{"name":"nap","namespace":"test"},
  "restartPolicy":{"policy":"OnFailure","interval":1},"killPolicy":{"gracePeriod":2},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"sleep","workPath":"/tmp","startCmd":"/bin/sleep 98765",
  "healthChecks":[{"type":"COMMAND","command":{"value":"test -e `+mark+`"},"delaySeconds":1,"gracePeriodSeconds":1,"intervalSeconds":1,"consecutiveFailures":2}],
  "resources":{"limits":{"cpu":"0.1","memory":"32"}}}]}}}}`))
	tasks := func() string { return s.ok("get", "tasks", "-n", "test") }
	healthy := func() bool { return strings.Contains(tasks(), " healthy ") }
	eventually(t, 30*time.Second, "healthy", healthy)
	if out := s.ok("describe", "process", "nap", "-n", "test"); !strings.Contains(out, "COMMAND (liveness): healthy") || !strings.Contains(out, "1 running, 1 ready") {
		t.Errorf("describe:\n%s", out)
	}
	before := s.pids()
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	// It fails, and so do its successors as long as the mark is missing.
	eventually(t, 30*time.Second, "another process", func() bool {
		now := s.pids()
		return len(now) == 1 && now[0] != before[0]
	})
	if err := os.WriteFile(mark, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "healthy again", healthy)
	out := s.ok("describe", "process", "nap", "-n", "test")
	for _, want := range []string{"nap-0: sleep is not healthy: health check COMMAND failed: exit code 1", "failed 2 times in a row"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
