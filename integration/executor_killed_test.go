package integration

import (
	"slices"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// killPoints are the steps of a taskgroup's life: every state of the executor's
// table, and what is recorded and made in between. The first task to come there
// is the end of the executor, or the second where a task may pass before.
var killPoints = []string{
	"executor/preparing=kill", "executor/preparing=1*off->kill", "executor/prepared=kill", "executor/prepared=1*off->kill",
	"journal/put=kill", "journal/put=1*off->kill", "executor/creating=kill", "executor/creating=1*off->kill",
	"container/recorded=kill", "container/created=kill", "executor/created=kill", "executor/created=1*off->kill",
	"executor/starting=kill", "executor/starting=1*off->kill", "container/started=kill",
	"executor/running=kill", "executor/running=1*off->kill",
	"executor/stopping=kill", "executor/stopping=1*off->kill", "executor/removing=kill", "executor/removing=1*off->kill",
	"journal/delete=kill", "journal/delete=1*off->kill", "executor/ended=kill", "executor/ended=1*off->kill", "executor/done=kill",
}

// The executor is killed as by a power cut at every step of a taskgroup's life;
// the framework hears of it, and the process daemon removes what is left.
func TestFaultExecutorKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	for batch := range slices.Chunk(killPoints, 9) {
		groups := map[string]string{}
		for _, point := range batch {
			c.executorEnv = "TANDEM_FAILPOINTS='" + point + "'"
			groups[point] = c.launch(proc(c, "process", "exec sleep 1000"), box("container", "BRIDGE", "exec sleep 1000"))
		}
		for point, g := range groups {
			c.liveToTheEnd(point, g)
		}
		for point, g := range groups {
			c.waitExecutorGone(g)
			eventually(t, 10*time.Second, point+": the reaper", func() bool { return len(containersOf(t, g)) == 0 })
			for _, s := range c.all(g, "process") {
				if pid := decodeReport(t, s).Pid; pid > 0 {
					eventually(t, 10*time.Second, point+": the end of its process", func() bool { return !alive(pid) })
				}
			}
			eventually(t, 5*time.Second, point+": news of the executor's end", func() bool { return c.failure(g) != nil })
			if f := c.failure(g); f.Status == 0 {
				t.Errorf("%s: the executor was not killed there: %+v", point, f)
			}
		}
		c.nothingLeft()
	}
}

// liveToTheEnd waits until both tasks have ended; once both run they are killed.
func (c *cluster) liveToTheEnd(point, g string) {
	c.t.Helper()
	running := func(name string) bool { s := c.last(g, name); return s.GetState() == mesos.TASK_RUNNING }
	killed := false
	eventually(c.t, 30*time.Second, point+": the end of both tasks", func() bool {
		if !killed && running("process") && running("container") {
			killed = true
			c.kill(g, "process")
			c.kill(g, "container")
		}
		return c.over(g, "process") && c.over(g, "container")
	})
}
