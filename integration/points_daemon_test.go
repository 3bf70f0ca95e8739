package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/integration/leftover"
	"tandem/internal/failpoint"
)

// revived is a process daemon that is started again, without failpoints, whenever it dies.
type revived struct {
	binary []string
	log    lockedBuffer
	points string
	// armAt is how often it must have died for points to be armed, 0 or 1.
	armAt int

	mu      sync.Mutex
	cmd     *exec.Cmd
	deaths  int
	ending  bool
	stopped chan struct{}
}

func revive(c *cluster, points string, armAt int) (*revived, error) {
	expectGroups(c.dataDir())
	r := &revived{points: points, armAt: armAt, stopped: make(chan struct{}), binary: []string{
		filepath.Join(harness.bin, "tandem-processd"), "--default-user", "root", "--data-dir", c.dataDir(), "--socket", filepath.Join(c.dir, "p.sock"), "--workspace", filepath.Join(c.dir, "workspace"),
	}}
	if err := r.start(); err != nil {
		return nil, err
	}
	go r.watch()
	return r, nil
}

func (r *revived) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cmd := exec.Command(r.binary[0], r.binary[1:]...)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if r.deaths == r.armAt {
		cmd.Env = append(os.Environ(), failpoint.EnvVar+"="+r.points)
	}
	r.cmd = cmd
	return cmd.Start()
}

// watch starts the daemon again until it is told to end, or dies again and again.
func (r *revived) watch() {
	defer close(r.stopped)
	for {
		_ = r.cmd.Wait() // that it died is all there is to know
		r.mu.Lock()
		r.deaths++
		over := r.ending || r.deaths > 3
		r.mu.Unlock()
		if over || r.start() != nil {
			return
		}
	}
}

// kill ends the daemon once, and waits until the next one has been started.
func (r *revived) kill() error {
	r.mu.Lock()
	deaths := r.deaths
	_ = r.cmd.Process.Kill() // it may just have died
	r.mu.Unlock()
	return await(10*time.Second, "the next daemon", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.deaths > deaths
	})
}

// end stops the daemon for good, and says how often it had died before.
func (r *revived) end() (deaths int, err error) {
	r.mu.Lock()
	deaths, r.ending = r.deaths, true
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may just have died
	r.mu.Unlock()
	select {
	case <-r.stopped:
	case <-time.After(20 * time.Second * patience):
		_ = r.cmd.Process.Kill() // the wait below tells
		<-r.stopped
		err = errors.New("the daemon did not end after SIGTERM")
	}
	return deaths, err
}

// A daemonPath is a path with what happens once all of it runs.
type daemonPath struct {
	faultPath
	// orphaned: the executor is killed, so that the daemon cleans up; the points are those from there on.
	orphaned bool
	// neverMade: the executor dies when it has recorded a container and asks the engine for it; the points are those from there on.
	neverMade bool
	// restarted: the daemon is killed, and the points are those of the next one.
	restarted bool
}

func (path *daemonPath) what() string {
	switch {
	case path.orphaned:
		return path.name + " of a dead executor"
	case path.neverMade:
		return path.name + " that a dead executor never made"
	case path.restarted:
		return path.name + ", adopted"
	}
	return path.name
}

// TestFaultPointsOfDaemon counts the points of the process daemon and of its
// keeper, and kills each there, once, while an executor uses it. What runs is not
// touched by the death of the daemon, starts once, is stopped when asked, and
// nothing is left.
func TestFaultPointsOfDaemon(t *testing.T) { //nolint:tparallel // tryEach runs its subtests side by side, in a number of its own
	t.Parallel()
	paths := []daemonPath{{faultPath: pathForeground}, {faultPath: pathPidFile}, {faultPath: pathPidFile, restarted: true}}
	if harness.noEngine == "" {
		paths = append(paths, daemonPath{faultPath: pathMixed, orphaned: true}, daemonPath{faultPath: pathContainer("NONE"), neverMade: true})
	}
	for _, path := range paths {
		what := path.what()
		first, err := path.once(t, "recording", nil)
		if err != nil {
			t.Errorf("%s without faults: %v", what, err)
			continue
		}
		var own, keepers []failpoint.Pass
		for _, p := range first.points {
			if strings.HasPrefix(p.Name, "keeper/") {
				keepers = append(keepers, p)
			} else {
				own = append(own, p)
			}
		}
		for _, who := range []string{"daemon", "keeper"} {
			points := own
			if who == "keeper" {
				points = keepers
			}
			if who == "keeper" && (path.restarted || path.neverMade) {
				continue // it is that of the first daemon, or has nothing to do
			}
			tryEach(t, who+", "+what, points, 4, func(p failpoint.Pass) (time.Duration, error) {
				r, err := path.once(t, who+" "+what+" "+p.String(), &p)
				if err == nil && !r.reached {
					err = errUnreached
				}
				return r.took, err
			})
		}
	}
}

// lifeOf is what one life gave.
type lifeOf struct {
	points  []failpoint.Pass
	reached bool
	took    time.Duration
}

// once lives a life in a cluster of its own, with the end of the daemon, or of the keeper, at a pass.
func (path daemonPath) once(t *testing.T, name string, pass *failpoint.Pass) (out lifeOf, err error) {
	t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
		c := startCluster(t, clusterOptions{noDaemon: true})
		out, err = path.live(c, pass)
		if err != nil {
			t.Fail() // so that the logs are shown
		}
	})
	return out, err
}

func (path daemonPath) live(c *cluster, pass *failpoint.Pass) (out lifeOf, err error) {
	trail := filepath.Join(c.dir, "trail")
	armAt := 0
	if path.restarted {
		armAt = 1
	}
	d, err := revive(c, armed(trail, pass), armAt)
	if err != nil {
		return out, err
	}
	defer func() {
		_, endErr := d.end()
		err = errors.Join(err, endErr, c.noTrace())
		if err != nil {
			c.t.Log("process daemon:\n" + d.log.String())
		}
	}()
	spared := func() error { return nil }
	if path.orphaned || path.neverMade {
		spared = c.bystander()
	}
	var before []failpoint.Pass
	executorTrail, unmade := filepath.Join(c.dir, "executor-trail"), failpoint.Pass{Name: "engine/POST containers/create", N: 1}
	if path.neverMade {
		before, _ = failpoint.Trail(trail)
		c.executorEnv = failpoint.EnvVar + "='" + armed(executorTrail, &unmade) + "'"
	}
	specs := path.tasks(c)
	g := c.launch(specs...)
	var runs func() bool
	var killErr error
	w := c.watchFor(g, specs, func() time.Time {
		if path.neverMade && passed(executorTrail, unmade) {
			return lastPass(executorTrail)
		}
		return time.Time{}
	})
	defer w.end()
	// A process that is killed as soon as it runs may not have come to its first line.
	ran := func() error {
		return await(10*time.Second, "the first line of "+specs[0].Name, func() bool {
			n, err := c.runsOf()
			// One that is held when its keeper dies never comes to it.
			return n > 0 || err != nil || c.over(g, specs[0].Name)
		})
	}
	switch {
	default:
		runs = func() bool { killErr = ran(); return true }
	case path.restarted:
		runs = func() bool { killErr = errors.Join(ran(), d.kill()); return true }
	case path.orphaned:
		runs = func() bool {
			before, _ = failpoint.Trail(trail)
			if pid := c.executorPid(g); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
			}
			w.died(time.Now())
			return false
		}
	}
	if err := errors.Join(c.live(g, specs, runs), killErr); err != nil {
		return out, err
	}
	if out.took, err = w.end(); err != nil {
		return out, err
	}
	if pass != nil {
		out.reached = passed(trail, *pass)
	}
	all, err := failpoint.Trail(trail)
	if err != nil {
		return out, err
	}
	if err := errors.Join(spared(), c.noRecordLeft()); err != nil {
		return out, err
	}
	keeperDied := pass != nil && strings.HasPrefix(pass.Name, "keeper/")
	if !path.orphaned && !path.neverMade && !keeperDied {
		if err := c.ranOnce(g, specs[0]); err != nil {
			return out, err
		}
	}
	seen := map[failpoint.Pass]bool{}
	for _, p := range before {
		seen[p] = true
	}
	for _, p := range all {
		if !seen[p] {
			out.points = append(out.points, p)
		}
	}
	return out, nil
}

// bystander starts the taskgroup of an executor that lives on. What it returns
// checks that nobody has touched it, and ends it.
func (c *cluster) bystander() (spared func() error) {
	specs := pathForeground.tasks(c)
	g := c.launch(specs...)
	name := specs[0].Name
	c.waitState(g, name, mesos.TASK_RUNNING)
	pid := c.report(g, name).Pid
	return func() error {
		if s := c.last(g, name); s.GetState() != mesos.TASK_RUNNING || !alive(pid) {
			return fmt.Errorf("the bystander was touched: %s", c.states(g, name))
		}
		c.kill(g, name)
		return await(20*time.Second, "the bystander's end", func() bool { return c.over(g, name) && c.failure(g) != nil })
	}
}

// ranOnce checks that a process was started once and ended by a kill, and by nothing else.
func (c *cluster) ranOnce(g string, s *api.TaskSpec) error {
	if last := c.last(g, s.Name); last.GetState() != mesos.TASK_KILLED {
		return fmt.Errorf("%s was %s: %s", s.Name, c.states(g, s.Name), last.GetMessage())
	}
	if n, err := c.runsOf(); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%s ran %d times", s.Name, n))
	}
	return nil
}

// runsOf counts how often processes of a cluster were started.
func (c *cluster) runsOf() (n int, err error) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "workspace/work_dir/*/ran"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return 0, err
		}
		n += strings.Count(string(b), "ran\n")
	}
	return n, nil
}

// noTrace checks that no process, container, mount or control group of a cluster is left, its agent's aside.
func (c *cluster) noTrace() error {
	o := leftover.Options{Marks: []string{c.dir}, MarkedOnly: true}
	if left := leftover.Wait(c.t.Context(), leftover.Snapshot{}, o, 5*time.Second*patience); len(left) > 0 {
		return fmt.Errorf("left when the daemon had ended: %s", strings.Join(left, "; "))
	}
	return nil
}
