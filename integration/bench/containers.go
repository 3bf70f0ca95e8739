package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
)

// containers measures start, end and kill of containers against the bare engine.
func (b *bench) containers(ctx context.Context) (results []result, err error) {
	e, why, err := openEngine(ctx)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return []result{{Name: "launch of a container p50", Unit: "ms", Note: why}}, nil
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	for _, measure := range []func(context.Context, *engine) ([]result, error){b.containerLaunch, b.containerExit, b.killOfMany} {
		r, err := measure(ctx, e)
		if err != nil {
			return nil, fmt.Errorf("container task: %w", err)
		}
		results = append(results, r...)
	}
	return results, nil
}

func (b *bench) containerLaunch(ctx context.Context, e *engine) ([]result, error) {
	var took, floors, typed []time.Duration
	for range b.rounds {
		id, floor, err := e.bare(ctx)
		if err != nil {
			return nil, err
		}
		floors = append(floors, floor)
		if err := e.remove(ctx, id); err != nil {
			return nil, err
		}
		r, err := b.launch(ctx, e.sleeper())
		if err != nil {
			return nil, err
		}
		took = append(took, r.took)
		if err := r.stop(); err != nil {
			return nil, err
		}
		run, err := e.dockerRun(ctx)
		if err != nil {
			return nil, err
		}
		if run > 0 {
			typed = append(typed, run)
		}
	}
	results := latency("launch of a container", took, floors, 10*time.Millisecond)
	if len(typed) == 0 {
		return append(results, result{Name: "docker run of the same p50", Unit: "ms", Note: "not measured: no docker program"}), nil
	}
	return append(results, line("docker run of the same p50", typed, floors, 0.5)), nil
}

// containerExit measures from the death of a container's process until the
// terminal update. The floor is when the engine says that it has ended.
func (b *bench) containerExit(ctx context.Context, e *engine) ([]result, error) {
	var took, floors []time.Duration
	for range b.rounds {
		floor, err := e.exit(ctx)
		if err != nil {
			return nil, err
		}
		floors = append(floors, floor)
		r, err := b.launch(ctx, e.sleeper())
		if err != nil {
			return nil, err
		}
		one, err := r.die()
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return exitLatency("end of a container to its update", took, floors), nil
}

// exit kills the process of a bare container and waits until the engine knows.
func (e *engine) exit(ctx context.Context) (time.Duration, error) {
	id, _, err := e.bare(ctx)
	if err != nil {
		return 0, err
	}
	info, err := e.ContainerInspect(ctx, id)
	if err != nil {
		return 0, errors.Join(err, e.remove(ctx, id))
	}
	ended, failed := e.ContainerWait(ctx, id, container.WaitConditionNextExit)
	began := time.Now()
	if err := syscall.Kill(info.State.Pid, syscall.SIGKILL); err != nil {
		return 0, errors.Join(err, e.remove(ctx, id))
	}
	select {
	case <-ended:
	case err = <-failed:
	}
	took := time.Since(began)
	return took, errors.Join(err, e.remove(ctx, id))
}

// killOfMany measures the kill of containers that take no notice of SIGTERM.
func (b *bench) killOfMany(ctx context.Context, e *engine) ([]result, error) {
	const many, grace = 20, 3 * time.Second
	specs := make([]api.TaskSpec, many)
	for i := range specs {
		specs[i] = e.sleeper()
		specs[i].KillPolicy.GracePeriodSeconds = int64(grace / time.Second)
	}
	r, err := b.launch(ctx, specs...)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for _, id := range r.tasks {
		b.agent.send(r.id, &executor.Event{Type: executor.Event_KILL, Kill: &executor.Event_Kill{TaskID: mesos.TaskID{Value: id}}})
	}
	at, err := r.await(mesos.TASK_KILLED)
	if err != nil {
		return nil, errors.Join(err, r.kill())
	}
	took := at.Sub(began)
	met := took < 2*grace
	return []result{
		{Name: fmt.Sprintf("launch of %d containers in one taskgroup", many), Value: milliseconds(r.took), Unit: "ms"},
		{Name: fmt.Sprintf("kill of %d containers that ignore SIGTERM", many), Value: milliseconds(took), Unit: "ms",
			Floor: milliseconds(grace), Ratio: float64(took) / float64(grace), Aim: "one grace, not two", Met: &met, Note: "floor: the grace"},
	}, r.cmd.Wait()
}
