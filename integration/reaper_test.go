package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/cgroup"
	"tandem/internal/journal"
	"tandem/internal/procid"
)

// foreigner is what looks like a victim's and is somebody else's.
type foreigner struct {
	what  string
	there func() bool
}

// foreignContainer makes a container that is not of the executor g, however much it looks like it.
func foreignContainer(t *testing.T, name string, labels map[string]string) foreigner {
	t.Helper()
	made, err := harness.engine.ContainerCreate(t.Context(), &container.Config{Image: harness.image, Cmd: []string{"sleep", "600"}, Labels: labels},
		&container.HostConfig{NetworkMode: "none"}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := harness.engine.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
	if err := harness.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return foreigner{"container " + name, func() bool {
		c, err := harness.engine.ContainerInspect(context.Background(), made.ID)
		return err == nil && c.State.Running
	}}
}

// foreignProcess runs a process whose command line and environment name g, in a control
// group beside those of the daemon whose name is that of a task.
func foreignProcess(t *testing.T, g, group string) foreigner {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "while :; do sleep 0.2; done", "foreground."+g)
	cmd.Env = append(os.Environ(), "BCS_POD_ID="+g)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tree := cgroup.Open("tandem/p-foreign" + strconv.Itoa(os.Getpid()))
	cg := tree.Group(group)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		eventually(t, 10*time.Second, "the foreign control group goes", func() bool { return cg.Kill() == nil && cg.Remove() == nil })
		tree.Close()
	})
	if _, err := cg.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := cg.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return foreigner{"process", id.Alive}
}

// TestReaperTouchesOnlyTheDead: one executor of many is killed. All of it goes, also
// what does not listen to SIGTERM, after one grace for all; its living neighbours on the same
// daemon, engine and journal, and strangers that look like it, stay as they are.
func TestReaperTouchesOnlyTheDead(t *testing.T) {
	t.Parallel()
	needEngine(t)
	c := startCluster(t, clusterOptions{})
	const many = 5
	var groups []string
	for range many {
		groups = append(groups, c.launch(ownProc(c, "process", staysLine), box("container", "NONE", stayBox)))
	}
	stubborn := `trap '' TERM; while :; do sleep 0.1; done`
	specs := pathMixed.tasks(c)
	specs = append(specs, ownProc(c, "deaf", stubborn), ownProc(c, "deafer", stubborn), box("deafbox", "NONE", stubborn))
	g := c.launch(specs...)
	for _, s := range specs {
		c.waitState(g, s.Name, mesos.TASK_RUNNING)
	}
	before := map[string]procid.Identity{}
	for _, n := range groups {
		for _, name := range []string{"process", "container"} {
			c.waitState(n, name, mesos.TASK_RUNNING)
			id, err := procid.Of(c.report(n, name).Pid)
			if err != nil {
				t.Fatal(err)
			}
			before[name+"."+n] = id
		}
	}
	// A living executor of the same journal whose name begins like the dead one's, with a record that names the same task.
	j, err := journal.Open(filepath.Join(c.dataDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	neighbour, err := j.Own(g + ".0")
	if err != nil {
		t.Fatal(err)
	}
	if err := neighbour.Put("container", "container."+g, map[string]string{"name": "tandem-container." + g + ".copy"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := neighbour.Delete("container", "container."+g); err != nil {
			t.Error(err)
		}
		neighbour.Close()
	})
	strangers := []foreigner{
		foreignContainer(t, "tandem-container."+g+".copy", nil),
		foreignContainer(t, "tandem-other-owner."+g, map[string]string{"tandem.owner": g + ".0", "tandem.task": "container." + g}),
		foreignContainer(t, "tandem-other-task."+g, map[string]string{"tandem.owner": "0." + g, "tandem.task": "container." + g, "tandem.taskgroup": g}),
		foreignProcess(t, g, shortSum("process."+g)),
		{"record", func() bool {
			ok, err := neighbour.Get("container", "container."+g, &struct{}{})
			return ok && err == nil
		}},
	}

	pid := c.executorPid(g)
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := await(reapLimit, "what the executor left", func() bool {
		left = slices.DeleteFunc(c.leftOf(g, specs), func(what string) bool { return len(what) > 8 && what[:8] == "process " })
		return len(left) == 0
	}); err != nil {
		t.Fatalf("%v: %v", err, left)
	}
	t.Logf("all of it was gone after %v", time.Since(begin))
	for what, id := range before {
		if !id.Alive() {
			t.Errorf("%s of a living executor was touched", what)
		}
	}
	for _, n := range groups {
		for _, name := range []string{"process", "container"} {
			if s := c.last(n, name); s.GetState() != mesos.TASK_RUNNING {
				t.Errorf("%s of %s: %s", name, n, c.states(n, name))
			}
		}
	}
	for _, s := range strangers {
		if !s.there() {
			t.Errorf("a stranger's %s was touched", s.what)
		}
	}
	for _, n := range groups {
		c.kill(n, "process")
		c.kill(n, "container")
	}
	for _, n := range groups {
		c.waitExecutorGone(n)
	}
}
