package processdaemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/internal/cgroup/cgrouptest"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
	"tandem/internal/testkit"
	"tandem/internal/unixhttp"
	"tandem/processdaemon/client"
	"tandem/processdaemon/keeper"
	"tandem/processdaemon/protocol"
	"tandem/processdaemon/unpack"
)

const (
	childEnv   = "PROCESSD_TEST_DIR"
	exposerEnv = "PROCESSD_TEST_OWNER"
	// startTimeoutEnv bounds start commands in the daemon, as a duration.
	startTimeoutEnv = "PROCESSD_TEST_START_TIMEOUT"
	// reapEnv is the daemon's Options.ReapInterval, as a duration.
	reapEnv = "PROCESSD_TEST_REAP_INTERVAL"
	// filesEnv is how many files the daemon may have open.
	filesEnv = "PROCESSD_TEST_FILES"
	// logSizeEnv is the size in bytes at which the daemon rotates output; two pieces are kept.
	logSizeEnv = "PROCESSD_TEST_LOG_SIZE"
)

// TestMain doubles as the daemon in a process of its own, which the tests kill
// and start again, and as an owner that can be killed.
func TestMain(m *testing.M) {
	if keeper.Asked() {
		os.Exit(keeper.Main())
	}
	if unpack.Asked() {
		os.Exit(unpack.Main())
	}
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(childDaemon(dir))
	}
	if dir := os.Getenv(exposerEnv); dir != "" {
		os.Exit(childOwner(dir))
	}
	testkit.SideBySide(8)
	os.Exit(cgrouptest.Run(m.Run))
}

func childDaemon(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := func() error {
		startTimeout, _ := time.ParseDuration(os.Getenv(startTimeoutEnv)) // most have none
		reap, err := time.ParseDuration(os.Getenv(reapEnv))
		if err != nil {
			reap = 20 * time.Millisecond
		}
		logSize, _ := strconv.ParseInt(os.Getenv(logSizeEnv), 10, 64) // most have none
		if files, err := strconv.ParseUint(os.Getenv(filesEnv), 10, 64); err == nil {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: 4096}); err != nil {
				return err
			}
		}
		// Before the daemon, which may leave no file descriptor for it.
		l, err := unixhttp.Listen(ctx, filepath.Join(dir, "sock"), "")
		if err != nil {
			return err
		}
		defer l.Close()
		d, err := New(Options{DataDir: filepath.Join(dir, "data"), OwnProgram: true, ReapInterval: reap, StartTimeout: startTimeout, LogSize: logSize, LogFiles: 2})
		if err != nil {
			return err
		}
		defer d.Close()
		return d.Serve(ctx, l)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// proc is a daemon in a process of its own.
type proc struct {
	t   testing.TB
	dir string
	env []string // more for the daemon
	c   *client.Client
	cmd *exec.Cmd
}

func newProc(t testing.TB) *proc {
	t.Helper()
	return newProcIn(t, testkit.PublicDir(t))
}

// newProcIn is newProc in a directory that the test has prepared.
func newProcIn(t testing.TB, dir string) *proc {
	t.Helper()
	p := &proc{t: t, dir: dir}
	cgrouptest.Expect(Trees(filepath.Join(p.dir, "data")))
	p.c = client.New(filepath.Join(p.dir, "sock"))
	t.Cleanup(func() {
		defer p.c.Close()
		if p.cmd == nil {
			p.start("")
		}
		p.clear()
		p.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Log(read(t, filepath.Join(p.dir, "log")))
		}
	})
	return p
}

// start starts the daemon and waits until it answers, or has died at a failpoint.
func (p *proc) start(points string) {
	p.t.Helper()
	p.launch(points)
	eventually(p.t, "the daemon answers", func() bool {
		_, err := p.c.Info(context.Background())
		return err == nil || p.died()
	})
}

// launch starts the daemon and waits for nothing.
func (p *proc) launch(points string) {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(append(os.Environ(), p.env...), childEnv+"="+p.dir, failpoint.EnvVar+"="+points)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// died tells whether the daemon has ended by itself.
func (p *proc) died() bool {
	id, err := procid.Of(p.cmd.Process.Pid)
	return err != nil || !id.Alive()
}

func (p *proc) stop(sig syscall.Signal) {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Wait()
	p.cmd = nil
}

// clear stops and deletes all tasks.
func (p *proc) clear() {
	all, err := p.c.List(context.Background(), "")
	if err != nil {
		p.t.Error(err)
	}
	for _, s := range all {
		if _, err := p.c.Stop(context.Background(), s.ID, 0); err != nil {
			p.t.Error(err)
		}
		p.await(s.ID, ended)
		if err := p.c.Delete(context.Background(), s.ID); err != nil {
			p.t.Error(err)
		}
	}
}

// try calls until the daemon answers, starting it again when a failpoint has killed it.
func (p *proc) try(what string, call func(ctx context.Context) error) error {
	p.t.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		last = call(ctx)
		cancel()
		if last == nil || !errors.Is(last, client.ErrUnavailable) {
			return last
		}
		if p.died() {
			p.stop(syscall.SIGKILL)
			p.start("")
		}
	}
	p.t.Fatalf("%s: %v", what, last)
	return nil
}

func (p *proc) must(what string, call func(ctx context.Context) error) {
	p.t.Helper()
	if err := p.try(what, call); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

func (p *proc) await(id string, want protocol.State) protocol.Status {
	p.t.Helper()
	var st protocol.Status
	for end := time.Now().Add(patience); time.Now().Before(end); {
		p.must("status", func(ctx context.Context) (err error) {
			st, err = p.c.Poll(ctx, id, st.Version, 200*time.Millisecond)
			return err
		})
		if st.State == want {
			return st
		}
		if st.State == ended {
			break
		}
	}
	p.t.Fatalf("task %s: want %s: %+v %+v", id, want, st, st.Exit)
	return st
}

func (p *proc) spec(id, cmd string) *protocol.Spec {
	return &protocol.Spec{
		ID: id, Owner: "o", Name: "n", StartCmd: cmd,
		WorkPath: filepath.Join(p.dir, "data/workspace/work_dir", id), Sandbox: filepath.Join(p.dir, "sandbox", id),
	}
}

func (p *proc) createAndStart(s *protocol.Spec) {
	p.t.Helper()
	p.must("create", func(ctx context.Context) error { _, err := p.c.Create(ctx, s); return err })
	p.await(s.ID, ready)
	p.must("start", func(ctx context.Context) error { _, err := p.c.Start(ctx, s.ID, 0); return err })
}

// TestFaultKilledDaemonAdopts: kill -9 of the daemon, and a new one, do not
// touch what runs; whatever ends, before, between or after, its exit code is known.
func TestFaultKilledDaemonAdopts(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	const onUSR1 = `trap "exit 7" USR1; : > trapped; while :; do sleep 0.02; done`
	pids := map[string]int{}
	for id, cmd := range map[string]string{"lives": onUSR1, "ends": onUSR1, "is-killed": "sleep 60"} {
		p.createAndStart(p.spec(id, cmd))
		pids[id] = p.await(id, running).Pid
	}
	for _, id := range []string{"lives", "ends"} {
		eventually(t, "its trap", func() bool { return exists(filepath.Join(p.dir, "data/workspace/work_dir", id, "trapped")) })
	}
	signal := func(id string, sig syscall.Signal) {
		if err := syscall.Kill(pids[id], sig); err != nil {
			t.Fatal(err)
		}
	}
	p.stop(syscall.SIGKILL)
	signal("ends", syscall.SIGUSR1)
	signal("is-killed", syscall.SIGKILL)
	for _, id := range []string{"ends", "is-killed"} {
		eventually(t, "it is gone", func() bool { now, err := procid.Of(pids[id]); return err != nil || !now.Alive() })
	}
	p.start("")
	if st := p.await("lives", running); st.Pid != pids["lives"] {
		t.Errorf("pid %d, was %d", st.Pid, pids["lives"])
	}
	signal("lives", syscall.SIGUSR1)
	for id, want := range map[string]protocol.Exit{
		"lives": {Known: true, Code: 7}, "ends": {Known: true, Code: 7}, "is-killed": {Known: true, Signal: 9},
	} {
		if st := p.await(id, ended); st.Exit == nil || *st.Exit != want {
			t.Errorf("%s: %+v", id, st.Exit)
		}
	}
}

// TestFaultSubreaperKnowsExitCode: the exit code of a process that put itself
// into the background is known, because the daemon is its parent by then.
func TestFaultSubreaperKnowsExitCode(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	s := p.spec("a", "./start.sh")
	s.PidFile = "app.pid"
	write(t, filepath.Join(s.WorkPath, "start.sh"), fmt.Sprintf(daemonScript, `trap "exit 9" USR1; : > trapped; while :; do sleep 0.02; done`), 0o755)
	p.createAndStart(s)
	p.await("a", running)
	eventually(t, "its trap", func() bool { return exists(filepath.Join(s.WorkPath, "trapped")) })
	p.must("signal", func(ctx context.Context) error { return p.c.Signal(ctx, "a", syscall.SIGUSR1) })
	if st := p.await("a", ended); st.Exit == nil || !st.Exit.Known || st.Exit.Code != 9 {
		t.Errorf("%+v", st.Exit)
	}
	// Other orphans leave no zombies either. The keeper is a child, too, of the thread that started it.
	eventually(t, "no zombies", func() bool {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
		return err == nil && len(lists) > 0 && !slices.ContainsFunc(lists, func(list string) bool {
			b, _ := os.ReadFile(list) // of a thread that has ended meanwhile
			return slices.ContainsFunc(strings.Fields(string(b)), func(pid string) bool {
				st, _ := os.ReadFile("/proc/" + pid + "/stat")
				return strings.Contains(string(st), ") Z ")
			})
		})
	})
}

// TestFaultEveryPoint kills the daemon at each point that it passes, once, in
// the whole life of a task. The points are counted in a life without faults. Whatever
// the point: the start command has run exactly once, the task is stopped, and nothing is left.
func TestFaultEveryPoint(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"foreground", "pidfile"} {
		trail := filepath.Join(t.TempDir(), "trail")
		t.Run(kind+"/recording", func(t *testing.T) { faultAt(t, kind, "*=record("+trail+")") })
		points, err := failpoint.Trail(trail)
		if err != nil {
			t.Fatal(err)
		}
		if len(points) < 20 {
			t.Errorf("only %d points were counted: %v", len(points), points)
		}
		for _, point := range points {
			// What the keeper does when it is killed is told in its own folder.
			if strings.HasPrefix(point.Name, "keeper/") {
				continue
			}
			t.Run(kind+"/"+point.String(), func(t *testing.T) {
				t.Parallel()
				faultAt(t, kind, point.Kill())
			})
		}
	}
}

func faultAt(t *testing.T, kind, points string) {
	p := newProc(t)
	archive := filepath.Join(p.dir, "app.tar.gz")
	worker := `echo ran >> ran; trap "" TERM; while :; do sleep 0.05; done`
	var s *protocol.Spec
	files := map[string]string{}
	if kind == "foreground" {
		s = p.spec("a", "./start.sh")
		files["start.sh"] = "#!/bin/sh\n" + worker + "\n"
	} else {
		s = p.spec("a", "./start.sh --any arg")
		s.PidFile, s.StopCmd = "app.pid", "kill -USR1 $(cat app.pid)"
		files["start.sh"] = fmt.Sprintf(daemonScript, strings.ReplaceAll(worker, `trap "" TERM`, `trap "sleep 0.05; exit 0" USR1; sleep 60 & :`))
	}
	makeTarGz(t, archive, files)
	s.URIs = []protocol.URI{{Value: archive, OutputDir: s.WorkPath}}
	if kind == "pidfile" {
		server := httptest.NewServer(http.FileServer(http.Dir(p.dir)))
		defer server.Close()
		s.URIs[0].Value = server.URL + "/app.tar.gz"
	}
	p.start(points)
	p.createAndStart(s)
	p.await("a", running)
	ran := func() int {
		b, _ := os.ReadFile(filepath.Join(s.WorkPath, "ran"))
		return strings.Count(string(b), "ran\n")
	}
	eventually(t, "it runs", func() bool { return ran() > 0 })
	p.must("stop", func(ctx context.Context) error { _, err := p.c.Stop(ctx, "a", 200*time.Millisecond); return err })
	if st := p.await("a", ended); st.Exit == nil || !st.Exit.Known {
		t.Errorf("its exit code is unknown: %+v", st)
	}
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	p.must("delete", func(ctx context.Context) error { return p.c.Delete(ctx, "a") })
	eventually(t, "the record is gone", func() bool {
		e, _ := os.ReadDir(filepath.Join(p.dir, "data/processd/tasks"))
		return len(e) == 0
	})
	if pids := processesIn(s.WorkPath); len(pids) > 0 {
		t.Errorf("processes left: %v", pids)
	}
	if e, _ := os.ReadDir(filepath.Dir(s.WorkPath)); len(e) != 1 {
		t.Errorf("beside the work path: %v", e)
	}
	if left := leftOfFetch(t, filepath.Join(p.dir, "data")); len(left) > 0 {
		t.Errorf("left of fetching: %v", left)
	}
}

// processesIn finds living processes by their working directory, as an
// observer that knows nothing of the daemon would.
func processesIn(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var out []string
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == dir {
			out = append(out, l)
		}
	}
	return out
}

func TestFaultRebootSignalsNobody(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	run(t, d, spec(d, "a", "sleep 60"))
	st := awaitState(t, d, "a", running)
	d.mu.Lock()
	r := *d.tasks["a"].rec
	d.mu.Unlock()
	afterReboot(&r, "next boot")
	if r.State != ended || r.Exit == nil || r.Exit.Known {
		t.Errorf("%+v", r)
	}
	id := r.Main
	id.BootID = "previous boot"
	if _, err := procid.Open(id); !errors.Is(err, procid.ErrGone) {
		t.Errorf("opened a process of another boot: %v", err)
	}
	if unix.Kill(st.Pid, 0) != nil {
		t.Error("the process was touched")
	}
}

// TestFaultReusedPid: a record whose pid belongs to another process by now.
func TestFaultReusedPid(t *testing.T) {
	t.Parallel()
	p := newProc(t)
	p.start("")
	p.createAndStart(p.spec("a", "sleep 60"))
	st := p.await("a", running)
	p.stop(syscall.SIGKILL)
	// Start times have ticks of 10 ms; a real pid takes longer to come around.
	ours, err := procid.Of(st.Pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next tick", func() bool {
		probe := exec.Command("sleep", "60")
		if err := probe.Start(); err != nil {
			t.Fatal(err)
		}
		id, err := procid.Of(probe.Process.Pid)
		_ = probe.Process.Kill()
		_ = probe.Wait()
		return err == nil && id.StartTime != ours.StartTime
	})
	victim := exec.Command("sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	// The record now names the victim's pid with the start time of ours.
	file := filepath.Join(p.dir, "data/processd/tasks", shortHash("a")+".json")
	text := read(t, file)
	write(t, file, strings.ReplaceAll(text, fmt.Sprintf(`"pid":%d,`, st.Pid), fmt.Sprintf(`"pid":%d,`, victim.Process.Pid)), 0o600)
	p.start("")
	if got := p.await("a", ended); got.Exit == nil || got.Exit.Known {
		t.Errorf("%+v", got.Exit)
	}
	if id, err := procid.Of(victim.Process.Pid); err != nil || !id.Alive() {
		t.Error("the victim was killed")
	}
	if id, err := procid.Of(st.Pid); err == nil && id.Alive() {
		t.Error("what the record meant lives, in the task's control group")
	}
}
