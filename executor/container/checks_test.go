package container

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"tandem/executor"
	"tandem/executor/health"
	"tandem/internal/enginetest"
	"tandem/internal/netns"
)

func TestChecksGoIntoTheContainersNetwork(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("network namespaces are entered by root only")
	}
	for _, mode := range []string{"NONE", "BRIDGE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			task := f.task("while :; do echo hello | nc -l -p 7777; done", func(x *executor.Task) { x.Spec.Network.Mode = mode })
			f.launch(task)
			ns, err := f.Netns(f.ctx(), task.ID)
			if err != nil || ns == nil {
				t.Fatalf("%v, %v", ns, err)
			}
			defer ns.Close()
			to := netip.MustParseAddrPort("127.0.0.1:7777")
			eventually(t, "a connection inside", func() bool {
				c, err := netns.DialTCP(f.ctx(), ns, to)
				if err == nil {
					c.Close()
				}
				return err == nil
			})
			if c, err := netns.DialTCP(f.ctx(), nil, to); err == nil {
				c.Close()
				t.Error("what listens inside is reached from outside")
			}
		})
	}
}

func TestE11HostNetworkIsOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 600", func(x *executor.Task) { x.Spec.Network.Mode = "HOST" })
	if _, err := f.Netns(f.ctx(), task.ID); err == nil {
		t.Error("a task that does not run has a namespace")
	}
	f.launch(task)
	if ns, err := f.Netns(f.ctx(), task.ID); ns != nil || err != nil {
		t.Errorf("%v, %v; want neither", ns, err)
	}
}

func TestCommandOfACheck(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 600", func(x *executor.Task) { x.Env = []string{"COLOUR=green", "PATH=/bin"} })
	if _, err := f.Exec(f.ctx(), task.ID, health.Command{Argv: []string{"true"}}); err == nil {
		t.Error("a command ran in a task that does not")
	}
	f.launch(task)
	for name, c := range map[string]struct {
		argv []string
		code int
		text string
	}{
		"success":    {[]string{"echo", "fine"}, 0, "fine\n"},
		"shell":      {[]string{"/bin/sh", "-c", "echo $COLOUR $MORE >&2; exit 3"}, 3, "green yes\n"},
		"signal":     {[]string{"/bin/sh", "-c", "kill -9 $$"}, 137, ""},
		"no program": {[]string{"no-such-program"}, 126, "no-such-program"},
		"much":       {[]string{"/bin/sh", "-c", "seq 1 20000; echo end"}, 0, "20000\nend\n"},
	} {
		r, err := f.Exec(f.ctx(), task.ID, health.Command{Argv: c.argv, Env: []string{"MORE=yes"}})
		code := r.Code
		if name == "no program" && code == 127 {
			code = 126 // engines differ
		}
		if err != nil || !r.Started || code != c.code || !strings.Contains(r.Output, c.text) || len(r.Output) > health.MaxOutput {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// Engines leave a command running for which nobody waits any more.
func TestE11CommandThatTakesTooLongIsKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 600")
	f.launch(task)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	r, err := f.Exec(ctx, task.ID, health.Command{Argv: []string{"/bin/sh", "-c", "echo begun; sleep 4711; true"}})
	if !errors.Is(err, context.DeadlineExceeded) || !r.Started || r.Output != "begun\n" {
		t.Fatalf("%+v, %v", r, err)
	}
	eventually(t, "the end of the command", func() bool {
		top, err := docker.ContainerTop(f.ctx(), "tandem-"+task.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range top.Processes {
			if strings.Contains(strings.Join(p, " "), "4711") {
				return false
			}
		}
		return true
	})
}

func TestCommandWithAMuteEngineIsUnclear(t *testing.T) {
	t.Parallel()
	f, p := behindProxy(t)
	task := f.task("sleep 600")
	f.launch(task)
	for _, call := range []string{"POST .*/containers/.*/exec", "POST .*/exec/.*/start"} {
		p.Seen("")
		p.Arm(call, enginetest.Silence, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		// The call that is to hang is under way when the time is up.
		go func() {
			for ctx.Err() == nil && len(p.Seen(call)) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
		}()
		if r, err := f.Exec(ctx, task.ID, health.Command{Argv: []string{"echo"}}); err == nil || r.Started {
			t.Errorf("%s: %+v, %v", call, r, err)
		}
		cancel()
	}
	p.Arm("GET .*/exec/.*/json", enginetest.Fail500, 1)
	if r, err := f.Exec(f.ctx(), task.ID, health.Command{Argv: []string{"echo"}}); err == nil || r.Started {
		t.Errorf("no exit code: %+v, %v", r, err)
	}
	if r, err := f.Exec(f.ctx(), task.ID, health.Command{Argv: []string{"echo"}}); err != nil || !r.Started {
		t.Errorf("after the silence: %+v, %v", r, err)
	}
}

func TestReadFrames(t *testing.T) {
	t.Parallel()
	frame := func(s string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(s))), s...)
	}
	var all tail
	long := strings.Repeat("x", 3000)
	if err := readFrames(bytes.NewReader(append(append(frame("a\n"), frame("")...), frame(long)...)), &all); err != nil || !strings.HasSuffix(all.last(5000), long) {
		t.Errorf("%v", err)
	}
	for _, bad := range [][]byte{{1, 0, 0}, frame("abc")[:9], {1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'}} {
		if err := readFrames(bytes.NewReader(bad), new(tail)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
