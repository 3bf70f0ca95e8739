package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/integration/stack"
)

// shown is what a program has written so far, in a file, for it is long.
type shown struct {
	t *testing.T
	f *os.File
}

// endsWith tells whether the last thing is a text.
func (s *shown) endsWith(text string) bool {
	s.t.Helper()
	st, err := s.f.Stat()
	if err != nil {
		s.t.Fatal(err)
	}
	end := make([]byte, len(text))
	n, _ := s.f.ReadAt(end, max(0, st.Size()-int64(len(text)))) // what is not there yet is not the text
	return string(end[:n]) == text
}

func (s *shown) all() string {
	s.t.Helper()
	b, err := os.ReadFile(s.f.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// follow runs tandem logs -f and returns what it shows, and a channel with how it ended.
func follow(t *testing.T, server, name string, more ...string) (*shown, <-chan error) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "shown"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	args := append([]string{"logs", "-f", name, "-n", "test", "--server", server}, more...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(harness.bin, "tandem"), args...)
	cmd.Stdout, cmd.Stderr = f, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return &shown{t, f}, ended
}

// untilEnded waits for the end of what follow has started.
func untilEnded(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on after the end of the task")
	}
}

// counted is what seq(1) writes.
func counted(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// same compares texts that are too long to be shown.
func same(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	t.Errorf("%d bytes, want %d; at %d it is %.60q, want %.60q", len(got), len(want), at, got[at:], want[at:])
}

// TestCLIFollowsAProcessOverRotations: the output of a process is cut several times
// while it is followed, and every line is shown once.
func TestCLIFollowsAProcessOverRotations(t *testing.T) {
	f := startFault(t, faultOptions{flags: map[string][]string{stack.Daemon: {"--output-max-mb=1", "--output-files=2"}}})
	s := &localStack{t: t, server: f.s.Server()}
	dir := t.TempDir()
	const rounds, each = 8, 90_000
	s.ok("apply", "--wait", "-f", file(t, "p.json", fmt.Sprintf(`{"apiVersion":"v4","kind":"process","metadata":{"name":"talk","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":2},
  "spec":{"instance":1,"template":{"spec":{"processes":[{"procName":"talk","workPath":"%s",
  "startCmd":"i=0; while [ $i -lt %d ]; do seq $((i*%d)) $((i*%d+%d)); until [ -e go$i ]; do sleep 0.02; done; i=$((i+1)); done",
  "resources":{"limits":{"cpu":"0.5","memory":"64"}}}]}}}}`, dir, rounds, each, each, each-1)))
	out, ended := follow(t, s.server, "talk-0")
	for i := range rounds {
		// The process goes on once this much is shown, so that none is cut away unseen.
		last := fmt.Sprintf("\n%d\n", i*each+each-1)
		eventually(t, 30*time.Second, "line "+strings.TrimSpace(last), func() bool { return out.endsWith(last) })
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("go", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	untilEnded(t, ended)
	same(t, out.all(), counted(0, rounds*each-1))
	pieces, err := filepath.Glob(filepath.Join(f.s.Dir(), stack.Agent(0), "slaves/*/frameworks/*/executors/*/runs/latest/tasks/talk/stdout.0*"))
	if err != nil || len(pieces) != 2 || strings.HasSuffix(pieces[0], "/stdout.000000000000") {
		t.Errorf("it was not rotated often enough: %v %v", pieces, err)
	}
	if tail := s.ok("logs", "talk-0", "-n", "test", "--tail", "3"); tail != counted(rounds*each-3, rounds*each-1) {
		t.Errorf("the last lines: %q", tail)
	}
	s.ok("delete", "process", "talk", "-n", "test", "--wait")
}

// TestCLIFollowsAContainerOverARotation: the same for a container, whose files are
// longer.
func TestCLIFollowsAContainerOverARotation(t *testing.T) {
	needEngine(t)
	s := startLocal(t)
	const last = 2_500_000 // 19 MB, and a file has 16
	s.ok("apply", "--wait", "-f", file(t, "a.json", fmt.Sprintf(`{"apiVersion":"v4","kind":"application","metadata":{"name":"talk","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":1},
  "spec":{"instance":1,"template":{"spec":{"networkMode":"NONE","containers":[{"image":"%s","imagePullPolicy":"Never",
  "command":"/bin/sh","args":["-c","busybox seq 0 %d; sleep 1000"],"resources":{"limits":{"cpu":"1","memory":"32"}}}]}}}}`, harness.image, last)))
	out, ended := follow(t, s.server, "talk-0")
	eventually(t, 60*time.Second, "the last line", func() bool { return out.endsWith(fmt.Sprintf("\n%d\n", last)) })
	s.ok("delete", "application", "talk", "-n", "test", "--wait")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it goes on after the end of the task")
	}
	same(t, out.all(), counted(0, last))
}
