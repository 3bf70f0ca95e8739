package main

import (
	"context"
	"os"
	"os/exec"
	"time"
)

// idleArgument makes this program one that only wakes once a second.
const idleArgument = "idle"

// idleTime is how long an idle server is watched.
const idleTime = 10 * time.Second

// idle measures what master and agent use when nothing happens. The floor is a
// program that wakes once a second.
func idle(ctx context.Context, o options) ([]result, error) {
	dir, err := os.MkdirTemp(o.dir, "idle")
	if err != nil {
		return nil, err
	}
	master, agent, stop, err := startBoth(ctx, o.bin, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	floor := exec.CommandContext(ctx, o.self, idleArgument)
	if err := floor.Start(); err != nil {
		return nil, err
	}
	defer func() {
		floor.Process.Kill() //nolint:errcheck // it may have ended
		floor.Wait()         //nolint:errcheck // killed, so it fails
	}()
	// What a start leaves to be done, such as the first collection of garbage, is over then.
	time.Sleep(2 * time.Second)
	used, err := idleOf(ctx, floor.Process.Pid, master.cmd.Process.Pid, agent.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	const aim = 0.1
	var results []result
	for i, name := range []string{"idle master", "idle agent"} {
		met := used[i+1] < aim
		results = append(results, result{Name: name, Value: used[i+1], Unit: "% of a core", Floor: used[0], Ratio: used[i+1] / used[0],
			Aim: "< 0.1 %", Met: &met, Note: "over " + idleTime.String() + "; floor: a program that wakes once a second"})
	}
	return results, nil
}

// idleOf watches processes and returns the percentage of a processor that each has used.
func idleOf(ctx context.Context, pids ...int) ([]float64, error) {
	before := make([]time.Duration, len(pids))
	for i, pid := range pids {
		var err error
		if before[i], err = cpu(pid); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	took := time.Since(began)
	out := make([]float64, len(pids))
	for i, pid := range pids {
		after, err := cpu(pid)
		if err != nil {
			return nil, err
		}
		out[i] = 100 * float64(after-before[i]) / float64(took)
	}
	return out, nil
}

// runIdle wakes once a second until it is killed.
func runIdle() {
	for range time.Tick(time.Second) {
	}
}
