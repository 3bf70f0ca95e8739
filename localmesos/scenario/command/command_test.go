package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/localmesos/cmdexec"
	"tandem/localmesos/fault"
	"tandem/localmesos/scenario"
)

func TestMain(m *testing.M) {
	// The agents start this binary as the executor of command tasks.
	if len(os.Args) > 1 && os.Args[1] == "mesos" {
		os.Exit(cmdexec.Main())
	}
	os.Exit(m.Run())
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := NewScenarioCommand()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestScenarioCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", "cluster\nframework\nlaunch t1\nwait tasks running=1\n")
	wrong := write("wrong", "cluster\nframework\nexpect offers 7\n")
	slow := write("slow", "cluster\nframework\nwait offers 7 within 100ms\n")
	bad := write("bad", "cluster\nwait what\n")
	worse := write("worse", "cluter\n")

	out, err := run(t, good)
	if err != nil || !strings.Contains(out, good+": ok, 4 steps") || !strings.Contains(out, good+":3: launch t1") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, "-q", wrong)
	if !errors.Is(err, ErrScenario) || errors.Is(err, ErrScenarioTimeout) || !strings.Contains(out, wrong+":3: expect offers 7") {
		t.Errorf("%v\n%s", err, out)
	}
	removeLog(t, out)
	c := NewScenarioCommand()
	var stdout bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(io.Discard)
	c.SetArgs([]string{"-o", "json", slow})
	c.SilenceErrors, c.SilenceUsage = true, true
	if err := c.ExecuteContext(context.Background()); !errors.Is(err, ErrScenarioTimeout) {
		t.Error(err)
	}
	var results []scenario.Result
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil || len(results) != 1 || results[0].OK || !results[0].TimedOut {
		t.Errorf("%v\n%s", err, stdout.String())
	} else {
		os.RemoveAll(filepath.Dir(results[0].Log))
	}
	var syntax *scenario.SyntaxError
	_, err = run(t, good, bad, worse)
	if !errors.As(err, &syntax) || !strings.Contains(err.Error(), bad+":2:") || !strings.Contains(err.Error(), worse+":1:") {
		t.Error(err)
	}
	if out, err = run(t, "--check", good, wrong); err != nil || !strings.Contains(out, good+": ok, 4 steps") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{}, {"-o", "yaml", good}, {"--dir", dir, good, wrong}} {
		if _, err := run(t, args...); !errors.Is(err, fault.ErrInvalid) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// removeLog removes what a failed scenario has left, as it should.
func removeLog(t *testing.T, out string) {
	t.Helper()
	_, log, ok := strings.Cut(out, "the cluster's log is ")
	if !ok {
		t.Errorf("the log is not named in %q", out)
		return
	}
	if err := os.RemoveAll(filepath.Dir(strings.TrimSpace(log))); err != nil {
		t.Error(err)
	}
}
