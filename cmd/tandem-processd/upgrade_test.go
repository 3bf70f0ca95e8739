package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/processdaemon/client"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
)

// release is the program as another release of it would be.
type release struct {
	version, path string
	protocol      int
}

// releases are one that speaks the first protocol of the keeper, and one that speaks the
// next. They are built once.
var releases = sync.OnceValues(func() ([2]release, error) {
	out := [2]release{{version: "1.0.0", protocol: 1}, {version: "2.0.0", protocol: keeper.Protocol + 1}}
	dir := filepath.Dir(binary)
	source, err := filepath.Abs("../../processdaemon/keeper/message.go")
	if err != nil {
		return out, err
	}
	text, err := os.ReadFile(source)
	if err != nil {
		return out, err
	}
	constant := regexp.MustCompile(`(?m)^const Protocol = \d+$`)
	if len(constant.FindAll(text, -1)) != 1 {
		return out, fmt.Errorf("%s does not say the version of the protocol once", source)
	}
	for i := range out {
		r := &out[i]
		other, overlay := filepath.Join(dir, r.version+".go"), filepath.Join(dir, r.version+".json")
		r.path = filepath.Join(dir, "tandem-processd-"+r.version)
		replaced, err := json.Marshal(map[string]map[string]string{"Replace": {source: other}})
		if err == nil {
			err = os.WriteFile(overlay, replaced, 0o600)
		}
		if err == nil {
			err = os.WriteFile(other, constant.ReplaceAll(text, fmt.Appendf(nil, "const Protocol = %d", r.protocol)), 0o600)
		}
		if err != nil {
			return out, err
		}
		build := exec.Command("go", "build", "-overlay", overlay, "-ldflags", "-X tandem/internal/version.Version="+r.version, "-o", r.path, ".")
		if text, err := build.CombinedOutput(); err != nil {
			return out, fmt.Errorf("build release %s: %w\n%s", r.version, err, text)
		}
	}
	return out, nil
})

// site is a data directory on which one release follows another.
type site struct {
	t   *testing.T
	dir string
	c   *client.Client
	cmd *exec.Cmd
	log bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := testkit.ShortDir(t)
	s := &site{t: t, dir: dir, c: client.New(filepath.Join(dir, "s"))}
	t.Cleanup(func() {
		s.c.Close()
		if s.cmd != nil {
			s.stop(syscall.SIGTERM)
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

func (s *site) start(r release) protocol.Info {
	s.t.Helper()
	s.cmd = exec.Command(r.path, "--default-user", "root", "--data-dir", filepath.Join(s.dir, "data"), "--socket", filepath.Join(s.dir, "s"), "--kill-on-exit", "--kill-grace", "1ms")
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		info, err := s.c.Info(context.Background())
		if err == nil {
			if !strings.HasPrefix(info.Version, r.version) {
				s.t.Fatalf("release %s says %s", r.version, info.Version)
			}
			return info
		}
		if time.Now().After(end) {
			s.t.Fatal(err)
		}
	}
}

// stop ends the daemon; what runs stays when it is killed.
func (s *site) stop(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig) // it may have ended
	_ = s.cmd.Wait()              // killed, so it fails
	s.cmd = nil
}

func (s *site) run(id, cmd string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	st, err := s.c.Create(ctx, &protocol.Spec{ID: id, Owner: "o", StartCmd: cmd, Sandbox: filepath.Join(s.dir, "sandbox", id)})
	for err == nil && st.State == protocol.StatePreparing {
		st, err = s.c.Poll(ctx, id, st.Version, time.Second)
	}
	if err == nil {
		st, err = s.c.Start(ctx, id, 5*time.Second)
	}
	if err != nil || st.Pid == 0 {
		s.t.Fatalf("%s: %+v %v", id, st, err)
	}
	return st.Pid
}

func (s *site) await(id string, ok func(protocol.Status) bool) protocol.Status {
	s.t.Helper()
	var st protocol.Status
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		var err error
		if st, err = s.c.Poll(s.t.Context(), id, st.Version, 200*time.Millisecond); err != nil {
			s.t.Fatal(err)
		}
		if ok(st) {
			return st
		}
	}
	s.t.Fatalf("%s: not in time: %+v", id, st)
	return st
}

func (s *site) ended(id string, code int) {
	s.t.Helper()
	st := s.await(id, func(st protocol.Status) bool { return st.State == protocol.StateEnded })
	if st.Exit == nil || *st.Exit != (protocol.Exit{Known: true, Code: code}) {
		s.t.Errorf("%s: %+v, want code %d", id, st.Exit, code)
	}
}

// onUSR1 ends with a code of its own when it is told to; "up" appears in its sandbox once it listens.
func onUSR1(code int) string {
	return fmt.Sprintf(`trap "exit %d" USR1; : > up; while :; do sleep 0.02; done`, code)
}

func (s *site) tell(id string, pid int) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.dir, "sandbox", id, "up")); err == nil {
			if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
				s.t.Fatal(err)
			}
			return
		}
	}
	s.t.Fatalf("%s is not up", id)
}

// TestFaultReleaseFollowsRelease: a daemon of one release is killed, and one of another, older or
// newer, with another protocol of the keeper, takes over. What runs goes on under the keeper that
// runs, no exit code is lost, and that keeper serves the new daemon. Once it has
// nothing to keep it is replaced by one of the daemon's own release.
func TestFaultReleaseFollowsRelease(t *testing.T) {
	t.Parallel()
	both, err := releases()
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][2]release{both, {both[1], both[0]}} {
		t.Run(order[0].version+"-then-"+order[1].version, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			before := s.start(order[0])
			lives, between := s.run("lives", onUSR1(7)), s.run("between", onUSR1(3))
			s.stop(syscall.SIGKILL)
			s.tell("between", between)
			gone(t, between)

			after := s.start(order[1])
			if after.Keeper == nil || after.Keeper.Pid != before.Keeper.Pid || !strings.HasPrefix(after.Keeper.Version, order[0].version) {
				t.Fatalf("the keeper was %+v and is %+v", before.Keeper, after.Keeper)
			}
			s.ended("between", 3)
			if st := s.await("lives", func(st protocol.Status) bool { return st.State == protocol.StateRunning }); st.Pid != lives {
				t.Errorf("pid %d, was %d", st.Pid, lives)
			}
			// The keeper of the other release starts processes for this one.
			more := s.run("more", onUSR1(5))
			s.tell("more", more)
			s.ended("more", 5)
			// The daemon is killed once more, and this time its own release follows.
			s.stop(syscall.SIGKILL)
			s.start(order[1])
			s.tell("lives", lives)
			s.ended("lives", 7)
			// Nothing runs, so the next start finds a keeper of this release.
			next := s.run("next", onUSR1(6))
			info, err := s.c.Info(t.Context())
			if err != nil || info.Keeper == nil || !strings.HasPrefix(info.Keeper.Version, order[1].version) {
				t.Errorf("the keeper is %+v %v, want release %s", info.Keeper, err, order[1].version)
			}
			gone(t, before.Keeper.Pid)
			s.tell("next", next)
			s.ended("next", 6)
		})
	}
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if id, err := procid.Of(pid); err != nil || !id.Alive() {
			return
		}
	}
	t.Fatalf("process %d is still there", pid)
}
