package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/internal/failpoint"
)

// TestFaultPointsOfExecutor counts every recorded step, call and change of state
// of an executor in the life of a taskgroup, and then lives that life once for
// each, with kill -9 of the executor there. The framework hears of the end of all
// tasks, the process daemon removes what is left, and a bystander is not touched.
func TestFaultPointsOfExecutor(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	bystander := c.launch(pathMixed.tasks(c)...)
	pids := map[string]int{}
	for _, name := range []string{"process", "container"} {
		c.waitState(bystander, name, mesos.TASK_RUNNING)
		pids[name] = c.report(bystander, name).Pid
	}
	for _, path := range []faultPath{pathContainer("BRIDGE"), pathContainer("HOST"), pathFiles, pathForeground, pathPidFile, pathMixed, pathNetwork, pathChecked} {
		c.executorAtEveryPoint(path)
	}
	for name, pid := range pids {
		if s := c.last(bystander, name); s.GetState() != mesos.TASK_RUNNING || !alive(pid) {
			t.Errorf("the bystander's %s was touched: %s", name, c.states(bystander, name))
		}
		c.kill(bystander, name)
	}
	c.waitExecutorGone(bystander)
	if err := c.noRecordLeft(); err != nil {
		t.Error(err)
	}
}

func (c *cluster) executorAtEveryPoint(path faultPath) {
	c.t.Helper()
	var launching sync.Mutex
	n := 0
	launch := func(pass *failpoint.Pass) (g, trail string, specs []*api.TaskSpec) {
		launching.Lock()
		defer launching.Unlock()
		n++
		trail = filepath.Join(c.dir, fmt.Sprintf("trail-%s-%d", strings.ReplaceAll(path.name, " ", "-"), n))
		c.executorEnv = failpoint.EnvVar + "='" + armed(trail, pass) + "'"
		defer func() { c.executorEnv = "" }()
		specs = path.tasks(c)
		return c.launch(specs...), trail, specs
	}
	g, trail, specs := launch(nil)
	if err := c.live(g, specs, nil); err != nil {
		c.t.Fatalf("%s without faults: %v", path.name, err)
	}
	points, err := failpoint.Trail(trail)
	if err != nil {
		c.t.Fatal(err)
	}
	tryEach(c.t, "executor, "+path.name, points, 8, func(p failpoint.Pass) (time.Duration, error) {
		g, trail, specs := launch(&p)
		w := c.watchFor(g, specs, func() time.Time {
			if passed(trail, p) {
				return lastPass(trail)
			}
			return time.Time{}
		})
		err := c.live(g, specs, nil)
		took, goneErr := w.end()
		if err := errors.Join(err, goneErr); err != nil {
			return took, err
		}
		died := c.failure(g).Status != 0
		switch reached := passed(trail, p); {
		case !reached && !died:
			return took, errUnreached
		case reached != died:
			return took, fmt.Errorf("reached: %v, died: %v", reached, died)
		}
		return took, nil
	})
}
