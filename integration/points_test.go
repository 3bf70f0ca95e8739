package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/internal/failpoint"
	"tandem/processdaemon"
)

// faultsEvery is the variable that says how many of the points are tried: 1 is all of them, 15 every fifteenth.
const faultsEvery = "TANDEM_FAULTS_EVERY"

// sampled is what `make test` tries; `make faults` tries all.
const sampled = 15

// A faultPath is one way to live, which is gone through once for each point on it.
type faultPath struct {
	name  string
	tasks func(c *cluster) []*api.TaskSpec
}

const (
	// staysLine runs until it is told to end, and then ends at once.
	staysLine = `echo ran >> ran; trap 'exit 0' TERM; while :; do sleep 0.05; done`
	stayBox   = `trap 'exit 0' TERM; while :; do sleep 0.05; done`
	// daemonLine puts what stays into the background and leaves its pid.
	daemonLine = `sh -c "` + staysLine + `" & echo $! > app.pid`
)

// ownProc is a process task in a directory of its own taskgroup.
func ownProc(c *cluster, name, line string) *api.TaskSpec {
	s := proc(c, name, line)
	s.Process.WorkPath = "${work_base_dir}/${namespace}.${instanceid}." + name
	return s
}

func withPidFile(s *api.TaskSpec) *api.TaskSpec {
	s.Process.PidFile, s.Process.StartGracePeriodSeconds, s.Process.StopCmd = "app.pid", 1, "kill $(cat app.pid)"
	return s
}

var (
	pathForeground = faultPath{"process", func(c *cluster) []*api.TaskSpec {
		return []*api.TaskSpec{ownProc(c, "foreground", staysLine)}
	}}
	pathPidFile = faultPath{"process with pid file", func(c *cluster) []*api.TaskSpec {
		return []*api.TaskSpec{withPidFile(ownProc(c, "daemonised", daemonLine))}
	}}
	pathMixed = faultPath{"mixed taskgroup", func(c *cluster) []*api.TaskSpec {
		return []*api.TaskSpec{ownProc(c, "process", staysLine), box("container", "BRIDGE", stayBox)}
	}}
	// pathNetwork has a sandbox, which containers and a process share, and a sidecar.
	pathNetwork = faultPath{"mixed taskgroup in one network", func(c *cluster) []*api.TaskSpec {
		specs := append(pathMixed.tasks(c), box("sidecar", "BRIDGE", stayBox))
		specs[0].Network.Mode, specs[2].Lifecycle = "BRIDGE", api.LifecycleSidecar
		return specs
	}}
)

func pathContainer(mode string) faultPath {
	return faultPath{"container " + mode, func(*cluster) []*api.TaskSpec { return []*api.TaskSpec{box("container", mode, stayBox)} }}
}

// pathFiles has a secret in a file, which is in memory and outside of the container.
var pathFiles = faultPath{"container with a secret", func(*cluster) []*api.TaskSpec {
	s := box("container", "BRIDGE", stayBox)
	s.Files = []api.TaskFile{{Path: "/etc/secret", Content: []byte("xyzzy"), Mode: 0o400, User: "1000", Secret: true}, {Path: "/etc/plain", Content: []byte("x"), Mode: 0o444}}
	return []*api.TaskSpec{s}
}}

// pathChecked is killed once both tasks are healthy, with a command of each check under way or just done.
var pathChecked = faultPath{"mixed taskgroup with checks", func(c *cluster) []*api.TaskSpec {
	specs := pathMixed.tasks(c)
	for _, s := range specs {
		s.HealthChecks = []api.HealthCheck{{Type: "COMMAND", IntervalSeconds: 1, TimeoutSeconds: 5, GracePeriodSeconds: 30, Command: &api.CommandCheck{Value: "sleep 0.1"}}}
	}
	return specs
}}

// armed is the value of failpoint.EnvVar that records a trail and, when pass is not nil, ends the process there.
func armed(trail string, pass *failpoint.Pass) string {
	spec := "*=record(" + trail + ")"
	if pass != nil {
		spec += ";" + pass.Kill()
	}
	return spec
}

// passed tells whether a trail holds a pass.
func passed(trail string, pass failpoint.Pass) bool {
	all, err := failpoint.Trail(trail)
	if err != nil {
		return false
	}
	for _, p := range all {
		if p == pass {
			return true
		}
	}
	return false
}

// errUnreached says that a run ended well without coming to its point: how often
// something is asked, or tried again, differs from run to run.
var errUnreached = errors.New("the point was not reached")

// unreachedTries is how often a point is tried that is not reached.
const unreachedTries = 3

// tally counts what became of the points of a path, and says it in the line of the path.
type tally struct {
	t      *testing.T
	name   string
	points []failpoint.Pass
	every  int
	wg     sync.WaitGroup

	mu                       sync.Mutex
	tried, passed, unreached int
	slowest                  time.Duration
}

// tryEach calls try for the points to be tried, width at a time, and says what
// became of them. What try returns is how long the clean-up took.
func tryEach(t *testing.T, name string, points []failpoint.Pass, width int, try func(failpoint.Pass) (time.Duration, error)) {
	t.Helper()
	every := sampled
	if v := os.Getenv(faultsEvery); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: want a positive number", faultsEvery, v)
		}
		every = n
	}
	if len(points) == 0 {
		t.Errorf("%s: no points were counted", name)
	}
	s := &tally{t: t, name: name, points: points, every: every}
	slots := make(chan struct{}, width)
	for i, p := range points {
		if i%every != min(every, len(points))/2 {
			continue
		}
		slots <- struct{}{}
		s.wg.Go(func() {
			defer func() { <-slots }()
			s.one(p, try)
		})
	}
	s.wg.Wait()
	how := ""
	if every > 1 {
		how = fmt.Sprintf(" (a sample, one in %d: %d tried; make faults tries all)", every, s.tried)
	}
	if s.unreached > 0 {
		how += fmt.Sprintf(", %d of them not reached in %d runs", s.unreached, unreachedTries)
	}
	fmt.Printf("\nnote: %s: %d points, %d passed%s; slowest clean-up %.1f s\n", name, len(points), s.passed, how, s.slowest.Seconds())
}

func (s *tally) one(p failpoint.Pass, try func(failpoint.Pass) (time.Duration, error)) {
	var took time.Duration
	var err error
	for range unreachedTries {
		if took, err = try(p); !errors.Is(err, errUnreached) {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	s.slowest = max(s.slowest, took)
	switch {
	case err == nil:
		s.passed++
	case errors.Is(err, errUnreached):
		// All went well in each run.
		s.unreached++
		s.passed++
		s.t.Logf("%s: %s: %v", s.name, p, err)
	default:
		s.t.Errorf("%s, killed at %s: %v", s.name, p, err)
	}
}

// await polls like eventually, for goroutines that must not end the test.
func await(limit time.Duration, what string, ok func() bool) error {
	limit *= patience
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s", what, limit)
		}
	}
	return nil
}

// live goes through the life of a taskgroup: all run, are killed, and have ended.
// runs, if there is one, is called in between and tells whether they are to be killed.
func (c *cluster) live(g string, specs []*api.TaskSpec, runs func() bool) error {
	killed := false
	err := await(30*time.Second, "the end of all tasks", func() bool {
		running, over := 0, 0
		for _, s := range specs {
			last := c.last(g, s.Name)
			if last.GetState() == mesos.TASK_RUNNING && (len(s.HealthChecks) == 0 || last.GetHealthy()) {
				running++
			}
			if c.over(g, s.Name) {
				over++
			}
		}
		if !killed && running == len(specs) {
			killed = true
			if runs != nil && !runs() {
				return false
			}
			for _, s := range specs {
				c.kill(g, s.Name)
			}
		}
		return over == len(specs)
	})
	if err != nil {
		for _, s := range specs {
			err = fmt.Errorf("%w; %s was %s", err, s.Name, c.states(g, s.Name))
		}
		return err
	}
	return await(20*time.Second, "news of the executor's end", func() bool { return c.failure(g) != nil })
}

// leftOf is what there is of a taskgroup: the records of the journal and of the process
// daemon, control groups and files in memory, and, once none of those is left, containers and
// processes too, which take more to look for.
func (c *cluster) leftOf(g string, specs []*api.TaskSpec) []string {
	patterns := []string{filepath.Join(c.dataDir(), "journal/records", g, "*"), filepath.Join(c.dataDir(), "journal/owners", g+".lock")}
	for _, s := range specs {
		id := s.Name + "." + g
		files, task := shortSum(g+"\x00"+id), shortSum(id)
		patterns = append(patterns, "/*/tandem-files/"+files, "/*/*/tandem-files/"+files, filepath.Join(c.dataDir(), "processd/tasks", task+".json"),
			filepath.Join("/sys/fs/cgroup/tandem", c.tree(), task), filepath.Join("/sys/fs/cgroup/*/tandem", c.tree(), task))
	}
	var left []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	if len(left) == 0 && harness.engine != nil {
		for _, id := range containersOf(c.t, g) {
			left = append(left, "container "+id)
		}
	}
	if len(left) == 0 {
		left = processesOf(g)
	}
	return left
}

// shortSum is how files and control groups of tasks are named.
func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// tree is the name of the control groups of the cluster's process daemon.
func (c *cluster) tree() string {
	tasks, _ := processdaemon.Trees(c.dataDir())
	return filepath.Base(tasks)
}

// lastPass is when a process wrote its last line into a trail, which for one that a
// failpoint killed is the moment of its death.
func lastPass(trail string) time.Time {
	st, err := os.Stat(trail)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// processesOf finds the processes whose environment names a taskgroup, in
// whatever container or control group they are.
func processesOf(g string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var left []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), g) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			left = append(left, fmt.Sprintf("process %s %q", filepath.Base(filepath.Dir(f)), line))
		}
	}
	return left
}

// noRecordLeft waits until neither the journal nor the daemon knows anything, and
// no control group of a task is left.
func (c *cluster) noRecordLeft() error {
	tree := c.tree()
	var left []string
	err := await(reapLimit, "no records and control groups", func() bool {
		left = nil
		for _, pattern := range []string{
			filepath.Join(c.dataDir(), "journal/records/*/*"), filepath.Join(c.dataDir(), "journal/owners/*"), filepath.Join(c.dataDir(), "processd/tasks/*"),
			filepath.Join("/sys/fs/cgroup/tandem", tree, "*/cgroup.procs"), filepath.Join("/sys/fs/cgroup/*/tandem", tree, "*/cgroup.procs"),
		} {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.Join(left, ", "))
	}
	return nil
}
