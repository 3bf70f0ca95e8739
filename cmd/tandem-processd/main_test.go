package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/processdaemon"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

var binary string

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		// It runs nothing of the binary.
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "processd-bin")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tandem-processd")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
	} else {
		testkit.QuickEnd()
		code = cgrouptest.Run(m.Run)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, exitOK, "tandem-processd --data-dir /srv/tandem --group mesos"},
		{[]string{"version"}, exitOK, "tandem-processd "},
		{[]string{"--version"}, exitOK, "tandem-processd "},
		{[]string{"--no-such-flag"}, exitUsage, "unknown flag: --no-such-flag; see tandem-processd --help"},
		{[]string{"no-such-command"}, exitUsage, `unexpected argument "no-such-command"`},
		{[]string{"--log-level", "loud"}, exitUsage, `--log-level "loud"`},
		{[]string{"--socket", "/" + strings.Repeat("x", 120)}, exitUsage, "107 at most"},
		{[]string{"--data-dir", file + "/x", "--socket", sock}, exitFailure, "choose a data directory that is writable"},
		{[]string{"--data-dir", filepath.Join(t.TempDir(), "d"), "--socket", file}, exitFailure, "another kind of file is in the way"},
		{[]string{"--data-dir", filepath.Join(t.TempDir(), "d"), "--socket", sock, "--group", "no-such-group"}, exitFailure, `socket group "no-such-group"`},
	} {
		cmd := exec.Command(binary, c.args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}

type daemon struct {
	cmd *exec.Cmd
	log bytes.Buffer
	c   *client.Client
}

func start(t *testing.T, dir string, args ...string) *daemon {
	t.Helper()
	cgrouptest.Expect(processdaemon.Trees(filepath.Join(dir, "data")))
	d := &daemon{c: client.New(filepath.Join(dir, "s"))}
	d.cmd = exec.Command(binary, append([]string{"--default-user", "root", "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s")}, args...)...)
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.c.Close()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := d.c.Info(context.Background()); err == nil {
			return d
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func (d *daemon) end(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, d.log.String())
	}
}

func TestFaultTermLeavesProcessesAndKillOnExitDoesNot(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	d := start(t, dir)
	s := protocol.Spec{ID: "a", Owner: "o", StartCmd: "sleep 60", Sandbox: filepath.Join(dir, "sandbox")}
	st, err := d.c.Create(t.Context(), &s)
	for err == nil && st.State == protocol.StatePreparing {
		st, err = d.c.Poll(t.Context(), "a", st.Version, time.Second)
	}
	if err == nil {
		st, err = d.c.Start(t.Context(), "a", 5*time.Second)
	}
	if err != nil || st.State != protocol.StateRunning {
		t.Fatalf("%+v %v", st, err)
	}
	id, err := procid.Of(st.Pid)
	if err != nil {
		t.Fatal(err)
	}
	second := exec.Command(binary, "--data-dir", filepath.Join(dir, "data"), "--socket", filepath.Join(dir, "s2"))
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "another process daemon uses it") {
		t.Errorf("a second daemon on the same data: %v\n%s", err, out)
	}
	// A long poll under way does not hold up the end.
	c, version := d.c, st.Version // of this daemon, not of the one that is started below
	go func() { _, _ = c.Poll(context.Background(), "a", version, time.Minute) }()
	begin := time.Now()
	d.end(t)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the end took %v", took)
	}
	if !id.Alive() {
		t.Fatal("SIGTERM to the daemon ended the process")
	}
	if _, err := os.Lstat(filepath.Join(dir, "s")); err == nil {
		t.Error("the socket is still there")
	}
	d = start(t, dir, "--kill-on-exit")
	if st, err := d.c.Status(t.Context(), "a"); err != nil || st.State != protocol.StateRunning || st.Pid != id.Pid {
		t.Errorf("%+v %v", st, err)
	}
	d.end(t)
	if id.Alive() {
		t.Error("the process outlives --kill-on-exit")
	}
	if e, _ := os.ReadDir(filepath.Join(dir, "data/processd/tasks")); len(e) != 0 {
		t.Errorf("records left: %v", e)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/tandem/*/*"); len(left) > 0 {
		for _, l := range left {
			if b, err := os.ReadFile(l + "/cgroup.procs"); err == nil && strings.Contains(string(b), strconv.Itoa(id.Pid)) {
				t.Errorf("control group left: %s", l)
			}
		}
	}
}
