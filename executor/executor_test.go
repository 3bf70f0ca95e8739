package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/executor/agentlink"
)

// rig is an executor between a test's agent and a test's runtime, in a bubble
// of synctest: time passes only when everything waits.
type rig struct {
	*testing.T
	outer   *testing.T
	agent   *testAgent
	runtime *scripted
	// dress, if set, gives the runtime abilities.
	dress func(*scripted) Runtime
	// make, if set, is called before a runtime is made.
	make func() error
	// warm are the kinds that get ready ahead.
	warm   []api.TaskKind
	exec   *Executor
	cfg    Config
	cancel context.CancelFunc
	result error
	done   chan struct{}
	log    *logBuffer
}

// logBuffer collects log lines and shows them when a test fails.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// inBubble runs body with an executor that has subscribed, unless body changes
// that through setup; the executor is stopped and waited for at the end.
func inBubble(outer *testing.T, setup func(*rig), body func(*rig)) {
	outer.Helper()
	synctest.Test(outer, func(t *testing.T) {
		r := &rig{T: t, outer: outer, agent: newTestAgent(), runtime: newScripted(), done: make(chan struct{}), log: &logBuffer{}}
		r.cfg = Config{
			FrameworkID: "framework-1", ExecutorID: "0.web.test.local.1700000000", Endpoint: "127.0.0.1:5051",
			Sandbox: t.TempDir(), ShutdownGrace: 5 * time.Second,
			Checkpoint: true, RecoveryTimeout: 15 * time.Minute, BackoffMax: 2 * time.Second,
		}
		if setup != nil {
			setup(r)
		}
		listener := newPipes()
		server := &http.Server{Handler: r.agent}
		served := make(chan struct{})
		go func() { defer close(served); server.Serve(listener) }()
		link := agentlink.New(agentlink.Config{
			Endpoint: r.cfg.Endpoint, FrameworkID: r.cfg.FrameworkID, ExecutorID: r.cfg.ExecutorID, Token: r.cfg.Token,
			Dial: func(context.Context) (net.Conn, error) { return listener.dial() },
		})
		newRuntime := func() (Runtime, error) {
			if r.make != nil {
				if err := r.make(); err != nil {
					return nil, err
				}
			}
			if r.dress != nil {
				return r.dress(r.runtime), nil
			}
			return r.runtime, nil
		}
		r.exec = New(Options{
			Config: r.cfg, Link: link,
			Runtimes: map[api.TaskKind]func() (Runtime, error){api.TaskContainer: newRuntime, api.TaskProcess: newRuntime},
			Warm:     r.warm,
			Log:      slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		ctx, cancel := context.WithCancel(t.Context())
		r.cancel = cancel
		go func() { defer close(r.done); r.result = r.exec.Run(ctx) }()
		defer func() { r.finish(); server.Close(); <-served }()
		synctest.Wait()
		body(r)
	})
}

// finish ends the executor and looks at what it logged.
func (r *rig) finish() {
	r.cancel()
	<-r.done
	if strings.Contains(r.log.String(), "that cannot be") {
		r.Error("an event came that the table holds to be impossible")
	}
	if r.Failed() || r.outer.Failed() {
		r.Log(r.log.String())
	}
}

// settle lets everything run until nothing moves without time passing.
func (r *rig) settle() { synctest.Wait() }

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ended waits for the end of Run.
func (r *rig) ended() error {
	r.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Hour):
		r.Fatal("the executor has not ended within an hour")
	}
	return r.result
}

// running tells whether Run has not returned yet.
func (r *rig) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

func (r *rig) wantStates(id string, want ...string) {
	r.Helper()
	if got := r.agent.states(id); strings.Join(got, " ") != strings.Join(want, " ") {
		r.Errorf("states of %s: %v, want %v", id, got, want)
	}
}

func (r *rig) wantCalls(want ...string) {
	r.Helper()
	if got := r.runtime.called(); strings.Join(got, "; ") != strings.Join(want, "; ") {
		r.Errorf("runtime was asked\n%s\nwant\n%s", strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

// report decodes what an update carries for the scheduler.
func (r *rig) report(s mesos.TaskStatus) api.TaskReport {
	r.Helper()
	var report api.TaskReport
	if err := json.Unmarshal(s.Data, &report); err != nil {
		r.Fatalf("data of an update: %v", err)
	}
	return report
}

// taskInfo is a task of kind process; change may alter its specification.
func taskInfo(id string, position int, change ...func(*api.TaskSpec)) mesos.TaskInfo {
	s := &api.TaskSpec{
		Version: api.TaskSpecVersion, Name: "task-" + id, Kind: api.TaskProcess, Position: position, NodeIP: "127.0.0.1",
		Taskgroup: api.TaskgroupRef{ID: "0.web.test.local.1700000000", Name: "web-0", Application: "web", Namespace: "test", Cluster: "local"},
		Process:   &api.ProcessTask{ProcName: "sleep", WorkPath: "/tmp", StartCmd: "sleep 100"},
		Network:   api.TaskNetwork{Mode: "HOST"},
	}
	for _, f := range change {
		f(s)
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return mesos.TaskInfo{Name: s.Name, TaskID: mesos.TaskID{Value: id}, AgentID: mesos.AgentID{Value: "agent-1"}, Data: data}
}

// bridged makes a task a container with a network of its own.
func bridged(s *api.TaskSpec) {
	s.Kind, s.Process = api.TaskContainer, nil
	s.Container = &api.ContainerTask{Image: "test"}
	s.Network = api.TaskNetwork{Mode: "BRIDGE"}
}

func withGrace(seconds int64) func(*api.TaskSpec) {
	return func(s *api.TaskSpec) { s.KillPolicy.GracePeriodSeconds = seconds }
}

func TestLaunchGroupPreparesAllThenCreatesAllThenStartsInOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.prepare = func(ctx context.Context, x *Task, _ func(string)) error {
			if x.ID == "a" {
				time.Sleep(time.Minute)
			}
			return ctx.Err()
		}
		r.agent.launch(taskInfo("b", 1), taskInfo("a", 0))
		r.settle()
		r.wantStates("b", "TASK_STARTING")
		if r.runtime.has("create b") {
			t.Error("b was created before a was prepared")
		}
		r.pass(time.Minute)
		calls := r.runtime.called()
		if got := strings.Join(calls[2:6], "; "); got != "create a; create b; start a; start b" && got != "create a; create b; start a; wait a" {
			t.Errorf("order of calls: %v", calls)
		}
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
	})
}

func TestTasksThatAllFinishEndTheExecutor(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.agent.launch(taskInfo("a", 0), taskInfo("b", 1))
		r.settle()
		r.runtime.exit("a", Exit{Known: true})
		r.settle()
		r.wantStates("a", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING")
		if !r.running() {
			r.Fatal("the executor ended although b runs")
		}
		r.runtime.exit("b", Exit{Known: true})
		if err := r.ended(); err != nil {
			t.Error(err)
		}
		r.wantStates("b", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
		for _, call := range []string{"stop a 1s", "remove a", "stop b 1s", "remove b"} {
			if !r.runtime.has(call) {
				t.Errorf("runtime was not asked to %q", call)
			}
		}
	})
}

func TestShutdownMayComeFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.agent.first = shutdownOnly() }, func(r *rig) {
		if err := r.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestNoTaskEverComes(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.pass(idleLimit + time.Second)
		if err := r.ended(); err == nil || !strings.Contains(err.Error(), "no task") {
			t.Errorf("error %v, want one that says that no task came", err)
		}
	})
}

func TestEveryUpdateCarriesNetworkAndReport(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.runtime.ips = []string{"172.17.0.5"} }, func(r *rig) {
		r.agent.launch(taskInfo("a", 0, bridged, func(s *api.TaskSpec) {
			s.Ports = []api.TaskPort{{Name: "http", ContainerPort: 80, HostPort: 61999, Protocol: "tcp"}}
		}))
		r.settle()
		r.runtime.exit("a", Exit{Known: true})
		r.settle()
		uuids := map[string]bool{}
		for _, s := range r.agent.of("a") {
			infos := s.GetContainerStatus().GetNetworkInfos()
			if len(infos) != 1 || infos[0].GetName() != "bridge" {
				t.Errorf("%s: network_infos %v, want one named bridge", s.GetState(), infos)
				continue
			}
			if ips := infos[0].IPAddresses; s.GetState() != mesos.TASK_STARTING && (len(ips) != 1 || ips[0].GetIPAddress() != "172.17.0.5") {
				t.Errorf("%s: addresses %v", s.GetState(), ips)
			}
			if m := infos[0].PortMappings; len(m) != 1 || m[0].HostPort != 61999 || m[0].ContainerPort != 80 {
				t.Errorf("%s: port mappings %v", s.GetState(), m)
			}
			if len(s.UUID) != 16 || uuids[string(s.UUID)] {
				t.Errorf("%s: uuid %x is not 16 new bytes", s.GetState(), s.UUID)
			}
			uuids[string(s.UUID)] = true
			if s.GetSource() != mesos.SOURCE_EXECUTOR || s.ExecutorID.GetValue() != r.cfg.ExecutorID || s.AgentID.GetValue() != "agent-1" {
				t.Errorf("%s: source %s, executor %v, agent %v", s.GetState(), s.GetSource(), s.ExecutorID, s.AgentID)
			}
			if rep := r.report(s); rep.Version != api.TaskSpecVersion || rep.Kind != api.TaskContainer || len(rep.Ports) != 1 {
				t.Errorf("%s: report %+v", s.GetState(), rep)
			}
		}
		last := r.report(r.agent.last("a"))
		if last.ExitCode == nil || *last.ExitCode != 0 || last.Pid != 42 || last.StartedAt.IsZero() || last.FinishedAt.IsZero() {
			t.Errorf("terminal report %+v lacks exit code, pid or times", last)
		}
		if p := last.Ports[0]; p.Name != "http" || p.HostPort != 61999 || p.ContainerPort != 80 || p.Protocol != "tcp" {
			t.Errorf("ports of the report %+v", last.Ports)
		}
		if last.ImageDigest != "sha256:d19e57" || last.ContainerID != "c0ffee" || len(last.IPs) != 1 || last.IPs[0] != "172.17.0.5" || last.Sandbox == "" {
			t.Errorf("terminal report %+v lacks digest, container, address or sandbox", last)
		}
	})
}

// TestProgressOfACreationIsToldNowAndThen: an archive is unpacked while the task is created,
// which may take longer than a container does.
func TestProgressOfACreationIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.create = func(ctx context.Context, t *Task) error {
			for i := range 3000 {
				t.Progress("unpacking a.tar: " + strconv.Itoa(i) + " entries")
				time.Sleep(100 * time.Millisecond)
			}
			return ctx.Err()
		}
		info := taskInfo("a", 0)
		spec := api.TaskSpec{}
		if err := json.Unmarshal(info.Data, &spec); err != nil {
			t.Fatal(err)
		}
		spec.Kind, spec.Container = api.TaskProcess, nil
		spec.Process = &api.ProcessTask{StartCmd: "true", WorkPath: "/w", URIs: []api.ProcessURI{{Value: "http://h/a.tar", OutputDir: "/w"}}}
		var err error
		if info.Data, err = json.Marshal(&spec); err != nil {
			t.Fatal(err)
		}
		r.agent.launch(info)
		r.pass(6 * time.Minute)
		n, running := 0, false
		for _, s := range r.agent.of("a") {
			if s.GetState() == mesos.TASK_STARTING && strings.HasPrefix(s.GetMessage(), "unpacking a.tar: ") {
				n++
			}
			running = running || s.GetState() == mesos.TASK_RUNNING
		}
		if n < 50 || n > 110 || !running {
			t.Errorf("%d TASK_STARTING during a creation of five minutes, want about one in 3 s; running: %v", n, running)
		}
	})
}

func TestProgressOfAPullIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.runtime.prepare = func(ctx context.Context, _ *Task, progress func(string)) error {
			for i := range 300 {
				progress("pulling " + strings.Repeat("#", i%40))
				time.Sleep(100 * time.Millisecond)
			}
			return ctx.Err()
		}
		r.agent.launch(taskInfo("a", 0))
		r.pass(time.Minute)
		n := 0
		for _, s := range r.agent.of("a") {
			if s.GetState() == mesos.TASK_STARTING {
				n++
			}
		}
		if n < 5 || n > 13 {
			t.Errorf("%d TASK_STARTING during a preparation of 30 s, want about one in 3 s", n)
		}
	})
}
