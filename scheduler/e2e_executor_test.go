package scheduler

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	mesoslib "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/api"
	"tandem/internal/recordio"
	"tandem/internal/testkit"
)

// executorDir is the variable that makes this binary an executor: a directory
// shared with the test. A file fail-<taskgroup name> in it ends that
// taskgroup's tasks; launches gets a line for each task that is started.
const executorDir = "TANDEM_TEST_EXECUTOR_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(executorDir); dir != "" {
		(&testExecutor{dir: dir, tasks: map[string]*testTask{}}).run()
		os.Exit(0)
	}
	testkit.SideBySide(4)
	os.Exit(m.Run())
}

// testExecutor says that its tasks run, and runs nothing. It survives its agent.
type testExecutor struct {
	dir     string
	tasks   map[string]*testTask
	unacked []executor.Call_Update
}

type testTask struct {
	info  mesoslib.TaskInfo
	name  string
	ended bool
}

// run ends when all tasks have ended and that is acknowledged, when it is shut
// down, or when there is no agent for long.
func (x *testExecutor) run() {
	client := &http.Client{}
	last := time.Now()
	for time.Since(last) < 20*time.Second {
		if _, err := os.Stat(x.dir); err != nil {
			return // the test is over
		}
		if x.connection(client, &last) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (x *testExecutor) call(c *executor.Call) *http.Request {
	c.ExecutorID.Value, c.FrameworkID.Value = os.Getenv("MESOS_EXECUTOR_ID"), os.Getenv("MESOS_FRAMEWORK_ID")
	b, err := c.Marshal()
	if err != nil {
		panic(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+os.Getenv("MESOS_AGENT_ENDPOINT")+"/api/v1/executor", bytes.NewReader(b))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Accept", "application/x-protobuf")
	return req
}

// connection lasts as long as the stream; it returns true when all is done.
func (x *testExecutor) connection(client *http.Client, last *time.Time) bool {
	sub := &executor.Call_Subscribe{UnacknowledgedUpdates: x.unacked}
	resp, err := client.Do(x.call(&executor.Call{Type: executor.Call_SUBSCRIBE, Subscribe: sub}))
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	events := make(chan executor.Event)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		defer close(events)
		r := recordio.NewReader(bufio.NewReader(resp.Body), 1<<20)
		for {
			b, err := r.Next()
			var e executor.Event
			if err != nil || e.Unmarshal(b) != nil {
				return
			}
			select {
			case events <- e:
			case <-ended:
				return
			}
		}
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		*last = time.Now()
		select {
		case e, ok := <-events:
			if !ok {
				return false
			}
			if e.Type == executor.Event_SHUTDOWN {
				return true
			}
			x.event(client, &e)
		case <-tick.C:
			for _, t := range x.tasks {
				if _, err := os.Stat(filepath.Join(x.dir, "fail-"+t.name)); err == nil && !t.ended {
					os.Remove(filepath.Join(x.dir, "fail-"+t.name))
					t.ended = true
					x.update(client, t, mesoslib.TASK_FAILED)
				}
			}
		}
		if x.done() {
			return true
		}
	}
}

func (x *testExecutor) done() bool {
	for _, t := range x.tasks {
		if !t.ended {
			return false
		}
	}
	return len(x.tasks) > 0 && len(x.unacked) == 0
}

func (x *testExecutor) event(client *http.Client, e *executor.Event) {
	switch e.Type {
	case executor.Event_LAUNCH_GROUP:
		for _, info := range e.LaunchGroup.TaskGroup.Tasks {
			var spec api.TaskSpec
			_ = json.Unmarshal(info.Data, &spec) // without a name it is not found by the test
			t := &testTask{info: info, name: spec.Taskgroup.Name}
			x.tasks[info.TaskID.Value] = t
			if f, err := os.OpenFile(filepath.Join(x.dir, "launches"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, t.name)
				f.Close()
			}
			x.update(client, t, mesoslib.TASK_RUNNING)
		}
	case executor.Event_KILL:
		if t := x.tasks[e.Kill.TaskID.Value]; t != nil && !t.ended {
			t.ended = true
			x.update(client, t, mesoslib.TASK_KILLED)
		}
	case executor.Event_ACKNOWLEDGED:
		for i := range x.unacked {
			if bytes.Equal(x.unacked[i].Status.UUID, e.Acknowledged.UUID) {
				x.unacked = append(x.unacked[:i], x.unacked[i+1:]...)
				return
			}
		}
	default: // SUBSCRIBED and heartbeats
	}
}

func (x *testExecutor) update(client *http.Client, t *testTask, state mesoslib.TaskState) {
	uuid, source, now := make([]byte, 16), mesoslib.SOURCE_EXECUTOR, float64(time.Now().Unix())
	_, _ = rand.Read(uuid)
	u := executor.Call_Update{Status: mesoslib.TaskStatus{
		TaskID: t.info.TaskID, State: &state, UUID: uuid, Source: &source, Timestamp: &now,
		ExecutorID: &mesoslib.ExecutorID{Value: os.Getenv("MESOS_EXECUTOR_ID")},
	}}
	x.unacked = append(x.unacked, u)
	if resp, err := client.Do(x.call(&executor.Call{Type: executor.Call_UPDATE, Update: &u})); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
