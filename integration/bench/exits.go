package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// exits measures from the death of a process until its terminal update. The
// floor is when its own parent knows.
func (b *bench) exits(ctx context.Context) ([]result, error) {
	spec, sleep, err := sleeper()
	if err != nil {
		return nil, err
	}
	var took, floors []time.Duration
	for range b.rounds {
		floor := exec.CommandContext(ctx, sleep, "1000")
		if err := floor.Start(); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := floor.Process.Kill(); err != nil {
			return nil, err
		}
		floor.Wait() //nolint:errcheck // killed, so it fails
		floors = append(floors, time.Since(began))
		r, err := b.launch(ctx, spec)
		if err != nil {
			return nil, fmt.Errorf("process task: %w", err)
		}
		one, err := r.die()
		if err != nil {
			return nil, fmt.Errorf("process task: %w", err)
		}
		took = append(took, one)
	}
	return exitLatency("end of a process to its update", took, floors), nil
}

// exitLatency makes the lines for ends; the aim is for the 99th percentile.
func exitLatency(name string, took, floors []time.Duration) []result {
	const added = 10 * time.Millisecond
	median, tail := line(name+" p50", took, floors, 0.5), line(name+" p99", took, floors, 0.99)
	met := percentile(took, 0.99)-percentile(floors, 0.99) <= added
	tail.Aim, tail.Met = fmt.Sprintf("floor + %g ms", milliseconds(added)), &met
	return []result{median, tail}
}

// die kills the process of the only task and waits for the update.
func (r *running) die() (time.Duration, error) {
	pid := r.pids[r.tasks[0]]
	if pid == 0 {
		return 0, errors.Join(errors.New("the report of the running task names no process"), r.kill())
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, errors.Join(err, r.kill())
	}
	at, err := r.await(mesos.TASK_FAILED)
	if err != nil {
		return 0, errors.Join(err, r.kill())
	}
	return at.Sub(began), r.cmd.Wait()
}
