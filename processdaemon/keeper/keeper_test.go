package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup"
	"tandem/internal/procid"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	for _, c := range []struct {
		key, script  string
		code, signal int
	}{{"ok", "exit 0", 0, 0}, {"code", "exit 7", 7, 0}, {"signal", "kill -9 $$", 0, 9}} {
		got := r.ended(r.spawn(c.key, c.script))
		if !got.Ended || !got.Known || got.Code != c.code || got.Signal != c.signal || got.At.IsZero() {
			t.Errorf("%s: %+v", c.key, got)
		}
	}
	if _, err := r.c.Look(t.Context(), "never"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that was never used: %v", err)
	}
}

// TestWhatAProcessGets: its own session, three files, the environment and nothing of the keeper's.
func TestWhatAProcessGets(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	e := r.spawn("a", `echo "$A $(umask) $(ulimit -c)" "$(cat /proc/self/oom_score_adj)"; exec sleep 60`)
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	want := "b 0022 0 " + string(own)
	eventually(t, "its words", func() bool { return r.out("a") == want })
	eventually(t, "no file is inherited", func() bool { return openFDs(e.ID.Pid) == "0 1 2 " })
	if sid, err := unix.Getsid(e.ID.Pid); err != nil || sid != e.ID.Pid {
		t.Errorf("session %d of process %d: %v", sid, e.ID.Pid, err)
	}
	keeperGroup, err1 := os.ReadFile(procFile(r.c.Peer().Pid, "cgroup"))
	if err1 != nil || r.tree.Mode() != "session" && !strings.Contains(string(keeperGroup), "/keeper") {
		t.Errorf("the keeper has no control group of its own: %s %v", keeperGroup, err1)
	}
	if sid, err := unix.Getsid(r.c.Peer().Pid); err != nil || sid != r.c.Peer().Pid {
		t.Errorf("the keeper has no session of its own: %d %v", sid, err)
	}
}

func procFile(pid int, name string) string { return filepath.Join("/proc", itoa(pid), name) }

// TestSameKeyTwice: however often and however concurrently a start is asked for,
// the process exists once.
func TestSameKeyTwice(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	const n = 100
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[procid.Identity]int{}
	specs := make([]*Spec, n)
	for i := range specs {
		specs[i] = r.spec("a", "echo ran; exec sleep 60")
	}
	for _, s := range specs {
		wg.Go(func() {
			e, _, err := r.c.Spawn(t.Context(), s)
			mu.Lock()
			defer mu.Unlock()
			if ids[e.ID]++; err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for id := range ids {
		t.Cleanup(func() { endProcess(id) })
	}
	if len(ids) != 1 {
		t.Fatalf("%d processes: %v", len(ids), ids)
	}
	eventually(t, "it ran once", func() bool { return r.out("a") == "ran\n" })
	// Another connection, as after a lost answer, and after the end.
	r.c.Close()
	r.dial()
	for _, end := range []bool{false, true} {
		e, existing, err := r.c.Spawn(t.Context(), r.spec("a", "echo ran; exec sleep 60"))
		if err != nil || !existing || ids[e.ID] != n || e.Ended != end {
			t.Errorf("%+v %v %v", e, existing, err)
		}
		endProcess(e.ID)
		r.ended(e)
	}
	if got := r.out("a"); got != "ran\n" {
		t.Errorf("it ran again: %q", got)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	script := filepath.Join(r.dir, "no-interpreter-line")
	// A child that another test forks meanwhile would have it open for writing until its exec (execve(2), ETXTBSY).
	syscall.ForkLock.RLock()
	err := os.WriteFile(script, []byte("echo hello\n"), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want error
	}{{"/no/such/program", os.ErrNotExist}, {script, syscall.ENOEXEC}, {"/etc/passwd", os.ErrPermission}} {
		s := r.spec("a", "")
		s.Path = c.path
		if _, _, err := r.c.Spawn(t.Context(), s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	// A start that failed leaves its key free.
	if got := r.ended(r.spawn("a", "exit 3")); got.Code != 3 {
		t.Errorf("%+v", got)
	}
	for _, key := range []string{"", "../x", ".x", "a/b", "a b", strings.Repeat("x", maxKey+1)} {
		if _, err := r.c.Claim(t.Context(), key, procid.Identity{Pid: 1}); err == nil {
			t.Errorf("key %q was taken", key)
		}
		s := r.spec("b", "exit 0")
		s.Key = key
		if _, _, err := r.c.Spawn(t.Context(), s); err == nil {
			t.Errorf("key %q was taken", key)
		}
	}
}

// TestBackground: a process that puts itself into the background is the
// keeper's by then; claimed before or after its end, it is told how it ended.
func TestBackground(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	for _, late := range []bool{false, true} {
		key := "early"
		if late {
			key = "late"
		}
		marker := filepath.Join(r.dir, key)
		first := r.spawn(key, `( while ! [ -e `+marker+` ]; do sleep 0.01; done; exit 5 ) & echo $!`)
		if got := r.ended(first); !got.Known || got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		pid := atoi(t, strings.TrimSpace(r.out(key)))
		id, err := procid.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		p, err := procid.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		claim := func() Entry {
			e, err := r.c.Claim(t.Context(), key+".m", id)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		if !late {
			if e := claim(); e.Ended {
				t.Errorf("%+v", e)
			}
		}
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if late {
			eventually(t, "it is collected", func() bool { return !procExists(pid) })
			if e, err := r.c.Stray(t.Context(), pid, first.ID.StartTime); err != nil || e.Code != 5 || !e.Known {
				t.Errorf("%+v %v", e, err)
			}
			if _, err := r.c.Stray(t.Context(), pid, id.StartTime+1); !errors.Is(err, ErrUnknown) {
				t.Errorf("an older one with this pid: %v", err)
			}
			claim()
		}
		if got, err := r.c.Look(t.Context(), key+".m"); err != nil || !got.Known || got.Code != 5 {
			t.Errorf("late %v: %+v %v", late, got, err)
		}
	}
}

func procExists(pid int) bool {
	_, err := procid.Of(pid)
	return err == nil
}

// TestEndsWithoutADaemon: what ends while nobody is connected is on disk, also
// for the next keeper.
func TestEndsWithoutADaemon(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	marker := filepath.Join(r.dir, "go")
	e := r.spawn("a", "while ! [ -e "+marker+" ]; do sleep 0.01; done; exit 11")
	pid := r.c.Peer().Pid
	r.c.Close()
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is collected", func() bool { return !procExists(e.ID.Pid) })
	// With nothing to keep and nobody to talk to, it goes, with its control group.
	<-r.wait
	if left, err := r.tree.Groups(); err == nil && len(left) > 0 {
		t.Errorf("control groups left: %v", left)
	}
	if alive(pid) {
		t.Error("the keeper lives")
	}
	r.c = nil
	r.start("")
	if len(r.c.Entries) != 1 || r.c.Entries[0].Key != "a" || !r.c.Entries[0].Known || r.c.Entries[0].Code != 11 {
		t.Errorf("%+v", r.c.Entries)
	}
	if err := r.c.Forget(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(r.dir, "processes")); len(left) > 0 {
		t.Errorf("records left: %v", left)
	}
}

func TestRetire(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	e := r.spawn("a", "exec sleep 60")
	if err := r.c.Retire(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("with a process: %v", err)
	}
	if err := r.c.Forget(t.Context(), "a"); !errors.Is(err, ErrBusy) {
		t.Errorf("forget what runs: %v", err)
	}
	// A SIGTERM, to the keeper or to its process group, ends nothing that is needed.
	for _, pid := range []int{r.c.Peer().Pid, -r.c.Peer().Pid} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.c.Look(t.Context(), "a"); err != nil || !alive(e.ID.Pid) {
		t.Errorf("after SIGTERM: %v", err)
	}
	endProcess(e.ID)
	eventually(t, "it retires", func() bool {
		// Lost: a SIGTERM from above came that late.
		err := r.c.Retire(t.Context())
		return err == nil || errors.Is(err, ErrLost)
	})
	<-r.wait
	<-r.c.Done()
	if _, err := Dial(t.Context(), r.dir, time.Second); !errors.Is(err, ErrNone) {
		t.Errorf("dial: %v", err)
	}
	r.c = nil
}

// TestStartWhileItsPredecessorLeavesItsGroup: a keeper that ends listens no more, and removes its
// group a moment later, in which the next one may be starting already.
func TestStartWhileItsPredecessorLeavesItsGroup(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	if r.tree.Mode() == cgroup.ModeSession {
		t.Skip("no control groups here: ", r.tree)
	}
	r.kill()
	for range 3 {
		stop := make(chan struct{})
		var leaving sync.WaitGroup
		leaving.Go(func() {
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				select {
				case <-stop:
					return
				default:
					_ = os.Remove(groupDir(t, r)) // it refuses as soon as the next one is in it
				}
			}
		})
		r.start("")
		close(stop)
		leaving.Wait()
		r.kill()
	}
}

// groupDir is where the keeper's group is, or would be.
func groupDir(t *testing.T, r *room) string {
	t.Helper()
	_, path, found := strings.Cut(r.tree.String(), " at ")
	path, _, ok := strings.Cut(path, ", ")
	if !found || !ok {
		t.Fatal(r.tree)
	}
	return filepath.Join(path, "keeper")
}
