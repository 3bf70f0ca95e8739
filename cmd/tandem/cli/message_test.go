package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"tandem/api"
	"tandem/cmd/tandem/exit"
	"tandem/internal/execstream"
	"tandem/internal/pty"
	"tandem/scheduler/client"
	"tandem/scheduler/wire"
)

func (f *fakeBackend) Message(_ context.Context, namespace, group string, m *api.Message) (*api.MessageResult, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := f.step("message %s %s %s", namespace, group, data); err != nil {
		return nil, err
	}
	if group == "1.web.test.c.1" {
		return nil, exit.With(exit.Refused, errors.New("it does not run"))
	}
	if m.Resources != nil {
		after, err := m.Resources.Apply(api.ResourceUpdate{Requests: api.TaskResources{CPUs: 0.5, MemMB: 64}})
		return &api.MessageResult{Resources: &after}, err
	}
	if m.Commit != nil {
		return &api.MessageResult{ImageID: "sha256:1234"}, nil
	}
	return &api.MessageResult{}, nil
}

func TestSignal(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "signal", "web-0", "HUP", "-n", "test"), exit.OK, []string{"taskgroup/test/web-0 main: signal HUP sent\n"}, nil)
	if !b.did(`message test 0.web.test.c.1 {"version":"","id":"","type":"signal","task":"1.0.0.web.test.c","signal":"HUP"}`) {
		t.Errorf("calls %q", b.calls)
	}
	// Each taskgroup of a workload gets it, also when another fails.
	r := with(t, b, "", "signal", "application/test/web", "1", "-o", "json")
	expect(t, r, exit.Refused, nil, []string{"it does not run"})
	var list struct{ Items []outcome }
	err := json.Unmarshal([]byte(r.out), &list)
	if got := list.Items; err != nil || len(got) != 2 || got[0].Error != "" || got[1].Error == "" || got[0].Task != "main" {
		t.Errorf("%v %s", err, r.out)
	}
	// It changes something, so the namespace is not guessed.
	expect(t, with(t, b, "", "signal", "web-0", "HUP"), exit.NotFound, nil, []string{`taskgroup "web-0" is not in namespace defaultGroup but in test: choose it with -n`})
	expect(t, with(t, b, "", "signal", "web-0"), exit.Usage, nil, []string{"missing argument SIGNAL"})
	b.groups[0].Tasks = append(b.groups[0].Tasks, wire.Task{ID: "x", Name: "side"})
	expect(t, with(t, b, "", "signal", "web-0", "HUP", "-n", "test"), exit.Usage, nil, []string{"web-0 has the tasks main and side: choose one with --task"})
	expect(t, with(t, b, "", "signal", "web-0", "HUP", "-n", "test", "--task", "side"), exit.OK, []string{"web-0 side: signal"}, nil)
	b.groups[0].ID = ""
	expect(t, with(t, b, "", "signal", "web-0", "HUP", "-n", "test", "--task", "side"), exit.Refused, nil, []string{"does not run"})
}

func TestResize(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "resize", "web-0", "-n", "test", "--limit-cpu", "2", "--limit-memory", "0"), exit.OK,
		[]string{"taskgroup/test/web-0 main: has cpu 0.5 (limit 2), memory 64 MiB (limit as requested) now\n"}, nil)
	if !b.did(`message test 0.web.test.c.1 {"version":"","id":"","type":"resources","task":"1.0.0.web.test.c","resources":{"limits":{"cpus":2,"memMB":0}}}`) {
		t.Errorf("calls %q", b.calls)
	}
	expect(t, with(t, b, "", "resize", "web-0", "-n", "test", "--request-cpu", "0.25", "-o", "yaml"), exit.OK, []string{"cpus: 0.25\n", "memMB: 64\n"}, nil)
	expect(t, with(t, b, "", "resize", "web-0", "-n", "test", "--limit-pids", "50"), exit.OK, []string{"(limit as requested), at most 50 processes now\n"}, nil)
	if !b.did(`message test 0.web.test.c.1 {"version":"","id":"","type":"resources","task":"1.0.0.web.test.c","resources":{"limits":{"pids":50}}}`) {
		t.Errorf("calls %q", b.calls)
	}
	expect(t, with(t, b, "", "resize", "web-0", "-n", "test"), exit.Usage, nil, []string{"nothing to change"})
}

func TestMessageCompletion(t *testing.T) {
	t.Parallel()
	b := webStack()
	expect(t, with(t, b, "", "__complete", "signal", ""), exit.OK, []string{"web-0\nweb-1\n"}, nil)
	expect(t, with(t, b, "", "__complete", "signal", "web-0", ""), exit.OK, []string{"SIGHUP\n"}, nil)
	expect(t, with(t, b, "", "__complete", "resize", "web-0", "--task", ""), exit.OK, []string{"main\n"}, nil)
}

func TestMessageErrorsHaveTheirExitCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]exit.Code{wire.CodeTimeout: exit.TimedOut, wire.CodeConflict: exit.Refused, wire.CodeUnavailable: exit.Unreachable} {
		if got := exit.Of(classify(&client.Error{Problem: wire.Problem{Code: code, Message: code}})); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}

func (f *fakeBackend) Exec(_ context.Context, namespace, group string, req wire.ExecRequest) (io.ReadWriteCloser, error) {
	if err := f.step("exec %s %s %s %q %t", namespace, group, req.Task, req.Command, req.Stdin); err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		w, r := execstream.NewWriter(there), execstream.NewReader(there)
		for req.Stdin {
			_, p, err := r.Next()
			if err != nil || len(p) == 0 {
				break
			}
			_ = w.Send(execstream.Stdout, p)
		}
		_ = w.Send(execstream.Stderr, []byte("done\n"))
		if req.Command[0] != "break" {
			_ = w.SendJSON(execstream.Ended, execstream.End{Code: 9})
		}
	}()
	return here, nil
}

func TestExec(t *testing.T) {
	t.Parallel()
	b := webStack()
	r := with(t, b, "typed", "exec", "web-0", "-n", "test", "-i", "--", "cat", "-n", "x")
	if r.code != 9 || r.out != "typed" || r.errOut != "done\n" {
		t.Errorf("%+v", r)
	}
	if !b.did(`exec test 0.web.test.c.1 1.0.0.web.test.c ["cat" "-n" "x"] true`) {
		t.Errorf("calls %q", b.calls)
	}
	expect(t, with(t, b, "", "exec", "web-0", "-n", "test", "--", "break"), exit.Failure, nil, []string{"broken off"})
	expect(t, with(t, b, "", "exec", "web", "-n", "test", "--", "ls"), exit.Usage, nil, []string{"name one, such as web-0"})
	expect(t, with(t, b, "", "exec", "web-0", "-n", "test"), exit.Usage, nil, []string{"the command after it"})
	expect(t, with(t, b, "", "exec", "web-0", "-n", "test", "ls"), exit.Usage, nil, []string{"the command after it"})
}

// panics is a screen that breaks, as a mistake in this program would.
type panics struct{ raw func() bool }

func (p panics) Write([]byte) (int, error) {
	if !p.raw() {
		return 0, errors.New("the terminal is not raw")
	}
	panic("a mistake")
}

// A mistake in this program does not leave a terminal behind that shows nothing of
// what is typed.
func TestExecRestoresTheTerminalWhenItPanics(t *testing.T) {
	t.Parallel()
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	shows := func() bool {
		attrs, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return attrs.Lflag&(unix.ECHO|unix.ICANON) == unix.ECHO|unix.ICANON
	}
	if !shows() {
		t.Fatal("a new terminal is raw")
	}
	s := Streams{In: terminal, Out: io.Discard, Err: panics{raw: func() bool { return !shows() }}, Getenv: func(string) string { return "" }}
	a := newApp(s)
	a.connect = func(string) (backend, error) { return webStack(), nil }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		a.execute(context.Background(), []string{"exec", "web-0", "-n", "test", "-t", "--", "sh"}, s)
	}()
	if !shows() {
		t.Error("the terminal is still raw")
	}
}
