package container

import (
	"strings"
	"testing"

	"tandem/api"
	"tandem/executor"
)

// TestE16UpdateResourcesWithoutRestart: the same process has other limits, and
// limits can be taken away again.
func TestE16UpdateResourcesWithoutRestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	task := f.task("sleep 60", func(e *executor.Task) {
		e.Spec.Requests = api.TaskResources{CPUs: 0.5, MemMB: 32}
		e.Spec.Limits = api.TaskResources{CPUs: 1, MemMB: 32}
	})
	s := f.launch(task)
	for _, c := range []struct {
		update                api.ResourceUpdate
		shares, quota, memory int64
		pids                  int64
	}{
		{api.ResourceUpdate{Requests: api.TaskResources{CPUs: 0.25, MemMB: 64}, Limits: api.TaskResources{CPUs: 0.5, MemMB: 128, Pids: 40}}, 256, 50_000, 128 << 20, 40},
		{api.ResourceUpdate{Requests: api.TaskResources{CPUs: 1, MemMB: 48}}, 1024, -1, 48 << 20, 40},
		{api.ResourceUpdate{Requests: api.TaskResources{CPUs: 1, MemMB: 48}, Limits: api.TaskResources{Pids: -1}}, 1024, -1, 48 << 20, -1},
	} {
		if err := f.UpdateResources(f.ctx(), task.ID, c.update); err != nil {
			t.Fatal(err)
		}
		got, err := docker.ContainerInspect(f.ctx(), s.ContainerID)
		if err != nil {
			t.Fatal(err)
		}
		h, pids := got.HostConfig, int64(-1)
		if h.PidsLimit != nil && *h.PidsLimit > 0 {
			pids = *h.PidsLimit
		}
		if h.CPUShares != c.shares || h.CPUQuota != c.quota || h.Memory != c.memory || pids != c.pids || got.State.Pid != s.Pid {
			t.Errorf("shares %d, quota %d, memory %d, processes %d, pid %d (was %d)", h.CPUShares, h.CPUQuota, h.Memory, pids, got.State.Pid, s.Pid)
		}
	}
	if err := f.UpdateResources(f.ctx(), task.ID, api.ResourceUpdate{Limits: api.TaskResources{MemMB: 1}}); err == nil || !strings.Contains(err.Error(), "at least 6 MB") {
		t.Errorf("too little: %v", err)
	}
	if err := f.UpdateResources(f.ctx(), "nobody", api.ResourceUpdate{}); err == nil {
		t.Error("a task that is not known is updated")
	}
	if err := f.Stop(f.ctx(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.UpdateResources(f.ctx(), task.ID, api.ResourceUpdate{}); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("a task that has ended: %v", err)
	}
}
