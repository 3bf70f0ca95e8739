package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"
)

const (
	manyTasks = 1000
	// someTasks is how many executors are started when each task has its own.
	someTasks = 50
	// recordsPerTask must be on disk before a task is done: the task and its two updates.
	recordsPerTask = 3
	// taskCPUs is what a task, and an executor, is charged.
	taskCPUs = 0.01
)

// tasks measures how many tasks that do nothing a master and an agent get
// through: from the launch to the acknowledgement of TASK_FINISHED.
func tasks(ctx context.Context, o options) (results []result, err error) {
	dir, err := os.MkdirTemp(o.dir, "tasks")
	if err != nil {
		return nil, err
	}
	master, _, stop, err := startBoth(ctx, o.bin, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	f, err := newFramework(ctx, master.url)
	if err != nil {
		return nil, err
	}
	defer f.close()

	// The first task starts the executor.
	if _, err := f.finish(ctx, o, "first", 1, false); err != nil {
		return nil, err
	}
	var rates, floors []float64
	const rounds = 3
	for i := range rounds {
		floor, err := syncRate(dir)
		if err != nil {
			return nil, err
		}
		took, err := f.finish(ctx, o, fmt.Sprintf("round%d", i), manyTasks, false)
		if err != nil {
			return nil, err
		}
		rates = append(rates, manyTasks/took.Seconds())
		floors = append(floors, floor/recordsPerTask)
	}
	const aim = 500
	rate := median(rates)
	met := rate >= aim
	results = append(results, result{Name: "1000 tasks in one executor", Value: rate, Unit: "tasks/s", Floor: median(floors),
		Ratio: rate / median(floors), Aim: fmt.Sprintf(">= %d tasks/s", aim), Met: &met,
		Note: fmt.Sprintf("least %.0f; floor: %d synced appends a task, one by one", minimum(rates), recordsPerTask)})

	floor, err := processRate(ctx, o)
	if err != nil {
		return nil, err
	}
	took, err := f.finish(ctx, o, "own", someTasks, true)
	if err != nil {
		return nil, err
	}
	rate = someTasks / took.Seconds()
	return append(results, result{Name: "tasks with an executor each", Value: rate, Unit: "tasks/s", Floor: floor, Ratio: rate / floor,
		Note: fmt.Sprintf("%d tasks; floor: the same program started and ended, two at a time", someTasks)}), nil
}

// finish runs n tasks to their acknowledged end, all launched by one ACCEPT.
func (f *framework) finish(ctx context.Context, o options, name string, n int, own bool) (time.Duration, error) {
	// The executors' charges come on top of the tasks'.
	offer, err := f.roomFor(ctx, 2*taskCPUs*float64(n))
	if err != nil {
		return 0, err
	}
	infos := make([]mesos.TaskInfo, n)
	for i := range infos {
		id := fmt.Sprintf("%s-%d", name, i)
		executor := "noop"
		if own {
			executor = id
		}
		infos[i] = mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}, AgentID: offer.AgentID, Executor: o.noop(executor),
			Resources: []mesos.Resource{scalar("cpus", taskCPUs), scalar("mem", 1)}}
	}
	seconds := 0.0
	began := time.Now()
	err = f.call(ctx, &scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{
		OfferIDs: []mesos.OfferID{offer.ID}, Filters: &mesos.Filters{RefuseSeconds: &seconds},
		Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: infos}}},
	}})
	if err != nil {
		return 0, err
	}
	err = f.settle(ctx, n, mesos.TASK_FINISHED)
	return time.Since(began), err
}

// roomFor waits for an offer of so many cpus; those made while earlier tasks
// were still there are given back.
func (f *framework) roomFor(ctx context.Context, cpus float64) (mesos.Offer, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		offers, err := f.offersOf(1)
		if err != nil {
			return mesos.Offer{}, err
		}
		for _, r := range offers[0].Resources {
			if r.Name == "cpus" && r.GetScalar().GetValue() >= cpus {
				return offers[0], nil
			}
		}
		none := 0.0
		if err := f.call(ctx, &scheduler.Call{Type: scheduler.Call_DECLINE, Decline: &scheduler.Call_Decline{
			OfferIDs: []mesos.OfferID{offers[0].ID}, Filters: &mesos.Filters{RefuseSeconds: &none}}}); err != nil {
			return mesos.Offer{}, err
		}
	}
	return mesos.Offer{}, fmt.Errorf("no offer of %g cpus within %s", cpus, patience)
}

// noop is an executor whose tasks do nothing.
func (o options) noop(id string) *mesos.ExecutorInfo {
	no := false
	self := o.self
	return &mesos.ExecutorInfo{Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: id},
		Command:   &mesos.CommandInfo{Shell: &no, Value: &self, Arguments: []string{self, noopArgument}},
		Resources: []mesos.Resource{scalar("cpus", taskCPUs), scalar("mem", 1)}}
}

// processRate is how often in a second this program starts and ends.
func processRate(ctx context.Context, o options) (float64, error) {
	const lanes = 2
	began := time.Now()
	done := make(chan error, lanes)
	for range lanes {
		go func() {
			var err error
			for range someTasks / lanes {
				if err == nil {
					err = exec.CommandContext(ctx, o.self, "-h").Run()
				}
			}
			done <- err
		}()
	}
	for range lanes {
		if err := <-done; err != nil {
			return 0, err
		}
	}
	return someTasks / time.Since(began).Seconds(), nil
}
