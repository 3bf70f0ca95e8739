package processdaemon

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tandem/internal/execstream"
	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// served returns a client of a daemon that is served on a socket.
func served(t *testing.T, d *Daemon) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := unixhttp.Listen(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, l) }()
	c := client.New(socket)
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func limited(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestExecRunsAsTheTaskDoes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	s := spec(d, "a", "sleep 600")
	s.Env = []string{"COLOUR=green"}
	if os.Getuid() == 0 {
		s.User = "nobody"
	}
	st := run(t, d, s)
	res, started, err := c.Exec(limited(t, time.Minute), "a", protocol.ExecRequest{
		Argv: []string{"/bin/sh", "-c", `echo "$COLOUR $MORE $(id -un) $(pwd)"; cat /proc/self/cgroup >&2; exit 7`}, Env: []string{"MORE=yes"},
	})
	if err != nil || !started || res.Code != 7 {
		t.Fatalf("%+v, %v, %v", res, started, err)
	}
	user := "root"
	if s.User != "" {
		user = s.User
	}
	if want := "green yes " + user + " " + s.WorkPath; !strings.Contains(res.Output, want) {
		t.Errorf("output %q, want %q in it", res.Output, want)
	}
	if d.tree.Mode() != "session" {
		its := read(t, "/proc/"+strconv.Itoa(st.Pid)+"/cgroup")
		for _, line := range strings.Split(strings.TrimSpace(its), "\n") {
			if !strings.Contains(res.Output, line) {
				t.Errorf("the command is not in %s but in\n%s", line, res.Output)
			}
		}
	}
}

func TestExecOutcomes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	run(t, d, spec(d, "a", "sleep 600"))
	awaitState(t, d, "a", running)
	for name, x := range map[string]struct {
		argv []string
		code int
		text string
	}{
		"success":    {[]string{"true"}, 0, ""},
		"signal":     {[]string{"/bin/sh", "-c", "kill -9 $$"}, 137, ""},
		"no program": {[]string{"no-such-program"}, 127, "no such program in PATH"},
		"no binary":  {[]string{"/etc/passwd"}, 127, "not executable"},
		"much":       {[]string{"/bin/sh", "-c", "seq 1 100000; echo end; exit 1"}, 1, "end\n"},
	} {
		res, started, err := c.Exec(limited(t, time.Minute), "a", protocol.ExecRequest{Argv: x.argv})
		if err != nil || !started || res.Code != x.code || !strings.Contains(res.Output, x.text) || len(res.Output) > 2*execOutput {
			t.Errorf("%s: %+v, %v, %v", name, res, started, err)
		}
	}
	for _, argv := range [][]string{nil, {"a\x00b"}} {
		if _, _, err := c.Exec(limited(t, time.Minute), "a", protocol.ExecRequest{Argv: argv}); !client.IsCode(err, protocol.CodeInvalid) {
			t.Errorf("%q: %v", argv, err)
		}
	}
	if _, _, err := c.Exec(limited(t, time.Minute), "b", protocol.ExecRequest{Argv: []string{"true"}}); !client.IsCode(err, protocol.CodeNotFound) {
		t.Errorf("unknown task: %v", err)
	}
	create(t, d, spec(d, "ready", "sleep 600"))
	if _, started, err := c.Exec(limited(t, time.Minute), "ready", protocol.ExecRequest{Argv: []string{"true"}}); started || !client.IsCode(err, protocol.CodeConflict) {
		t.Errorf("task that does not run: %v", err)
	}
}

// A command that takes too long, or leaves something behind, leaves nothing.
func TestExecLeavesNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := served(t, d)
	run(t, d, spec(d, "a", "sleep 600"))
	awaitState(t, d, "a", running)
	dir := testkit.PublicDir(t)
	pids := func(name string) []*procid.Process {
		var out []*procid.Process
		eventually(t, "pids in "+name, func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.Count(string(b), "\n") == 2
		})
		for _, f := range strings.Fields(read(t, filepath.Join(dir, name))) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := procid.OpenPid(pid); err == nil {
				t.Cleanup(func() { p.Close() })
				out = append(out, p)
			}
		}
		return out
	}
	gone := func(list []*procid.Process) {
		t.Helper()
		for _, p := range list {
			eventually(t, "the end of what a command left", func() bool { return !p.Identity().Alive() })
		}
	}
	script := func(name, end string) []string {
		return []string{"/bin/sh", "-c", "sleep 599 & echo $! > " + dir + "/" + name + "; echo $$ >> " + dir + "/" + name + "; " + end}
	}
	// The time is up.
	if _, started, err := c.Exec(limited(t, 3*time.Second), "a", protocol.ExecRequest{Argv: script("late", "wait")}); !started || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("started %v, %v", started, err)
	}
	gone(pids("late"))
	// It ends and leaves a child that holds its output open.
	if res, _, err := c.Exec(limited(t, time.Minute), "a", protocol.ExecRequest{Argv: script("child", "exit 3")}); err != nil || res.Code != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	gone(pids("child"))
	// The task ends meanwhile, and does not wait for the command.
	result := make(chan error, 1)
	go func() {
		_, _, err := c.Exec(limited(t, time.Minute), "a", protocol.ExecRequest{Argv: script("ended", "wait")})
		result <- err
	}()
	left := pids("ended")
	begin := time.Now()
	if err := d.Signal("a", int(syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	awaitState(t, d, "a", ended)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the end took %s", took)
	}
	if err := <-result; err == nil {
		t.Error("the command succeeded")
	}
	gone(left)
}

// TestCommandThatItsTaskTakesAlong: the kill of a task reaches the commands beside it a moment before
// anybody has heard of its end. That is no result of theirs.
func TestCommandThatItsTaskTakesAlong(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	for _, kind := range []string{"exec", "session"} {
		s := spec(d, kind, "sleep 600")
		run(t, d, s)
		tk, err := d.task(kind)
		if err != nil {
			t.Fatal(err)
		}
		// Under a context that does not end with the task: as late as can be.
		argv := []string{"sh", "-c", ": > up; sleep 600; true"}
		result := make(chan error, 1)
		go func() {
			if kind == "exec" {
				_, err := tk.exec(t.Context(), &protocol.ExecRequest{Argv: argv}, func() {})
				result <- err
				return
			}
			_, err := tk.session(t.Context(), &protocol.SessionRequest{Argv: argv}, execstream.Terminal{Stdout: io.Discard, Stderr: io.Discard})
			result <- err
		}()
		eventually(t, "the command runs", func() bool { return exists(filepath.Join(s.WorkPath, "up")) })
		if _, err := d.Stop(kind, 0); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !isCode(err, protocol.CodeConflict) {
			t.Errorf("%s: %v", kind, err)
		}
		awaitState(t, d, kind, ended)
	}
}
