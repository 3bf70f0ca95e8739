package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/testkit"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// operator asks the program itself, as people on the agent do, and has it ended.
type operator struct {
	t    *testing.T
	dir  string
	sock string
}

func newOperator(t *testing.T) (*operator, *client.Client) {
	t.Helper()
	dir := testkit.ShortDir(t)
	o := &operator{t: t, dir: dir, sock: filepath.Join(dir, "s")}
	cmd, c := startProgram(t, dir, binary, nil, nil, "--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", o.sock, "--kill-on-exit", "--kill-grace", "1ms")
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return o, c
}

func (o *operator) ask(args ...string) (int, string) {
	var out bytes.Buffer
	code := run(append([]string{"--socket", o.sock}, args...), &out, &out)
	return code, out.String()
}

// does wants one command to succeed, and to say something.
func (o *operator) does(want string, args ...string) string {
	o.t.Helper()
	code, out := o.ask(args...)
	if code != exitOK || !strings.Contains(out, want) {
		o.t.Errorf("%v: %d %q, want %q", args, code, out, want)
	}
	return out
}

func (o *operator) status(id string) (s protocol.Status) {
	o.t.Helper()
	out := o.does("{", "inspect", id, "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		o.t.Errorf("%s: %v", out, err)
	}
	return s
}

func (o *operator) file(name, text string) string {
	o.t.Helper()
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return path
}

// TestAnOperatorNeedsNoOtherTool: a task's whole life by the commands alone.
func TestAnOperatorNeedsNoOtherTool(t *testing.T) {
	t.Parallel()
	o, c := newOperator(t)
	work := filepath.Join(o.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := o.file("task.yaml", "id: a\nname: first\nstartCmd: ./server.sh\nreloadCmd: \"echo again >> reloaded\"\nsandbox: "+work+"\n")
	server := "#!/bin/sh\ntrap 'echo hup' HUP\necho out\necho up > up\nwhile :; do sleep 0.05; done\n"
	if err := os.WriteFile(filepath.Join(work, "server.sh"), []byte(server), 0o755); err != nil {
		t.Fatal(err)
	}
	o.does("staging", "create", "-f", spec)
	o.does("staging", "create", "-f", spec) // the same again
	o.does("running", "start", "a")
	o.does("running", "start", "a") // as well
	first := o.status("a")
	if first.Phase != protocol.PhaseRunning || first.State != protocol.StateRunning || first.Pid == 0 {
		t.Errorf("%+v", first)
	}
	var all []protocol.Status
	if err := json.Unmarshal([]byte(o.does("", "tasks", "-o", "json")), &all); err != nil || len(all) != 1 || all[0].Phase != protocol.PhaseRunning {
		t.Errorf("%+v %v", all, err)
	}
	if out := o.does("running", "tasks"); !strings.Contains(out, "NAME   PHASE    STATE") {
		t.Errorf("%s", out)
	}
	o.does("tracking", "info")
	eventually(t, "it is up", func() bool { _, err := os.Stat(filepath.Join(work, "up")); return err == nil })
	o.does("out\n", "logs", "a")
	o.does("", "signal", "a", "HUP")
	eventually(t, "the signal", func() bool { _, out := o.ask("logs", "a"); return strings.Contains(out, "hup") })
	o.does("running", "reload", "a")
	if b, err := os.ReadFile(filepath.Join(work, "reloaded")); err != nil || string(b) != "again\n" {
		t.Errorf("%q %v", b, err)
	}
	o.does("PROCESSES", "stats", "a")
	o.does(`"processes": `, "stats", "-o", "json")
	o.does("", "upload", "a", o.file("some.conf", "x=1\n"), "up.conf", "--mode", "0600")
	o.does("x=1", "exec", "a", "--", "cat", "up.conf")
	if code, out := o.ask("exec", "a", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("%d %s", code, out)
	}
	o.does("", "limits", "a", "--cpu-request", "0.5")
	if s := o.status("a"); s.Limits.CPURequest != 0.5 {
		t.Errorf("%+v", s.Limits)
	}
	o.does("running", "restart", "a", "--grace", "5s")
	if s := o.status("a"); s.Restarts != 1 || s.Pid == first.Pid || s.Phase != protocol.PhaseRunning {
		t.Errorf("%+v", s)
	}
	if code, out := o.ask("delete", "a"); code != exitFailure || !strings.Contains(out, "stop it first") {
		t.Errorf("%d %s", code, out)
	}
	o.does("stopped", "stop", "a", "--grace", "5s")
	o.does("signal", "inspect", "a")
	if code, out := o.ask("start", "a"); code != exitFailure || !strings.Contains(out, "not started again") {
		t.Errorf("%d %s", code, out)
	}
	o.does("", "delete", "a")
	o.does("", "delete", "a") // unknown
	if left, err := c.List(t.Context(), ""); err != nil || len(left) != 0 {
		t.Errorf("%+v %v", left, err)
	}
	o.does("running", "create", "-f", spec, "--start", "-o", "json")
	o.does("", "delete", "a", "--stop", "--grace", "0s")
}

// TestCommandsTellWhatWentWrong: each failure has an exit code and says its reason.
func TestCommandsTellWhatWentWrong(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	task := func(id, more string) string {
		return o.file(id+".json", `{"id": "`+id+`", "sandbox": "`+filepath.Join(o.dir, "box-"+id)+`", `+more+`}`)
	}
	o.does("ready", "create", "-f", task("idle", `"startCmd": "sleep 60"`))
	o.does("running", "create", "--start", "-f", task("runs", `"startCmd": "sleep 60", "stopCmd": "sleep 60"`))
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"inspect", "none"}, exitFailure, "is not known"},
		{[]string{"inspect"}, exitUsage, "want the id of a task"},
		{[]string{"stop"}, exitUsage, "tandem-processd tasks lists them"},
		{[]string{"create"}, exitUsage, "-f: name a file"},
		{[]string{"create", "-f", task("x", `"startcommand": "true"`)}, exitUsage, `unknown field "startcommand"`},
		{[]string{"create", "-f", task("y", `"env": ["A"]`)}, exitFailure, "env[0]"},
		{[]string{"create", "--start", "-f", task("bad", `"startCmd": "/no/such/program"`)}, exitFailure, "no such file"},
		{[]string{"signal", "runs", "NOSUCH"}, exitUsage, "NOSUCH"},
		{[]string{"signal", "idle", "HUP"}, exitFailure, "no running process"},
		{[]string{"reload", "runs"}, exitFailure, "no reloadCmd"},
		{[]string{"restart", "idle"}, exitFailure, "only one that runs"},
		{[]string{"stop", "runs", "--grace", "-5s"}, exitUsage, "want 0s or more"},
		{[]string{"limits", "runs"}, exitUsage, "name a limit"},
		{[]string{"limits", "runs", "--pids", "0"}, exitUsage, "or -1 for any number"},
		{[]string{"upload", "runs", "/no/such", "x"}, exitFailure, "no such file"},
		{[]string{"upload", "runs", "/etc/hostname", "x", "--mode", "999"}, exitUsage, "--mode 999"},
		{[]string{"exec", "idle", "--", "true"}, exitFailure, "running task only"},
		{[]string{"tasks", "-o", "xml"}, exitUsage, "want table or json"},
		{[]string{"stop", "runs", "--grace", "1h", "--wait", "50ms"}, exitFailure, "is still stopping"},
		{[]string{"completion", "tcsh"}, exitUsage, "bash"},
		{[]string{"completion", "bash"}, exitOK, "__start_tandem-processd"},
		{[]string{"__complete", "stop", ""}, exitOK, "runs\t"},
		{[]string{"__complete", "signal", "runs", ""}, exitOK, "HUP"},
		{[]string{"stop", "runs", "idle", "--grace", "0s"}, exitOK, "stopped"},
	} {
		if code, out := o.ask(x.args...); code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("%v: %d %q, want %d %q", x.args, code, out, x.code, x.want)
		}
	}
}

// TestEventsEndWithAnInterruption: the stream of changes, as people watch it.
func TestEventsEndWithAnInterruption(t *testing.T) {
	t.Parallel()
	o, _ := newOperator(t)
	out := filepath.Join(o.dir, "events")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	watch := startQuietly(t, f, "events", "-o", "json", "--socket", o.sock)
	o.does("ready", "create", "-f", o.file("a.json", `{"id": "a", "startCmd": "true", "sandbox": "`+filepath.Join(o.dir, "a")+`"}`))
	eventually(t, "the event", func() bool { b, _ := os.ReadFile(out); return strings.Contains(string(b), `"phase":"staging"`) })
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- watch.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second):
		t.Error("it goes on")
		_ = watch.Process.Kill()
		<-done
	}
}

// startQuietly runs the program beside the test.
func startQuietly(t *testing.T, out *os.File, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}
