package executor

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/executor/health"
)

func plainTask(id string) mesos.TaskInfo {
	return mesos.TaskInfo{
		Name: id, TaskID: mesos.TaskID{Value: id}, AgentID: mesos.AgentID{Value: "agent-1"},
		Command: &mesos.CommandInfo{Value: new("sleep 100")},
	}
}

func TestPlainHealthCheckEndsTheTask(t *testing.T) {
	t.Parallel()
	inBubble(t, answers(0, 1), func(r *rig) {
		info := plainTask("a")
		info.HealthCheck = &mesos.HealthCheck{Type: mesos.HealthCheck_COMMAND, Command: &mesos.CommandInfo{Value: new("test -f up")}}
		r.agent.launch(info)
		begin := time.Now()
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
		// Mesos's defaults: 15 s of delay, every 10 s, three failures.
		if took := time.Since(begin); took < 45*time.Second || took > 47*time.Second {
			t.Errorf("ended after %s", took)
		}
		if !r.runtime.has("check a [/bin/sh -c test -f up]") {
			t.Errorf("%v", r.runtime.called())
		}
		if last := r.agent.last("a"); !strings.Contains(last.GetMessage(), "failed 3 times in a row") || last.Healthy == nil || *last.Healthy {
			t.Errorf("update %+v", last)
		}
	})
}

func TestPlainCheckOnlyTells(t *testing.T) {
	t.Parallel()
	setup := func(r *rig) {
		r.runtime.check = func(ctx context.Context, _ string, n int) (health.CommandResult, error) {
			switch n {
			case 1, 2:
				return health.CommandResult{Started: true, Code: 7}, nil
			case 3:
				<-ctx.Done()
				return health.CommandResult{Started: true}, ctx.Err()
			}
			return health.CommandResult{Started: true}, nil
		}
	}
	inBubble(t, setup, func(r *rig) {
		info := plainTask("a")
		info.Check = &mesos.CheckInfo{
			Type:         mesos.CheckInfo_COMMAND,
			DelaySeconds: new(1.5), IntervalSeconds: new(2.0), TimeoutSeconds: new(0.5),
			Command: &mesos.CheckInfo_Command{Command: mesos.CommandInfo{Shell: new(false), Value: new("/probe"), Arguments: []string{"probe", "-v"}}},
		}
		r.agent.launch(info)
		r.settle()
		first := r.agent.last("a")
		if s := first.CheckStatus; first.GetState() != mesos.TASK_RUNNING || s == nil || *s.Type != mesos.CheckInfo_COMMAND || s.Command == nil || s.Command.ExitCode != nil {
			t.Errorf("first update: %+v", first)
		}
		r.pass(time.Minute)
		var codes []int32
		for _, u := range r.agent.of("a") {
			if u.GetReason() != mesos.REASON_TASK_CHECK_STATUS_UPDATED {
				continue
			}
			code := int32(-1)
			if u.CheckStatus.Command.ExitCode != nil {
				code = *u.CheckStatus.Command.ExitCode
			}
			codes = append(codes, code)
			if u.Healthy != nil || u.GetState() != mesos.TASK_RUNNING {
				t.Errorf("update %+v", u)
			}
		}
		if !slices.Equal(codes, []int32{7, -1, 0}) {
			t.Errorf("told %v, want the changes", codes)
		}
		if !r.runtime.has("check a [/probe -v]") {
			t.Errorf("%v", r.runtime.called())
		}
	})
}

func TestPlainChecksThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*mesos.TaskInfo){
		"health_check: type HTTP is unknown here or lacks its part": func(i *mesos.TaskInfo) { i.HealthCheck = &mesos.HealthCheck{Type: mesos.HealthCheck_HTTP} },
		"health_check: port 0 is no port": func(i *mesos.TaskInfo) {
			i.HealthCheck = &mesos.HealthCheck{Type: mesos.HealthCheck_TCP, TCP: &mesos.HealthCheck_TCPCheckInfo{}}
		},
		"check: the command is empty": func(i *mesos.TaskInfo) {
			i.Check = &mesos.CheckInfo{Type: mesos.CheckInfo_COMMAND, Command: &mesos.CheckInfo_Command{}}
		},
		"check: type UNKNOWN": func(i *mesos.TaskInfo) { i.Check = &mesos.CheckInfo{} },
	} {
		info := plainTask("a")
		change(&info)
		if _, err := foreignSpec(&info, "e"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

func TestPlainChecksAreRead(t *testing.T) {
	t.Parallel()
	info := plainTask("a")
	info.HealthCheck = &mesos.HealthCheck{
		Type: mesos.HealthCheck_HTTP, HTTP: &mesos.HealthCheck_HTTPCheckInfo{Port: 80, Path: new("/h"), Scheme: new("https")},
		ConsecutiveFailures: new(uint32(0)), GracePeriodSeconds: new(2.5), TimeoutSeconds: new(0.0),
	}
	info.Check = &mesos.CheckInfo{Type: mesos.CheckInfo_TCP, TCP: &mesos.CheckInfo_Tcp{Port: 81}}
	list, err := foreignChecks(&info)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if c := list[0]; c.String() != "HTTP 80/h" || c.Scheme != "https" || c.Limit != 1 || c.Grace != 2500*time.Millisecond || c.Timeout != time.Hour || c.Kind != health.Liveness {
		t.Errorf("%+v", c)
	}
	if c := list[1]; c.String() != "TCP 81" || c.Kind != health.Observation || c.Delay != 15*time.Second || c.Timeout != 20*time.Second {
		t.Errorf("%+v", c)
	}
	for s, want := range map[float64]time.Duration{-1: 0, math.Inf(1): 10 * 365 * 24 * time.Hour, 0.25: 250 * time.Millisecond} {
		if got := mesosSeconds(s); got != want {
			t.Errorf("%v is %v, want %v", s, got, want)
		}
	}
	if mesosSeconds(math.NaN()) != 0 {
		t.Error("not a number is a time")
	}
	for k, v := range map[mesos.CheckInfo_Type]int{mesos.CheckInfo_HTTP: 204, mesos.CheckInfo_TCP: 1, mesos.CheckInfo_UNKNOWN: 0} {
		s := checkStatus(&mesos.CheckInfo{Type: k}, &v)
		switch {
		case k == mesos.CheckInfo_HTTP && s.HTTP.GetStatusCode() == 204, k == mesos.CheckInfo_TCP && s.TCP.GetSucceeded(), k == mesos.CheckInfo_UNKNOWN && s == nil:
		default:
			t.Errorf("%s: %+v", k, s)
		}
	}
}
