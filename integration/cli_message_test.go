package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A container gets a signal and other resources without a restart, and so does
// nothing that is not named.
func TestCLISignalAndResizeOfAContainer(t *testing.T) {
	needEngine(t)
	s := startLocal(t)
	s.ok("apply", "--wait", "-f", file(t, "a.json", `{"apiVersion":"v4","kind":"application","metadata":{"name":"box","namespace":"test"},
  "restartPolicy":{"policy":"Never"},"killPolicy":{"gracePeriod":1},
  "spec":{"instance":2,"template":{"spec":{"networkMode":"HOST","containers":[{"image":"`+harness.image+`","imagePullPolicy":"Never",
  "command":"/bin/sh","args":["-c","trap 'echo got it' USR1; echo up; while :; do sleep 0.1; done"],
  "resources":{"requests":{"cpu":"0.1","memory":"16"},"limits":{"cpu":"0.5","memory":"32"}}}]}}}}`))
	var list struct {
		Items []struct {
			Tasks []struct{ Report struct{ ContainerID string } }
		}
	}
	if err := json.Unmarshal([]byte(s.ok("get", "taskgroups", "-n", "test", "-o", "json")), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v, %d taskgroups", err, len(list.Items))
	}
	inspect := func(i int) (pid int, started string, cpu, memory int64) {
		c, err := harness.engine.ContainerInspect(t.Context(), list.Items[i].Tasks[0].Report.ContainerID)
		if err != nil {
			t.Fatal(err)
		}
		return c.State.Pid, c.State.StartedAt, c.HostConfig.CPUQuota, c.HostConfig.Memory
	}
	pid, started, _, _ := inspect(0)

	for _, name := range []string{"box-0", "box-1"} {
		eventually(t, 20*time.Second, "the trap of "+name, func() bool { return strings.Contains(s.ok("logs", name, "-n", "test"), "up") })
	}
	if out := s.ok("signal", "box-0", "SIGUSR1", "-n", "test"); !strings.Contains(out, "signal SIGUSR1 sent") {
		t.Errorf("signal: %s", out)
	}
	eventually(t, 20*time.Second, "the signal", func() bool { return strings.Contains(s.ok("logs", "box-0", "-n", "test"), "got it") })
	var told struct {
		Items []struct {
			Taskgroup string
			Resources struct{ Requests, Limits struct{ CPUs, MemMB float64 } }
		}
	}
	out := s.ok("resize", "box-0", "-n", "test", "--limit-memory", "64", "--limit-cpu", "0.25", "-o", "json")
	if err := json.Unmarshal([]byte(out), &told); err != nil || len(told.Items) != 1 || told.Items[0].Taskgroup != "box-0" ||
		told.Items[0].Resources.Limits.MemMB != 64 || told.Items[0].Resources.Limits.CPUs != 0.25 || told.Items[0].Resources.Requests.MemMB != 16 {
		t.Errorf("resize: %v\n%s", err, out)
	}
	if p, at, cpu, memory := inspect(0); p != pid || at != started || cpu != 25_000 || memory != 64<<20 {
		t.Errorf("container has pid %d (was %d), started %s (was %s), quota %d, memory %d", p, pid, at, started, cpu, memory)
	}
	// Its sibling was not named.
	if _, _, cpu, memory := inspect(1); cpu != 50_000 || memory != 32<<20 {
		t.Errorf("the other container has quota %d, memory %d", cpu, memory)
	}
	if out := s.ok("logs", "box-1", "-n", "test"); strings.Contains(out, "got it") {
		t.Errorf("the other container got the signal: %s", out)
	}
	refused(t, s.tandem("signal", "box-0", "SIGNOTHING", "-n", "test"), 6, `signal "SIGNOTHING" is unknown`)
	refused(t, s.tandem("resize", "box-0", "-n", "test", "--request-cpu", "3", "--limit-cpu", "4"), 6, "more than")
	refused(t, s.tandem("resize", "box-0", "-n", "test", "--limit-memory", "8"), 6, "change both")
	refused(t, s.tandem("signal", "box-7", "HUP", "-n", "test"), 4, "box-7")
	if out := s.ok("signal", "application/box", "USR1", "-n", "test"); strings.Count(out, "sent") != 2 {
		t.Errorf("signal to all: %s", out)
	}
	eventually(t, 20*time.Second, "the signal at the other", func() bool { return strings.Contains(s.ok("logs", "box-1", "-n", "test"), "got it") })
}
