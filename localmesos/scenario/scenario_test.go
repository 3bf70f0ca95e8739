package scenario

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/localmesos/cmdexec"
)

func TestMain(m *testing.M) {
	// The agents start this binary as the executor of command tasks.
	if len(os.Args) > 1 && os.Args[1] == "mesos" {
		os.Exit(cmdexec.Main())
	}
	os.Exit(m.Run())
}

// TestFiles runs every scenario of testdata.
func TestFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.scenario")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	// No more at a time: each waits for real processes and real time limits.
	slots := make(chan struct{}, 3)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".scenario"), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			s, err := Load(file)
			if err != nil {
				t.Fatal(err)
			}
			r := s.Run(t.Context(), Options{Dir: t.TempDir()})
			if !r.OK {
				log, _ := os.ReadFile(r.Log) // for the reader of the failure
				b, _ := json.MarshalIndent(r, "", " ")
				t.Errorf("%s\n%s", b, log)
			}
		})
	}
}

func runText(t *testing.T, text string, limit time.Duration) Result {
	t.Helper()
	s, err := Parse("test", text)
	if err != nil {
		t.Fatal(err)
	}
	return s.Run(t.Context(), Options{Dir: t.TempDir(), Limit: limit})
}

// TestFailures are scenarios that must not go well.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, want string
		line       int
		timedOut   bool
	}{
		"expect":   {"cluster\nframework\nexpect offers 5\nexpect offers 0", "not 5", 3, false},
		"wait":     {"cluster\nframework\nwait offers 5 within 200ms", "timed out after 200ms", 3, true},
		"hold":     {"cluster\nframework\nwait offers 1\nhold offers 2 for 10s", "it did not stay so", 4, false},
		"launch":   {"cluster\nframework\nlaunch t1 cpus=100 within 300ms", "no offer with room for task t1", 3, true},
		"no fault": {"cluster\nfault cut scheduler", "no such stream", 2, false},
		"down":     {"cluster\nfault kill agent-1\nfault freeze agent-1", "it is away", 3, false},
		"nothing":  {"cluster\nfault rescind", "no framework holds such an offer", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runText(t, c.text, 0)
			last := r.Steps[len(r.Steps)-1]
			if r.OK || last.Line != c.line || !strings.Contains(last.Error, c.want) || r.TimedOut != c.timedOut || r.Error != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestEnds: a limit, and a caller that has enough, end a run in the midst of a wait.
func TestEnds(t *testing.T) {
	t.Parallel()
	const text = "cluster\nframework\nlaunch t1\nwait tasks running=1\nwait offers 9 within 10m"
	r := runText(t, text, 3*time.Second)
	if r.OK || !r.TimedOut || !strings.Contains(r.Steps[len(r.Steps)-1].Error, "the whole scenario took more than") {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Parse("test", text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r = s.Run(ctx, Options{Dir: dir, Progress: func(begins bool, x StepResult) {
		if begins && x.Line == 5 {
			cancel()
		}
	}})
	if r.OK || r.TimedOut || len(r.Steps) != 5 {
		t.Errorf("%+v", r)
	}
	if n, err := processes(dir + "/t1"); n != 0 || err != nil {
		t.Errorf("%d processes are left: %v", n, err)
	}
}
