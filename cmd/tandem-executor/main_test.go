package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/executor"
	"tandem/internal/journal"
)

func call(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return code, out.String(), errs.String()
}

func TestVersionAndHelp(t *testing.T) {
	if code, out, _ := call(nil, "--version"); code != exitOK || !strings.HasPrefix(out, "tandem-executor ") {
		t.Errorf("exit %d, %q", code, out)
	}
	code, _, text := call(nil, "--help")
	if code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{"-data-dir", "-processd-socket", "-docker-host", "-publish-address", "-policy", "TANDEM_DATA_DIR", "Exit codes"} {
		if !strings.Contains(text, want) {
			t.Errorf("help lacks %q:\n%s", want, text)
		}
	}
}

func TestWrongUseIsTold(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"--no-such-flag"}, nil, "no-such-flag"},
		{[]string{"run"}, nil, `unexpected argument "run"`},
		{[]string{"--publish-address", "here"}, nil, `"here" is not an IP address`},
		{[]string{"--log-size", "-1"}, nil, "must not be negative"},
		{[]string{"--data-dir="}, nil, "--data-dir is empty"},
		{nil, map[string]string{"MESOS_CHECKPOINT": "1"}, "MESOS_RECOVERY_TIMEOUT"},
		{nil, nil, "MESOS_FRAMEWORK_ID: is not set; a Mesos agent sets it"},
	} {
		if code, _, text := call(c.env, c.args...); code != exitUsage || !strings.Contains(text, c.want) {
			t.Errorf("%v: exit %d, %q, want %q in it", c.args, code, text, c.want)
		}
	}
}

func agentEnv(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"MESOS_FRAMEWORK_ID": "f", "MESOS_EXECUTOR_ID": "e", "MESOS_AGENT_ENDPOINT": "127.0.0.1:1", "MESOS_SANDBOX": t.TempDir(), "MESOS_CHECKPOINT": "0",
	}
}

func TestDataDirectoryThatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, text := call(agentEnv(t), "--data-dir", file)
	if code != exitFailure || !strings.Contains(text, file) {
		t.Errorf("exit %d, %q, want the directory's name in it", code, text)
	}
}

func TestTheTokenDoesNotStayInTheEnvironment(t *testing.T) {
	const name = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"
	t.Setenv(name, "s3cret")
	_, _, text := call(nil)
	if _, there := os.LookupEnv(name); there || strings.Contains(text, "s3cret") {
		t.Errorf("token in the environment: %v; output %q", there, text)
	}
}

// A process whose kernel environment holds a token is needed: this program, once more.
func TestTheTokenIsErasedFromProc(t *testing.T) {
	t.Parallel()
	const name = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN"
	if os.Getenv("TEST_SHOW_ENVIRON") != "" {
		if err := executor.TakeToken(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile("/proc/self/environ")
		if err != nil {
			t.Fatal(err)
		}
		_, there := os.LookupEnv(name)
		fmt.Printf("there=%v after=%s\n", there, bytes.ReplaceAll(b, []byte{0}, []byte{'|'}))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTheTokenIsErasedFromProc$", "-test.v")
	cmd.Env = []string{"BEFORE=1", name + "=s3cret", "AFTER=2", "TEST_SHOW_ENVIRON=1"}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || strings.Contains(text, "s3cret") || !strings.Contains(text, "there=false") || !strings.Contains(text, "BEFORE=1|") || !strings.Contains(text, "|AFTER=2|") {
		t.Errorf("%v, want all of the environment but the token:\n%s", err, text)
	}
}

// The reaper holds the lock of a dead executor while it removes what that left.
func TestTheLockOfOurIDIsWaitedFor(t *testing.T) {
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	reaper, err := j.Claim("e")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { reaper.Close() })
	o, err := own(t.Context(), j, "e")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnAgentThatIsNotThereIsGivenUp(t *testing.T) {
	o := defaults(func(string) (string, bool) { return "", false })
	o.dataDir = t.TempDir()
	cfg, err := executor.ConfigFromEnv(func(name string) (string, bool) {
		env := agentEnv(t)
		env["MESOS_CHECKPOINT"], env["MESOS_RECOVERY_TIMEOUT"], env["MESOS_SUBSCRIPTION_BACKOFF_MAX"] = "1", "300ms", "50ms"
		v, ok := env[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(t.Context(), o, cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, executor.ErrAgentLost) {
		t.Errorf("error %v, want ErrAgentLost", err)
	}
}
