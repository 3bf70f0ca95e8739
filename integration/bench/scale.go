package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/internal/recordio"
)

const (
	manyAgents    = 1000
	tasksPerAgent = 10
	offerCycles   = 300
)

// agents measures a master with a thousand agents and ten thousand tasks: how
// long it takes to offer all of them, and its memory.
func agents(ctx context.Context, o options) ([]result, error) {
	dir, err := os.MkdirTemp(o.dir, "agents")
	if err != nil {
		return nil, err
	}
	master, err := startMaster(ctx, o.bin, dir)
	if err != nil {
		return nil, err
	}
	defer master.stop(syscall.SIGTERM)
	began := time.Now()
	fleet, err := newFleet(ctx, master.url, manyAgents)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	joined := time.Since(began)
	f, err := newFramework(ctx, master.url)
	if err != nil {
		return nil, err
	}
	defer f.close()
	began = time.Now()
	size, err := f.fill(ctx)
	if err != nil {
		return nil, err
	}
	filled := time.Since(began)
	cycles, floors, err := f.cycles(ctx)
	if err != nil {
		return nil, err
	}
	memory, err := master.memory()
	if err != nil {
		return nil, err
	}
	quiet, err := idleOf(ctx, master.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	const aim, aimMemory = 50 * time.Millisecond, 300.0
	met, metMemory := percentile(cycles, 0.99) <= aim, memory <= aimMemory
	all := fmt.Sprintf("%d agents", manyAgents)
	tail := line("offers of "+all+" p99", cycles, floors, 0.99)
	tail.Aim, tail.Met = fmt.Sprintf("%g ms", milliseconds(aim)), &met
	tail.Note = fmt.Sprintf("%d cycles, REVIVE to the last offer; floor: the same bytes encoded, passed on and decoded", offerCycles)
	return []result{
		{Name: all + " registered", Value: manyAgents / joined.Seconds(), Unit: "agents/s"},
		{Name: fmt.Sprintf("%d tasks launched on them", manyAgents*tasksPerAgent), Value: manyAgents * tasksPerAgent / filled.Seconds(), Unit: "tasks/s",
			Note: "to TASK_RUNNING acknowledged; the agents' own work is not in it"},
		line("offers of "+all+" p50", cycles, floors, 0.5), tail,
		{Name: "master with " + all + ", memory", Value: memory, Unit: "MiB", Floor: size, Ratio: memory / size, Aim: fmt.Sprintf("%g MiB", aimMemory), Met: &metMemory,
			Note: "floor: its agents and tasks as protobuf"},
		{Name: "master with " + all + ", idle", Value: quiet[0], Unit: "% of a core"},
	}, nil
}

// fill launches tasks on all agents and returns the size of agents and tasks in MiB.
func (f *framework) fill(ctx context.Context) (float64, error) {
	offers, err := f.offersOf(manyAgents)
	if err != nil {
		return 0, err
	}
	size := 0
	accepted := make(chan error, 1)
	go func() { accepted <- f.launchOn(ctx, offers) }()
	if err := f.settle(ctx, manyAgents*tasksPerAgent, mesos.TASK_RUNNING); err != nil {
		return 0, err
	}
	if err := <-accepted; err != nil {
		return 0, err
	}
	for i := range offers {
		size += offers[i].Size()
		for _, t := range f.tasksOn(&offers[i]) {
			size += t.Size()
		}
	}
	return float64(size) / (1 << 20), nil
}

func (f *framework) launchOn(ctx context.Context, offers []mesos.Offer) error {
	never := 3600.0
	for i := range offers {
		if err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{
			OfferIDs: []mesos.OfferID{offers[i].ID}, Filters: &mesos.Filters{RefuseSeconds: &never},
			Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH,
				Launch: &mesos.Offer_Operation_Launch{TaskInfos: f.tasksOn(&offers[i])}}},
		}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *framework) tasksOn(o *mesos.Offer) []mesos.TaskInfo {
	out := make([]mesos.TaskInfo, tasksPerAgent)
	no, program := false, "/bin/true"
	x := &mesos.ExecutorInfo{Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: "x"}, FrameworkID: &f.id,
		Command: &mesos.CommandInfo{Shell: &no, Value: &program}, Resources: []mesos.Resource{scalar("cpus", 0.1), scalar("mem", 32)}}
	for i := range out {
		id := fmt.Sprintf("%s-%d", o.Hostname, i)
		out[i] = mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}, AgentID: o.AgentID, Executor: x,
			Resources: []mesos.Resource{scalar("cpus", 0.1), scalar("mem", 32)}}
	}
	return out
}

// cycles measures from REVIVE to the offers of all agents.
func (f *framework) cycles(ctx context.Context) (took, floors []time.Duration, err error) {
	var held []mesos.Offer
	never := 3600.0
	for range offerCycles {
		ids := make([]mesos.OfferID, len(held))
		for i := range held {
			ids[i] = held[i].ID
		}
		if err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_DECLINE, Decline: &scheduler.Call_Decline{
			OfferIDs: ids, Filters: &mesos.Filters{RefuseSeconds: &never}}}); err != nil {
			return nil, nil, err
		}
		began := time.Now()
		if err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_REVIVE}); err != nil {
			return nil, nil, err
		}
		if held, err = f.offersOf(manyAgents); err != nil {
			return nil, nil, err
		}
		took = append(took, time.Since(began))
		floor, err := passOn(ctx, &scheduler.Event{Type: scheduler.Event_OFFERS, Offers: &scheduler.Event_Offers{Offers: held}})
		if err != nil {
			return nil, nil, err
		}
		floors = append(floors, floor)
	}
	return took, floors, nil
}

// passOn encodes an event, sends it through a connection and decodes it.
func passOn(ctx context.Context, e *scheduler.Event) (time.Duration, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			sent <- err
			return
		}
		defer c.Close()
		b, err := e.Marshal()
		if err == nil {
			_, err = c.Write(recordio.Append(nil, b))
		}
		sent <- err
	}()
	c, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b, err := recordio.NewReader(c, maxRecord).Next()
	if err != nil && err != io.EOF { //nolint:errorlint // Next returns it bare
		return 0, err
	}
	if err := new(scheduler.Event).Unmarshal(b); err != nil {
		return 0, err
	}
	return time.Since(began), <-sent
}

// together runs n acts, some at a time, and returns the first error.
func together(n, lanes int, act func(i int) error) error {
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var all sync.WaitGroup
	failed := make(chan error, n)
	for range lanes {
		all.Go(func() {
			for i := range next {
				if err := act(i); err != nil {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
