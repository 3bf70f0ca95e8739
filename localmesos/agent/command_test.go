package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/testkit"
	"tandem/localmesos/internal/ssl/ssltest"
	"tandem/localmesos/link"
)

func TestCommandTask(t *testing.T) {
	t.Parallel()
	m, a := registered(t, func(f *Flags) { f.ExecutorEnvironment = map[string]string{"AGENT_TEST_EXECUTOR": "command"} })
	launch := func(id, command string) {
		r := runOf(false, id, "", id)
		r.Generated = true
		r.Executor = mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: id}, FrameworkID: &mesos.FrameworkID{Value: "f1"}}
		value := "of the task"
		r.Tasks[0].Executor = nil
		r.Tasks[0].Command = &mesos.CommandInfo{Value: &command, Environment: &mesos.Environment{
			Variables: []mesos.Environment_Variable{{Name: "OF_TASK", Value: &value}}}}
		m.run(r)
		m.ack(m.update(id, mesos.TASK_STARTING))
		m.ack(m.update(id, mesos.TASK_RUNNING))
	}
	launch("good", `echo "$OF_TASK $MESOS_TASK_ID ${MESOS_SLAVE_ID-none}"`)
	if u := m.update("good", mesos.TASK_FINISHED); u.Status.GetMessage() != "Command exited with status 0" {
		t.Errorf("message %q", u.Status.GetMessage())
	} else {
		m.ack(u)
	}
	if out := fileWith(t, filepath.Join(sandboxOf(t, a, "good"), "stdout"), "\n"); out != "of the task good none\n" {
		t.Errorf("stdout: %q", out)
	}
	launch("bad", "exit 4")
	if u := m.update("bad", mesos.TASK_FAILED); u.Status.GetMessage() != "Command exited with status 4" || u.Status.GetReason() != mesos.REASON_COMMAND_EXECUTOR_FAILED {
		t.Errorf("%s %q", u.Status.GetReason(), u.Status.GetMessage())
	}
	launch("long", "sleep 600")
	a.loop.do(a.ctx, func() {
		used, _ := a.frameworks["f1"].executors["long"].json()["resources"].(object)
		if cpus := used["cpus"]; fmt.Sprint(cpus) != "0.2" {
			t.Errorf("allocated cpus: %v", cpus)
		}
	})
	m.kill("long")
	if u := m.update("long", mesos.TASK_KILLED); u.Status.GetMessage() != "Command terminated with signal Terminated" {
		t.Errorf("message %q", u.Status.GetMessage())
	}
	eventually(t, "the good one is history", func() bool {
		gone := false
		a.loop.do(a.ctx, func() { gone = a.frameworks["f1"].executors["good"] == nil })
		return gone
	})
	if !m.without(func(c link.Call) bool { return c.Type == link.CallExited }) {
		t.Error("the master was told of the end of an executor that it does not know")
	}
}

// The command executor speaks by whatever the agent wants it to.
func TestCommandExecutorByAllWays(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Flags){
		"token": func(f *Flags) { withKey(t, f) },
		"socket": func(f *Flags) {
			f.HTTPExecutorDomainSockets, f.DomainSocketLocation = true, filepath.Join(testkit.PublicDir(t), "agent.sock")
		},
		"TLS": func(f *Flags) { f.SSL = ssltest.Certificate(t); withKey(t, f) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t)
			f := testFlags(t, m)
			change(&f)
			f.ExecutorEnvironment = map[string]string{"AGENT_TEST_EXECUTOR": "command"}
			a := startAgent(t, f)
			waitRegistered(t, a)
			tool := filepath.Join(t.TempDir(), "tool")
			if err := os.WriteFile(tool, []byte("#!/bin/sh\nenv | grep -c -e TOKEN -e SSL_ -e DOMAIN_SOCKET\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			command, yes := "./tool", true
			for _, id := range []string{"t1", "t2"} {
				r := runOf(false, id, "", id)
				r.Generated, r.Executor = true, mesos.ExecutorInfo{ExecutorID: mesos.ExecutorID{Value: id}, FrameworkID: &mesos.FrameworkID{Value: "f1"}}
				r.Tasks[0].Executor, r.Tasks[0].Command = nil, &mesos.CommandInfo{Value: &command,
					URIs: []mesos.CommandInfo_URI{{Value: tool, Executable: &yes, Cache: &yes}}}
				m.run(r)
				m.ack(m.update(id, mesos.TASK_STARTING))
				m.ack(m.update(id, mesos.TASK_RUNNING))
				u := m.update(id, mesos.TASK_FAILED) // by grep, which finds nothing
				if text := fileWith(t, filepath.Join(sandboxOf(t, a, id), "stdout"), "\n"); text != "0\n" {
					t.Errorf("the task sees what is the executor's: %s", text)
				}
				m.ack(u)
			}
			v := map[string]float64{}
			a.loop.do(a.ctx, func() { v = a.metrics() })
			if v["containerizer/fetcher/task_fetches_succeeded"] != 2 || v["containerizer/fetcher/cache_size_used_bytes"] < 10 {
				t.Errorf("metrics: %v", v)
			}
		})
	}
}
