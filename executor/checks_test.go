package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/executor/health"
)

// checkedBy gives a task a check by command, every ten seconds.
func checkedBy(change func(*api.HealthCheck)) func(*api.TaskSpec) {
	return func(s *api.TaskSpec) {
		h := api.HealthCheck{
			Type: api.CheckCommand, Command: &api.CommandCheck{Value: "probe ${bcs.instanceid}"},
			DelaySeconds: 5, IntervalSeconds: 10, TimeoutSeconds: 3,
		}
		if change != nil {
			change(&h)
		}
		s.HealthChecks = append(s.HealthChecks, h)
	}
}

// answers lets the checks of every task end with these exit codes, the last one for ever.
func answers(codes ...int) func(*rig) {
	return func(r *rig) {
		r.runtime.check = func(_ context.Context, _ string, n int) (health.CommandResult, error) {
			code := codes[min(n, len(codes))-1]
			return health.CommandResult{Started: true, Code: code, Output: fmt.Sprintf("code is %d\n", code)}, nil
		}
	}
}

// healthStory writes the health in the updates of a task: - for none.
func healthStory(r *rig, id string) string {
	var s strings.Builder
	for _, u := range r.agent.of(id) {
		switch {
		case u.Healthy == nil:
			s.WriteString("-")
		case *u.Healthy:
			s.WriteString("h")
		default:
			s.WriteString("u")
		}
	}
	return s.String()
}

func TestHealthIsToldWhenItChanges(t *testing.T) {
	t.Parallel()
	inBubble(t, answers(0, 0, 0, 1, 1, 0), func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) { h.ConsecutiveFailures = 3 })))
		r.settle()
		if s := r.agent.last("a"); s.Healthy != nil || r.runtime.has("check a [probe 0]") {
			t.Error("the task was checked, or its health claimed, before the delay was over")
		}
		r.pass(6 * time.Second)
		s := r.agent.last("a")
		if s.GetState() != mesos.TASK_RUNNING || !s.GetHealthy() || s.GetReason() != mesos.REASON_TASK_HEALTH_CHECK_STATUS_UPDATED ||
			s.GetSource() != mesos.SOURCE_EXECUTOR || s.GetMessage() != "health check COMMAND succeeded" || len(s.UUID) != 16 {
			t.Errorf("update %+v", s)
		}
		if !r.runtime.has("check a [probe 0]") {
			t.Errorf("the command's variables are not expanded: %v", r.runtime.called())
		}
		r.pass(30 * time.Second)
		s = r.agent.last("a")
		if s.Healthy == nil || *s.Healthy || s.GetMessage() != "health check COMMAND failed: exit code 1: code is 1" {
			t.Errorf("update %+v", s)
		}
		if c := r.report(s).Checks; len(c) != 1 || c[0].Type != api.CheckCommand || *c[0].Healthy || c[0].Probe != api.ProbeLiveness || c[0].Message == "" {
			t.Errorf("checks in the report: %+v", c)
		}
		r.pass(time.Minute)
		if got := healthStory(r, "a"); !strings.HasSuffix(got, "-huh") || strings.Count(got, "h") != 2 {
			t.Errorf("health %s, want changes only", got)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestATaskThatIsNotAliveFails(t *testing.T) {
	t.Parallel()
	inBubble(t, answers(0, 1), func(r *rig) {
		r.runtime.output = "last words"
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) { h.ConsecutiveFailures = 3 }), withGrace(7)), taskInfo("b", 1))
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		last := r.agent.last("a")
		if last.Healthy == nil || *last.Healthy {
			t.Error("the terminal update does not say that the task was not healthy")
		}
		for _, want := range []string{"health check COMMAND failed 3 times in a row, last: exit code 1", "last words"} {
			if !strings.Contains(last.GetMessage(), want) {
				t.Errorf("message %q, want %q in it", last.GetMessage(), want)
			}
		}
		if !r.runtime.has("stop a 7s") {
			t.Errorf("not stopped by its own policy: %v", r.runtime.called())
		}
		if got := healthStory(r, "a"); !strings.HasSuffix(got, "huu") {
			t.Errorf("health %s", got)
		}
		if c := r.report(last).Checks; len(c) != 1 || *c[0].Healthy {
			t.Errorf("checks in the last report: %+v", c)
		}
	})
}

func TestSlowStartWithinGraceIsNoFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, answers(1, 1, 1, 0), func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) { h.ConsecutiveFailures, h.GracePeriodSeconds = 1, 30 })))
		r.pass(30 * time.Second)
		if s := r.agent.last("a"); s.GetState() != mesos.TASK_RUNNING || s.Healthy != nil {
			t.Errorf("within grace: %+v", s)
		}
		r.pass(10 * time.Second)
		if s := r.agent.last("a"); !s.GetHealthy() {
			t.Errorf("after the first success: %+v", s)
		}
	})
}

func TestReadinessDoesNotEndATask(t *testing.T) {
	t.Parallel()
	inBubble(t, answers(0, 1), func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) {
			h.Probe, h.ConsecutiveFailures = api.ProbeReadiness, 2
		})))
		r.pass(16 * time.Second)
		if s := r.agent.last("a"); !s.GetHealthy() {
			t.Error("told at the first failure of two")
		}
		r.pass(time.Hour)
		s := r.agent.last("a")
		if s.Healthy == nil || *s.Healthy || s.GetState() != mesos.TASK_RUNNING || !strings.HasPrefix(s.GetMessage(), "readiness check") {
			t.Errorf("update %+v", s)
		}
	})
}

func TestE11AKillEndsTheCheckUnderWay(t *testing.T) {
	t.Parallel()
	var ended time.Time
	hang := func(r *rig) {
		r.runtime.check = func(ctx context.Context, _ string, _ int) (health.CommandResult, error) {
			<-ctx.Done()
			ended = time.Now()
			return health.CommandResult{Started: true}, ctx.Err()
		}
	}
	inBubble(t, hang, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) { h.ConsecutiveFailures, h.TimeoutSeconds, h.IntervalSeconds = 1, 3600, 7200 })))
		r.pass(6 * time.Second)
		begin := time.Now()
		r.agent.kill("a", 0)
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		if took := ended.Sub(begin); took != 0 {
			t.Errorf("the check ended after %s", took)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED")
		if s := r.agent.last("a"); s.Healthy != nil {
			t.Errorf("healthy %v", *s.Healthy)
		}
	})
}

func TestWhatCannotBeCheckedStaysAsItWas(t *testing.T) {
	t.Parallel()
	setup := func(r *rig) {
		r.runtime.check = func(_ context.Context, _ string, n int) (health.CommandResult, error) {
			if n == 1 {
				return health.CommandResult{Started: true}, nil
			}
			return health.CommandResult{}, errors.New("the engine is away")
		}
	}
	inBubble(t, setup, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(func(h *api.HealthCheck) { h.ConsecutiveFailures = 1 })))
		r.pass(time.Hour)
		if got := healthStory(r, "a"); !strings.HasSuffix(got, "-h") {
			t.Errorf("health %s", got)
		}
		if n := strings.Count(r.log.String(), "the engine is away"); n != 1 {
			t.Errorf("%d notices in the log, want 1", n)
		}
	})
}

func TestHealthFlapsDoNotFillTheQueue(t *testing.T) {
	t.Parallel()
	flap := func(r *rig) {
		r.runtime.check = func(_ context.Context, _ string, n int) (health.CommandResult, error) {
			return health.CommandResult{Started: true, Code: n % 2}, nil
		}
	}
	inBubble(t, flap, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, checkedBy(nil)), taskInfo("b", 1, checkedBy(nil)))
		r.settle()
		r.agent.set(func() { r.agent.subscribeStatus = 503 })
		r.agent.drop()
		r.pass(10 * time.Minute)
		before := len(r.agent.of("a")) + len(r.agent.of("b"))
		r.agent.set(func() { r.agent.subscribeStatus = 0 })
		r.pass(4 * time.Second)
		if n := len(r.agent.of("a")) + len(r.agent.of("b")) - before; n > 6 {
			t.Errorf("%d updates were kept", n)
		}
	})
}

func TestChecksFromOutsideAreNotMadeHere(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, func(s *api.TaskSpec) {
			s.HealthChecks = []api.HealthCheck{{Type: api.CheckRemoteHTTP, HTTP: &api.HTTPCheck{Port: 1}}}
		}))
		r.pass(time.Hour)
		s := r.agent.last("a")
		if s.Healthy != nil || r.report(s).Checks != nil {
			t.Error("the task's health is claimed although nobody looked")
		}
	})
}

func TestACheckThatMakesNoSenseIsTaskError(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, func(s *api.TaskSpec) { s.HealthChecks = []api.HealthCheck{{Type: "UDP"}} }))
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("a", "TASK_ERROR")
		last := r.agent.last("a")
		if m := last.GetMessage(); !strings.Contains(m, `healthChecks[0]: type "UDP" is unknown`) {
			t.Errorf("message %q", m)
		}
	})
}

func TestWhereATaskIsLookedFor(t *testing.T) {
	t.Parallel()
	spec := func(kind api.TaskKind, mode, node string) *api.TaskSpec {
		return &api.TaskSpec{Kind: kind, Network: api.TaskNetwork{Mode: mode}, NodeIP: node}
	}
	for name, c := range map[string]struct {
		t    *task
		want string
	}{
		"process":                     {&task{spec: spec(api.TaskProcess, "", "10.0.0.1")}, "[10.0.0.1 127.0.0.1 ::1]"},
		"process of a loopback agent": {&task{spec: spec(api.TaskProcess, "", "127.0.0.2")}, "[127.0.0.2]"},
		"host":                        {&task{spec: spec(api.TaskContainer, "HOST", "127.0.0.2")}, "[127.0.0.2]"},
		"bridge":                      {&task{spec: spec(api.TaskContainer, "BRIDGE", "127.0.0.2"), started: Started{IPs: []string{"172.17.0.2"}}}, "[172.17.0.2 127.0.0.1 ::1]"},
		"none":                        {&task{spec: spec(api.TaskContainer, "NONE", "127.0.0.2")}, "[127.0.0.1 ::1]"},
		"agent known by name":         {&task{spec: spec(api.TaskProcess, "", "node-1")}, "[127.0.0.1 ::1]"},
		"foreign":                     {&task{foreign: true, spec: spec(api.TaskProcess, "", "127.0.0.2")}, "[127.0.0.1 ::1 127.0.0.2]"},
	} {
		if got := fmt.Sprint(c.t.checkAddresses()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if !slices.Equal(loopback, (&task{}).checkAddresses()) {
		t.Error("the list of loopback addresses was changed")
	}
}
