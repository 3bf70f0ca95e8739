package container

import (
	"strings"
	"testing"

	"tandem/executor"
	"tandem/internal/journal"
)

// cpusOf is where the engine lets a container run.
func (f *fixture) cpusOf(t *executor.Task) string {
	f.t.Helper()
	c, err := f.docker.ContainerInspect(f.ctx(), f.tasks[t.ID].containerID)
	if err != nil {
		f.t.Fatal(err)
	}
	return c.HostConfig.CpusetCpus
}

// TestSharedContainersKeepOffLeasedCPUs: with two executors of one agent, those who
// share go where no lease is, before and after it is taken, and come back.
func TestSharedContainersKeepOffLeasedCPUs(t *testing.T) {
	t.Parallel()
	all, err := usableCPUs()
	if err != nil || len(all) < 2 {
		t.Skipf("two CPUs are needed, there are %v, %v", all, err)
	}
	two := all[:2]
	f := newFixture(t, func(o *Options) { o.CPUs = two })
	before := f.launchUp("echo up; sleep 60")
	if got := f.cpusOf(before); got != "" {
		t.Errorf("without any lease: %q", got)
	}
	other := newFixture(t, func(o *Options) { o.CPUs = two })
	other.opt.Journal = ownerOf(t, f.journal, other.owner.Name())
	alone := other.task("sleep 60", func(e *executor.Task) { e.Spec.Container.Cpuset, e.Spec.Requests.CPUs = true, 1 })
	other.launch(alone)
	rest := joinCPUs(two[1:])
	eventually(t, "the one that runs moves", func() bool { return f.cpusOf(before) == rest })
	cgroups := groups(f.tasks[before.ID].containerID)
	if len(cgroups) == 0 {
		t.Log("the control group is not found, so only the engine's word is known")
	}
	after := f.launchUp("echo up; cat /proc/self/status; sleep 60")
	if got := f.cpusOf(after); got != rest {
		t.Errorf("one made later may run on %q, want %q", got, rest)
	}
	eventually(t, "the kernel says so, too", func() bool {
		return strings.Contains(f.read(after, "stdout"), "Cpus_allowed_list:\t"+rest+"\n")
	})
	if err := other.Remove(f.ctx(), alone.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are free again", func() bool { return f.cpusOf(before) == joinCPUs(two) && f.cpusOf(after) == joinCPUs(two) })
	// With no CPU left, those who share run anywhere.
	alone = other.task("sleep 60", func(e *executor.Task) { e.Spec.Container.Cpuset, e.Spec.Requests.CPUs = true, 2 })
	other.launch(alone)
	last := f.launchUp("echo up; sleep 60")
	if got := f.cpusOf(last); got != "" {
		t.Errorf("with every CPU leased: %q", got)
	}
	if err := other.Remove(f.ctx(), alone.ID); err != nil {
		t.Fatal(err)
	}
}

// ownerOf is another executor of the same agent.
func ownerOf(t *testing.T, j *journal.Journal, name string) *journal.Owner {
	t.Helper()
	own, err := j.Own(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })
	return own
}
