package cli

import (
	"testing"

	"tandem/api"
	"tandem/scheduler/wire"
)

func TestHealthIsShown(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]wire.Task{
		"-":         {State: "RUNNING"},
		"healthy":   {State: "RUNNING", Healthy: new(true)},
		"unhealthy": {State: "FAILED", Healthy: new(false)},
	} {
		if got := healthCell(task).Text; got != want {
			t.Errorf("%+v: %s, want %s", task, got, want)
		}
	}
	if c := healthCell(wire.Task{State: "KILLED", Healthy: new(true)}); c.Text != "-" {
		t.Errorf("a task that was killed is %s", c.Text)
	}
	for want, c := range map[string]api.CheckReport{
		"TCP (liveness): nothing known yet":        {Type: "TCP", Probe: "liveness"},
		"TCP (readiness): healthy":                 {Type: "TCP", Probe: "readiness", Healthy: new(true)},
		"HTTP (liveness): unhealthy: answered 503": {Type: "HTTP", Probe: "liveness", Healthy: new(false), Message: "answered 503"},
	} {
		if got := checkText(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
