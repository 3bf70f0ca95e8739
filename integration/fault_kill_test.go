package integration

import (
	"testing"
)

// A task that is killed from outside fails with what is known of its end; its
// taskgroup is replaced, and nothing of it is left.

const killedBySignal = `(?i)signal|killed|137`

func TestFaultProcessKilled(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	now := f.launch()
	f.killTask(now.task(t, "host", "fg"))
	now = f.replaced("the process was killed", now, killedBySignal, "host")
	f.killTask(now.task(t, "bridge", "fg"))
	f.replaced("the process was killed", now, killedBySignal, "bridge")
	f.finish()
}

func TestFaultProcessWithPidFileKilled(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	now := f.launch()
	f.killTask(now.task(t, "host", "bg"))
	now = f.replaced("the process was killed", now, killedBySignal, "host")
	f.killTask(now.task(t, "bridge", "bg"))
	f.replaced("the process was killed", now, killedBySignal, "bridge")
	f.finish()
}

func TestFaultContainerKilled(t *testing.T) {
	t.Parallel()
	needEngine(t)
	f := startFault(t, faultOptions{})
	now := f.launch()
	f.killTask(now.task(t, "host", "web"))
	now = f.replaced("the container's process was killed", now, killedBySignal, "host")
	f.killTask(now.task(t, "bridge", "web"))
	now = f.replaced("the container's process was killed", now, killedBySignal, "bridge")
	for _, workload := range []string{"host", "bridge"} {
		if err := harness.engine.ContainerKill(t.Context(), now.task(t, workload, "web").Container, "KILL"); err != nil {
			t.Fatal(err)
		}
	}
	f.replaced("the containers were killed by the engine", now, killedBySignal, "host", "bridge")
	f.finish()
}

func TestFaultExecutorKilled(t *testing.T) {
	t.Parallel()
	f := startFault(t, faultOptions{})
	now := f.launch()
	f.killExecutor(now.task(t, "host", "fg").Group)
	now = f.replaced("the executor was killed", now, "(?i)executor", "host")
	f.killExecutor(now.task(t, "bridge", "fg").Group)
	f.replaced("the executor was killed", now, "(?i)executor", "bridge")
	f.finish()
}
