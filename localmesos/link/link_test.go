package link

import (
	"encoding/json"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	mesos "github.com/mesos/mesos-go/api/v1/lib"
)

// TestMessagesSurvive sends messages of all kinds of contents through the
// protocol's JSON: nothing may be lost between master and agent.
func TestMessagesSurvive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(1))
	for range 300 {
		run := Run{Framework: *mesos.NewPopulatedFrameworkInfo(r, false), Executor: *mesos.NewPopulatedExecutorInfo(r, false),
			Tasks: []mesos.TaskInfo{*mesos.NewPopulatedTaskInfo(r, false)}, Group: true}
		var got Run
		pass(t, run, &got)
		if !got.Framework.Equal(run.Framework) || !got.Executor.Equal(run.Executor) || !got.Tasks[0].Equal(run.Tasks[0]) {
			t.Fatal(cmp.Diff(run, got))
		}
		status := *mesos.NewPopulatedTaskStatus(r, false)
		var update StatusUpdate
		pass(t, StatusUpdate{Status: status}, &update)
		if !update.Status.Equal(status) {
			t.Fatal(cmp.Diff(status, update.Status))
		}
		info := *mesos.NewPopulatedAgentInfo(r, false)
		var sub Subscribe
		pass(t, Subscribe{AgentInfo: info}, &sub)
		if !sub.AgentInfo.Equal(info) {
			t.Fatal(cmp.Diff(info, sub.AgentInfo))
		}
	}
}

func pass(t *testing.T, from, to any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, to); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
}
