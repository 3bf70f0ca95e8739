package container

import (
	"context"
	"errors"
	"fmt"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
)

var _ executor.ResourceUpdater = (*Runtime)(nil)

// UpdateResources changes shares, quota, memory and the limit of processes of a running
// container, without a restart. CPUs that a container has for itself stay as they are.
func (r *Runtime) UpdateResources(ctx context.Context, taskID string, u api.ResourceUpdate) error {
	t, err := r.enter(ctx, taskID)
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("task %q is not known", taskID)
	}
	defer r.leave(t)
	r.mu.Lock()
	id, n, stopping := t.containerID, t.run, t.stopping
	r.mu.Unlock()
	if n == nil || stopping || over(n.ended) {
		return fmt.Errorf("task %q is not running", taskID)
	}
	if t.cpus > 0 && u.Requests.CPUs != float64(t.cpus) {
		return fmt.Errorf("task %q has %d CPUs for itself, and their number cannot be changed while it runs; keep requests.cpus at %d", taskID, t.cpus, t.cpus)
	}
	var errs api.Errors
	var hc engine.HostConfig
	resources(&errs, &api.TaskSpec{Requests: u.Requests, Limits: u.Limits}, &hc)
	if err := errs.Sorted(); err != nil {
		return err
	}
	change := engine.Resources{CPUShares: hc.CPUShares, CPUPeriod: hc.CPUPeriod, CPUQuota: hc.CPUQuota, Memory: hc.Memory, MemorySwap: hc.MemorySwap, PidsLimit: u.Limits.Pids}
	if change.CPUQuota == 0 {
		// 0 would leave an old quota in place.
		change.CPUQuota = -1
	}
	err = r.engine.Update(ctx, id, change)
	var e *engine.Error
	if errors.As(err, &e) {
		return fmt.Errorf("task %q keeps its resources; less memory than it uses cannot be set: %w", taskID, err)
	}
	return err
}
