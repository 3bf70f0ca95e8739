package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"tandem/api"
)

// groupSize is how many tasks the large taskgroup has.
const groupSize = 100

// groups measures what a further task adds to an executor's memory, and what
// checks of all tasks once a second use.
func (b *bench) groups(ctx context.Context) ([]result, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	go accept(l)
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	spec, _, err := sleeper()
	if err != nil {
		return nil, err
	}
	one, _, err := b.atRest(ctx, spec, 1)
	if err != nil {
		return nil, err
	}
	all, _, err := b.atRest(ctx, spec, groupSize)
	if err != nil {
		return nil, err
	}
	spec.HealthChecks = []api.HealthCheck{{Type: api.CheckTCP, DelaySeconds: 1, IntervalSeconds: 1, TimeoutSeconds: 1,
		TCP: &api.TCPCheck{Port: int(at.Port())}}}
	checked, used, err := b.atRest(ctx, spec, groupSize)
	if err != nil {
		return nil, err
	}
	const aimMemory, aimUsed = 50.0, 2.0
	further := func(all float64) float64 { return (all - one) * 1024 / (groupSize - 1) }
	metMemory, metUsed := further(all) <= aimMemory, used <= aimUsed
	tasks := fmt.Sprintf("executor with %d tasks", groupSize)
	return []result{
		{Name: "each further task of an executor, private dirty", Value: further(all), Unit: "KiB", Aim: fmt.Sprintf("%g KiB", aimMemory), Met: &metMemory,
			Note: fmt.Sprintf("%s: %.1f MiB", tasks, all)},
		{Name: "each further task with a check, private dirty", Value: further(checked), Unit: "KiB"},
		{Name: tasks + ", TCP check of each once a second", Value: used, Unit: "% of a core", Aim: fmt.Sprintf("%g %%", aimUsed), Met: &metUsed},
	}, nil
}

// atRest runs a taskgroup of n like tasks and returns the private dirty memory
// of its executor in MiB, and what it uses of a core.
func (b *bench) atRest(ctx context.Context, spec api.TaskSpec, n int) (memory, used float64, err error) {
	specs := make([]api.TaskSpec, n)
	for i := range specs {
		process := *spec.Process
		process.WorkPath += strconv.Itoa(i)
		specs[i] = spec
		specs[i].Process = &process
	}
	r, err := b.launch(ctx, specs...)
	if err != nil {
		return 0, 0, err
	}
	values, err := r.rollup()
	if err != nil {
		return 0, 0, errors.Join(err, r.kill())
	}
	if spec.HealthChecks != nil {
		idle, err := idleOf(ctx, r.cmd.Process.Pid)
		if err != nil {
			return 0, 0, errors.Join(err, r.kill())
		}
		used = idle[0]
	}
	return values["Private_Dirty"], used, r.stop()
}

// accept takes connections and closes them, until the listener is closed.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
	}
}
