// Package systemd tests what the process daemon promises on a machine as agents are: with systemd in charge of it,
// the units of contrib/systemd installed, and cgroups v2 only. Its tests install, restart and kill the
// daemon of the machine, so they run in that of `make vm` alone.
package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/internal/procid"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

const (
	service = "tandem-processd.service"
	socket  = "tandem-processd.socket"
	program = "/usr/local/bin/tandem-processd"
	// patience is for a machine that is made by another's instructions, one by one.
	patience = time.Minute
)

// why tells why the tests cannot run here; empty when they can.
func why() string {
	if os.Getenv("TANDEM_VM") == "" {
		return "these tests replace and kill the process daemon of their machine: run them by `make vm`"
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return "systemd is not in charge of this machine"
	}
	return ""
}

func TestMain(m *testing.M) {
	if why() != "" {
		os.Exit(m.Run())
	}
	code := 1
	if err := install(); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
	} else {
		code = m.Run()
	}
	if code != 0 {
		log, _ := run("journalctl", "--no-pager", "-o", "short-monotonic", "-n", "80", "-u", service, "-u", socket)
		fmt.Fprintln(os.Stderr, log)
	}
	if _, err := run("systemctl", "disable", "--now", socket, service); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		code = 1
	}
	os.Exit(code)
}

// install does what an operator does.
func install() error {
	const units = "../../contrib/systemd/"
	for _, c := range [][]string{
		{"install", "-D", "-m", "755", "../../bin/tandem-processd", program},
		{"install", "-D", "-m", "644", units + "processd.yaml", "/etc/tandem/processd.yaml"},
		{"install", "-m", "644", units + service, units + socket, "/etc/systemd/system"},
		{"systemd-analyze", "verify", "--man=no", "/etc/systemd/system/" + service, "/etc/systemd/system/" + socket},
		{"systemctl", "daemon-reload"},
		{"systemctl", "enable", "--now", socket},
	} {
		if out, err := run(c...); err != nil {
			return err
		} else if c[0] == "systemd-analyze" && strings.Contains(out, "tandem-processd") {
			return fmt.Errorf("the units are not as systemd wants them: %s", out)
		}
	}
	return nil
}

// run runs a command and returns what it wrote.
func run(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(command, " "), err, out.String(), complaint.String())
	}
	if command[0] == "systemd-analyze" {
		return complaint.String(), nil
	}
	return strings.TrimSpace(out.String()), nil
}

// do is run for what has to work.
func do(t *testing.T, command ...string) string {
	t.Helper()
	out, err := run(command...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// property is one of the service's, see systemctl(1).
func property(t *testing.T, name string) string {
	t.Helper()
	return do(t, "systemctl", "show", "-P", name, service)
}

// mainPid is 0 while there is none.
func mainPid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(property(t, "MainPID"))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: ", what)
		}
	}
}

// daemon returns a client of the daemon, which runs. What the test made by it is removed at its end.
func daemon(t *testing.T) *client.Client {
	t.Helper()
	if reason := why(); reason != "" {
		t.Skip(reason)
	}
	do(t, "systemctl", "reset-failed", service, socket)
	do(t, "systemctl", "start", socket, service)
	c := client.New(client.DefaultSocket)
	t.Cleanup(func() {
		defer c.Close()
		do(t, "systemctl", "start", socket, service)
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		all, err := c.List(ctx, "")
		if err != nil {
			t.Error(err)
		}
		for _, st := range all {
			if _, err := c.Stop(ctx, st.ID, 0); err != nil {
				t.Error(err)
			}
			for err == nil && st.State != protocol.StateEnded {
				st, err = c.Poll(ctx, st.ID, st.Version, time.Second)
			}
			if err = errors.Join(err, c.Delete(ctx, st.ID)); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// start starts a process whose sandbox is a directory of the test's.
func start(t *testing.T, c *client.Client, id, command string, limits protocol.Limits) protocol.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := c.Create(ctx, &protocol.Spec{ID: id, Owner: t.Name(), Name: id, User: "root", StartCmd: command, Sandbox: filepath.Join(t.TempDir(), id), Limits: limits})
	for err == nil && st.State == protocol.StatePreparing {
		st, err = c.Poll(ctx, id, st.Version, time.Second)
	}
	if err == nil {
		st, err = c.Start(ctx, id, patience)
	}
	if err != nil || st.State != protocol.StateRunning || len(st.Notes) > 0 {
		t.Fatalf("%+v, %v", st, err)
	}
	return st
}

// goesOn checks that a process is the same, and that the daemon knows it.
func goesOn(t *testing.T, c *client.Client, before *protocol.Status, id procid.Identity) {
	t.Helper()
	now, err := c.Status(t.Context(), before.ID)
	if err != nil || now.State != protocol.StateRunning || now.Pid != before.Pid || !id.Alive() {
		t.Errorf("process %s was %+v and is %+v, alive %v, %v", before.ID, before, now, id.Alive(), err)
	}
}

// exit waits for the end of a process.
func exit(t *testing.T, c *client.Client, id string) protocol.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := c.Status(ctx, id)
	for err == nil && st.State != protocol.StateEnded {
		st, err = c.Poll(ctx, id, st.Version, time.Second)
	}
	if err != nil || st.Exit == nil {
		t.Fatalf("%+v, %v", st, err)
	}
	return *st.Exit
}

func identity(t *testing.T, pid int) procid.Identity {
	t.Helper()
	id, err := procid.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// group is the directory of a process's control group. That it is v2 alone is what these tests are about.
func group(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	path, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "0::")
	if err != nil || !ok || strings.Contains(path, "\n") {
		t.Fatalf("control groups of %d: %q, %v", pid, b, err)
	}
	return filepath.Join("/sys/fs/cgroup", path)
}

// value reads a file of a group; with a key the number that follows it.
func value(t *testing.T, dir, file, key string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	if key == "" {
		return strings.TrimSpace(string(b))
	}
	f := strings.Fields(string(b))
	i := slices.Index(f, key)
	if i < 0 || i+1 == len(f) {
		t.Fatalf("%s/%s has no %s: %s", dir, file, key, b)
	}
	return f[i+1]
}
