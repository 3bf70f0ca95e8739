package processdaemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/procid"
	"tandem/internal/procid/pidwrap"
	"tandem/processdaemon/protocol"
)

// unmountGroups takes control groups away from the caller's mount namespace, the
// cgroup v2 ones alone or all, so that what it starts works without them.
func unmountGroups(t *testing.T, all bool) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[2] == "cgroup2" || all && f[2] == "cgroup" {
			points = append(points, f[1])
		}
	}
	for i := len(points) - 1; i >= 0; i-- {
		if err := unix.Unmount(points[i], unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFaultPidReuse: a process ends, its pid is given to a stranger, and then its task is
// looked after and stopped: by a daemon that was down meanwhile, by one whose keeper was
// killed too, by one that stood still. The stranger is never touched, whatever
// holds the processes of a task together, and no end is taken for a success.
func TestFaultPidReuse(t *testing.T) { //nolint:tparallel // each of its parts takes away more of the namespace they share
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	t.Run("groups", pidReuse)
	unmountGroups(t, false)
	t.Run("groups-v1", pidReuse)
	unmountGroups(t, true)
	t.Run("sessions", pidReuse)
}

func pidReuse(t *testing.T) {
	p := newProc(t)
	p.start("")
	info, err := p.c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(info.Tracking)
	killed := protocol.Exit{Known: true, Signal: 9}
	for _, c := range []struct {
		id, pidFile string
		// between ends the process in its own way and returns what is to be done once a stranger has its pid.
		between func(id procid.Identity) func()
		exit    *protocol.Exit // nil: nobody may claim to know
	}{
		{"daemon-down", "", func(id procid.Identity) func() {
			p.stop(syscall.SIGKILL)
			kill(t, id)
			return func() { p.start("") }
		}, &killed},
		{"daemon-down-with-pid-file", "app.pid", func(id procid.Identity) func() {
			p.stop(syscall.SIGKILL)
			kill(t, id)
			return func() { p.start("") }
		}, &killed},
		{"both-down", "", func(id procid.Identity) func() {
			p.killKeeper()
			p.stop(syscall.SIGKILL)
			kill(t, id)
			// Its parent is this process, the first one of the namespace, once the keeper's last thread is gone.
			eventually(t, "its end", func() bool {
				var ws syscall.WaitStatus
				_, err := syscall.Wait4(id.Pid, &ws, 0, nil)
				return err == nil
			})
			return func() { p.start("") }
		}, nil},
		{"daemon-stands-still", "", func(id procid.Identity) func() {
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			kill(t, id)
			return func() {
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					_, _ = p.c.Stop(ctx, "daemon-stands-still", 0) // it may come before or after the end is noticed
				}()
				if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
		}, &killed},
	} {
		s := p.spec(c.id, "exec sleep 1000")
		if s.PidFile = c.pidFile; c.pidFile != "" {
			s.StartCmd = "setsid sleep 1000 & echo $! > app.pid"
		}
		p.createAndStart(s)
		id, err := procid.Of(p.await(c.id, running).Pid)
		if err != nil {
			t.Fatal(err)
		}
		goOn := c.between(id)
		pidwrap.Gone(t, id)
		stranger := pidwrap.Stranger(t, id, "sleep", "1000")
		goOn()
		for _, grace := range []time.Duration{time.Second, 0} {
			p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, c.id, grace); return err })
		}
		st := p.await(c.id, ended)
		if st.Exit == nil || c.exit != nil && *st.Exit != *c.exit || c.exit == nil && st.Exit.Known {
			t.Errorf("%s: %+v", c.id, st.Exit)
		}
		p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, c.id) })
		if !stranger.Alive() {
			t.Errorf("%s: the stranger %v was killed", c.id, stranger)
		}
	}
}

func kill(t *testing.T, id procid.Identity) {
	t.Helper()
	if err := syscall.Kill(id.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestFaultPidReuseDuringStart: the same for a start command whose daemon was down, and
// for the process that a pid file names while it is waited for.
func TestFaultPidReuseDuringStart(t *testing.T) {
	t.Parallel()
	if !pidwrap.Inside(t) {
		return
	}
	p := newProc(t)
	p.start("")
	s := p.spec("command", "echo $$ > command; exec sleep 1000")
	s.PidFile = "app.pid"
	p.createAndStart(s)
	pidIn := func(name string) (id procid.Identity) {
		eventually(t, "a pid in "+name, func() bool {
			pid, err := parsePidFile(filepath.Join(p.dir, "data/workspace/work_dir", name), 0)
			if err == nil {
				id, err = procid.Of(pid)
			}
			return err == nil
		})
		return id
	}
	id := pidIn("command/command")
	p.await("command", starting)
	p.stop(syscall.SIGKILL)
	kill(t, id)
	pidwrap.Gone(t, id)
	first := pidwrap.Stranger(t, id, "sleep", "1000")
	p.start("")
	if st := p.await("command", ended); !strings.Contains(st.Failure, "signal 9") {
		t.Errorf("%q", st.Failure)
	}
	// The daemon stands still until the file names a stranger, who has the pid of the process of old.
	s = p.spec("file", "setsid sleep 1000 & echo $! > app.pid; sleep 1000 & echo $! > other")
	s.PidFile, s.StartGrace = "app.pid", 2*time.Second
	p.must("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, s); return err })
	p.await("file", ready)
	p.must("start", func(ctx context.Context) error { _, err := p.c.Start(ctx, "file", 0); return err })
	// It runs a moment after the file has named it, and until the grace is over another one may be named.
	eventually(t, "it is waited for", func() bool {
		st, err := p.c.Status(t.Context(), "file")
		return err == nil && (st.State == settling || st.State == running)
	})
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	id = pidIn("file/app.pid")
	kill(t, id)
	pidwrap.Gone(t, id)
	second := pidwrap.Stranger(t, id, "sleep", "1000")
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if st := p.await("file", ended); st.Failure == "" {
		t.Errorf("%+v", st)
	}
	for _, id := range []procid.Identity{first, second} {
		if !id.Alive() {
			t.Errorf("the stranger %v was killed", id)
		}
	}
}
