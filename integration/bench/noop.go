package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/internal/recordio"
)

// noopArgument makes this program an executor whose tasks run and finish at once.
const noopArgument = "noop-executor"

// updaters is how many updates the executor sends at a time, those of one task
// by the same sender.
const updaters = 16

type noop struct {
	url, framework, id string
	client             *http.Client
}

// runNoop is the executor. It ends with SHUTDOWN or with its stream.
func runNoop() int {
	x := &noop{url: "http://" + os.Getenv("MESOS_AGENT_ENDPOINT") + "/api/v1/executor", client: newClient(),
		framework: os.Getenv("MESOS_FRAMEWORK_ID"), id: os.Getenv("MESOS_EXECUTOR_ID")}
	if err := x.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, noopArgument+":", err)
		return 1
	}
	return 0
}

func (x *noop) run(ctx context.Context) error {
	resp, err := x.call(ctx, &executor.Call{Type: executor.Call_SUBSCRIBE, Subscribe: &executor.Call_Subscribe{}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	tasks := make(chan mesos.TaskID, 10_000)
	var senders sync.WaitGroup
	for range updaters {
		senders.Go(func() {
			for id := range tasks {
				for _, state := range []mesos.TaskState{mesos.TASK_RUNNING, mesos.TASK_FINISHED} {
					if err := x.update(ctx, id, state); err != nil {
						fmt.Fprintln(os.Stderr, noopArgument+":", err)
						os.Exit(1)
					}
				}
			}
		})
	}
	in := recordio.NewReader(resp.Body, maxRecord)
	for {
		b, err := in.Next()
		if err != nil {
			return err
		}
		var e executor.Event
		if err := e.Unmarshal(b); err != nil {
			return err
		}
		switch e.Type {
		case executor.Event_LAUNCH:
			tasks <- e.Launch.Task.TaskID
		case executor.Event_SHUTDOWN:
			close(tasks)
			senders.Wait()
			return nil
		default:
		}
	}
}

func (x *noop) update(ctx context.Context, id mesos.TaskID, state mesos.TaskState) error {
	source, uuid := mesos.SOURCE_EXECUTOR, make([]byte, 16)
	_, _ = rand.Read(uuid) // never fails
	resp, err := x.call(ctx, &executor.Call{Type: executor.Call_UPDATE, Update: &executor.Call_Update{
		Status: mesos.TaskStatus{TaskID: id, State: &state, Source: &source, UUID: uuid}}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (x *noop) call(ctx context.Context, c *executor.Call) (*http.Response, error) {
	c.FrameworkID, c.ExecutorID = mesos.FrameworkID{Value: x.framework}, mesos.ExecutorID{Value: x.id}
	b, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	return send(ctx, x.client, x.url, bytes.Clone(b), nil)
}
