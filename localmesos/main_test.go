package localmesos_test

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/internal/testkit"
	"tandem/localmesos/internal/wire"
)

// executorVariable makes this test binary an executor.
const executorVariable = "LOCALMESOS_TEST_EXECUTOR"

func TestMain(m *testing.M) {
	if os.Getenv(executorVariable) != "" {
		os.Exit(runExecutor())
	}
	if len(os.Args) > 1 && os.Args[1] == "mesos" {
		os.Exit(mesosMain(os.Args[2:]))
	}
	testkit.SideBySide(4)
	os.Exit(m.Run())
}

// runExecutor says that every task runs, and that it was killed when asked to.
// It subscribes again until it is shut down.
func runExecutor() int {
	url := "http://" + os.Getenv("MESOS_AGENT_ENDPOINT") + "/api/v1/executor"
	framework, id := mesos.FrameworkID{Value: os.Getenv("MESOS_FRAMEWORK_ID")}, mesos.ExecutorID{Value: os.Getenv("MESOS_EXECUTOR_ID")}
	post := func(c *executor.Call) (*http.Response, error) {
		c.FrameworkID, c.ExecutorID = framework, id
		b, err := wire.Marshal(wire.JSON, c)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", string(wire.JSON))
		req.Header.Set("Accept", string(wire.JSON))
		return http.DefaultClient.Do(req)
	}
	update := func(task mesos.TaskID, state mesos.TaskState) {
		source := mesos.SOURCE_EXECUTOR
		resp, err := post(&executor.Call{Type: executor.Call_UPDATE, Update: &executor.Call_Update{
			Status: mesos.TaskStatus{TaskID: task, State: &state, Source: &source, UUID: wire.UUIDBytes()},
		}})
		if err == nil {
			resp.Body.Close()
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := post(&executor.Call{Type: executor.Call_SUBSCRIBE, Subscribe: &executor.Call_Subscribe{}})
		if err != nil {
			continue
		}
		in := wire.NewRecordReader(resp.Body)
		for {
			b, err := in.Next()
			if err != nil {
				break
			}
			var e executor.Event
			if _, err := wire.UnmarshalJSON(b, &e); err != nil {
				return 1
			}
			switch e.Type {
			case executor.Event_LAUNCH:
				update(e.Launch.Task.TaskID, mesos.TASK_RUNNING)
			case executor.Event_LAUNCH_GROUP:
				for _, t := range e.LaunchGroup.TaskGroup.Tasks {
					update(t.TaskID, mesos.TASK_RUNNING)
				}
			case executor.Event_KILL:
				update(e.Kill.TaskID, mesos.TASK_KILLED)
			case executor.Event_SHUTDOWN:
				return 0
			default:
			}
		}
		resp.Body.Close()
	}
	return 1
}
