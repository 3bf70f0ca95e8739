package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"tandem/internal/testkit"
)

// settled parses flags as the program does, with this configuration file.
func settled(t *testing.T, file string, args ...string) (*options, *pflag.FlagSet, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "processd.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var o options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(f)
	if err := f.Parse(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return &o, f, o.settle(f)
}

// TestConfigPrecedence: flags win over the environment, that over the file, that over defaults.
func TestConfigPrecedence(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///env")
	t.Setenv("TANDEM_DATA_DIR", "/env")
	t.Setenv("TANDEM_PROCESSD_SOCKET", "")
	o, _, err := settled(t, "data-dir: /file\nsocket: /file/s\ndocker-host: unix:///file\noutput-max-mb: 7\nkill-on-exit: true\nkill-grace: 9s\nworkspace: /file/w\n",
		"--docker-host", "unix:///flag", "--kill-grace", "1s")
	if err != nil {
		t.Fatal(err)
	}
	if o.dockerHost != "unix:///flag" || o.dataDir != "/env" || o.socket != "/file/s" || o.outputMB != 7 || !o.killOnExit || o.killGrace.Seconds() != 1 || o.outputFiles != 3 || o.workspace != "/file/w" {
		t.Errorf("%+v", o)
	}
	for name, want := range map[string]string{"docker-host": "flag", "data-dir": "TANDEM_DATA_DIR", "socket": "file", "kill-grace": "flag", "output-files": ""} {
		if o.from[name] != want {
			t.Errorf("%s comes from %q, want %q", name, o.from[name], want)
		}
	}
}

// TestConfigEveryFlagHasItsKey: what print writes is a file that gives the same again.
func TestConfigEveryFlagHasItsKey(t *testing.T) {
	t.Parallel()
	o, f, err := settled(t, "", "--group", "daemon", "--start-timeout", "1m", "--default-user", "nobody", "--output-files", "9", "--log-level", "warn", "--workspace", "no: #text")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := o.print(f, &out); err != nil {
		t.Fatal(err)
	}
	again, _, err := settled(t, out.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	again.config = o.config
	if !again.same(o) {
		t.Errorf("%+v\n%+v\n%s", o, again, out.String())
	}
	var keys map[string]any
	if err := yaml.Unmarshal(out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	f.VisitAll(func(fl *pflag.Flag) {
		if _, ok := keys[fl.Name]; !ok && fl.Name != flagConfig {
			t.Errorf("no key for --%s", fl.Name)
		}
	})
	if !strings.Contains(out.String(), "group: daemon # flag") || !strings.Contains(out.String(), "kill-grace: 3s # default") {
		t.Error(out.String())
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"data-dri: /x":                  "processd.yaml:1: data-dri: unknown key; did you mean data-dir?",
		"\n\nquux: 1":                   "processd.yaml:3: quux: unknown key; known are data-dir",
		"config: /x":                    "unknown key",
		"output-files: many":            `output-files: "many" is no int`,
		"kill-on-exit: perhaps":         `kill-on-exit: "perhaps" is no bool`,
		"kill-grace: 3":                 `kill-grace: "3" is no duration`,
		"socket: [a]":                   "socket: want one value: string",
		"socket: {a: b}":                "socket: want one value: string",
		"group:":                        "group: want one value: string",
		"group: a\ngroup: b":            "group: it is given twice, first in line 1",
		"- a":                           "processd.yaml:1: it is no mapping",
		"a: b\n---\nc: d":               "more than one document",
		"\tx":                           "processd.yaml: yaml:",
		"output-files: -1":              "want 0 or more",
		"start-timeout: 0s":             "--start-timeout, --prepare-timeout: want more than 0s",
		"log-level: x\nkill-grace: -1s": "--kill-grace: want 0s or more",
	} {
		if _, _, err := settled(t, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
	// All at once, and also where a flag wins.
	_, _, err := settled(t, "a-key: 1\noutput-files: x\nkill-grace: y\n", "--output-files", "1")
	for _, want := range []string{"a-key", "output-files", "kill-grace"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell about %s", err, want)
		}
	}
	for _, file := range []string{"", "# nothing\n", "---\n"} {
		if _, _, err := settled(t, file); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// TestConfigCommands: check and print as people run them, and SIGHUP.
func TestConfigCommands(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	conf := filepath.Join(dir, "c.yaml")
	put := func(text string) {
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("log-level: warn\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"config", "check", "--config", conf}, exitOK, ""},
		{[]string{"config", "print", "--config", conf, "--group", "daemon"}, exitOK, "log-level: warn # file"},
		{[]string{"config", "check", "--config", filepath.Join(dir, "none.yaml")}, exitUsage, "no such file"},
		{[]string{"config", "check", "--log-level", "loud"}, exitUsage, `--log-level "loud"`},
		{[]string{"config", "check", "--log-level", "loud", "--group", "no-such-group"}, exitUsage, `--group "no-such-group"`},
		{[]string{"config", "check", "--default-user", "no-such-user"}, exitUsage, `--default-user "no-such-user"`},
		{[]string{"config", "check", "--default-user", "0", "--group", "daemon"}, exitOK, ""},
		{[]string{"--config", filepath.Join(dir, "none.yaml")}, exitUsage, "no such file"},
	} {
		cmd := exec.Command(binary, c.args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
	cmd, _ := startProgram(t, dir, binary, nil, nil, "--config", conf, "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s"))
	hup := func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(logOf(dir), "msg=serving") {
		t.Error("the level of the file does not hold")
	}
	put("log-level: debug\noutput-files: 8\n")
	hup()
	eventually(t, "the level is taken over", func() bool {
		return strings.Contains(logOf(dir), "log_level=DEBUG") && strings.Contains(logOf(dir), "send SIGUSR2 for the rest")
	})
	put("log-lewel: debug\n")
	hup()
	eventually(t, "an error is told", func() bool { return strings.Contains(logOf(dir), "the configuration is not taken over") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestShippedConfig: the file that is shipped is taken.
func TestShippedConfig(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../contrib/systemd/processd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := settled(t, string(b)); err != nil {
		t.Error(err)
	}
	// What is commented out is true, too.
	var all []string
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(text, " ") {
			line = text
		}
		all = append(all, line)
	}
	o, _, err := settled(t, strings.Join(all, ""))
	if err != nil || o.from["start-timeout"] != "file" {
		t.Errorf("%v\n%s", err, strings.Join(all, ""))
	}
}

// FuzzConfig: whatever is in the file, it is taken or refused with a reason, and what is taken
// is right.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"", "data-dir: /x\n", "output-files: 3\nlog-level: warn", "a: &a [*a]", "? [x]\n: y", "kill-grace: 1h\nkill-grace: 2h", "group: !!binary aGk=", "<<: {socket: /x}"} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var o options
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(flags)
		if err := flags.Parse([]string{"--config", path}); err != nil {
			t.Fatal(err)
		}
		if err := o.settle(flags); err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("refused without a reason")
			}
			return
		}
		if o.outputMB < 0 || o.killGrace < 0 || o.dataDir == "" || o.workspace == "" || o.config != path {
			t.Errorf("%q is taken as %+v", text, o)
		}
	})
}

// TestNobodyIsRootByDefault: a process that names no user is root only when the operator says so.
func TestNobodyIsRootByDefault(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a daemon that is not root has its own account only")
	}
	for file, want := range map[string]string{"": "nobody", "default-user: root": "root"} {
		if o, _, err := settled(t, file); err != nil || o.defaultUser != want {
			t.Errorf("with %q processes run as %q, want %q: %v", file, o.defaultUser, want, err)
		}
	}
}
