package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/localmesos"
	mesosagent "tandem/localmesos/agent"
	"tandem/localmesos/master"
	"tandem/scheduler/client"
	"tandem/scheduler/wire"
)

// stack is a whole cluster in this process, with executors as child processes,
// and a scheduler that can be killed and started again on its store.
type stack struct {
	*testing.T
	dir     string
	cluster *localmesos.Cluster
	proxy   *proxy
	client  *client.Client
	stop    func()
}

func startStack(t *testing.T, agents int, masterFlags func(*master.Flags)) *stack {
	t.Helper()
	s := &stack{T: t, dir: t.TempDir()}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := os.Mkdir(s.shared(), 0o755); err != nil {
		t.Fatal(err)
	}
	o := localmesos.Options{
		Dir: s.dir, Agents: make([]localmesos.AgentOptions, agents), Logger: log,
		MasterFlags: func(f *master.Flags) {
			f.AllocationInterval = 50 * time.Millisecond
			if masterFlags != nil {
				masterFlags(f)
			}
		},
		AgentFlags: func(f *mesosagent.Flags) { f.ExecutorReregistrationTimeout = 3 * time.Second },
	}
	var err error
	if s.cluster, err = localmesos.Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Close(); err != nil {
			t.Errorf("end of the cluster: %v", err)
		}
	})
	s.proxy = newProxy(t, s.cluster.MasterURL())
	s.startScheduler()
	t.Cleanup(func() { s.stop() })
	return s
}

// shared is the directory that executors share with the test.
func (s *stack) shared() string { return filepath.Join(s.dir, "shared") }

func (s *stack) startScheduler() {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	sched, err := New(Options{
		Masters: s.proxy.addr(), DataDir: filepath.Join(s.dir, "scheduler"), Listen: "127.0.0.1:0", User: "root",
		ExecutorCommand:    fmt.Sprintf("%s=%s exec %s", executorDir, s.shared(), self),
		ReplaceUnreachable: time.Second, KillRetry: time.Second,
		Logger: slog.New(slog.NewTextHandler(s.Output(), nil)),
	})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sched.Run(ctx) }()
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				s.Errorf("the scheduler ended: %v", err)
			}
		})
	}
	if s.client, err = client.New(sched.Addr().String()); err != nil {
		s.Fatal(err)
	}
}

func (s *stack) apply(doc string) {
	s.Helper()
	if _, err := s.client.Apply(s.Context(), wire.ApplyRequest{Documents: []json.RawMessage{[]byte(doc)}}); err != nil {
		s.Fatal(err)
	}
}

func (s *stack) eventually(what string, ok func() (bool, string)) {
	s.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		good, state := ok()
		if good {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%s: not within 30 s: %s", what, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settled waits until the workload stands as declared with so many instances,
// and the cluster runs just as many tasks.
func (s *stack) settled(what string, n int) {
	s.Helper()
	s.eventually(what, func() (bool, string) {
		o, err := s.client.Object(s.Context(), webRef)
		if err != nil {
			return false, err.Error()
		}
		tasks := len(s.running())
		return o.Status.Settled && o.Status.Running == n && tasks == n, fmt.Sprintf("%+v, %d tasks run", o.Status, tasks)
	})
}

// running are the tasks that the master says are running, of all frameworks.
func (s *stack) running() []string {
	resp, err := http.Get(s.cluster.MasterURL() + "/tasks")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var answer struct {
		Tasks []struct{ ID, State string }
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil {
		return nil
	}
	var out []string
	for _, t := range answer.Tasks {
		if t.State == "TASK_RUNNING" {
			out = append(out, t.ID)
		}
	}
	return out
}

func (s *stack) groups() map[string]wire.Taskgroup {
	s.Helper()
	list, err := s.client.Taskgroups(s.Context(), "")
	if err != nil {
		s.Fatal(err)
	}
	out := map[string]wire.Taskgroup{}
	for _, g := range list {
		out[g.Name] = g
	}
	return out
}

// launches counts the tasks that executors have started.
func (s *stack) launches() int {
	b, err := os.ReadFile(filepath.Join(s.shared(), "launches"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

func TestEndToEndLife(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2, nil)
	s.apply(web(2, `"restartPolicy":{"policy":"OnFailure","interval":1},`, `"ports":[{"name":"p","hostPort":0}],`))
	s.settled("create", 2)
	list, err := s.client.Agents(s.Context())
	if err != nil || len(list) != 2 || list[0].Total.CPUs != 4 || list[0].Used.CPUs == 0 || list[0].Ports == "" || list[0].State != wire.AgentActive {
		t.Errorf("agents: %+v %v", list, err)
	}
	for _, n := range []int{4, 1, 2} {
		if err := s.client.Scale(s.Context(), webRef, n); err != nil {
			t.Fatal(err)
		}
		s.settled(fmt.Sprintf("scale to %d", n), n)
	}
	first := s.groups()["web-0"].ID
	if err := os.WriteFile(filepath.Join(s.shared(), "fail-web-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("restart on failure", func() (bool, string) {
		g := s.groups()["web-0"]
		return g.State == wire.Running && g.ID != first && g.Restarts == 1, fmt.Sprintf("%+v", g)
	})
	s.settled("restart on failure", 2)
	if err := s.client.Restart(s.Context(), webRef); err != nil {
		t.Fatal(err)
	}
	s.settled("restart", 2)
	if err := s.client.Delete(s.Context(), webRef); err != nil {
		t.Fatal(err)
	}
	s.eventually("delete", func() (bool, string) {
		_, err := s.client.Object(s.Context(), webRef)
		tasks := s.running()
		return statusOf(err) == 404 && len(tasks) == 0, fmt.Sprintf("%v, %d tasks run", err, len(tasks))
	})
}

func TestEndToEndSchedulerRestarted(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2, nil)
	s.apply(web(3, "", `"ports":[{"name":"p","hostPort":0}],`))
	s.settled("create", 3)
	before := s.groups()
	for range 3 {
		s.stop()
		s.startScheduler()
		s.settled("restart", 3)
	}
	for name, g := range s.groups() {
		if g.ID != before[name].ID {
			t.Errorf("%s was started again: %s, %s", name, before[name].ID, g.ID)
		}
	}
	if n := s.launches(); n != 3 {
		t.Errorf("%d tasks were started", n)
	}
	// While it is away a task fails, and what is asked for right after is done.
	s.stop()
	if err := os.WriteFile(filepath.Join(s.shared(), "fail-web-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("a task ends", func() (bool, string) { n := len(s.running()); return n == 2, strconv.Itoa(n) })
	s.startScheduler()
	if err := s.client.Scale(s.Context(), webRef, 4); err != nil {
		t.Fatal(err)
	}
	s.settled("after a failure while away", 4)
}

func TestEndToEndMasterRestarted(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2, func(f *master.Flags) { f.Registry = master.RegistryLog })
	s.apply(web(3, "", ""))
	s.settled("create", 3)
	before := s.groups()
	s.cluster.KillMaster()
	if err := s.cluster.StartMaster(s.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled("master restarted", 3)
	for name, g := range s.groups() {
		if g.ID != before[name].ID {
			t.Errorf("%s was started again", name)
		}
	}
	if n := s.launches(); n != 3 {
		t.Errorf("%d tasks were started", n)
	}
}

func TestEndToEndAgentKilledAndBack(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1, nil)
	s.apply(web(2, "", ""))
	s.settled("create", 2)
	before := s.groups()
	if err := s.cluster.Agent(0).Restart(s.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.cluster.Wait(s.Context()); err != nil {
		t.Fatal(err)
	}
	s.settled("agent restarted", 2)
	for name, g := range s.groups() {
		if g.ID != before[name].ID {
			t.Errorf("%s was started again", name)
		}
	}
	if n := s.launches(); n != 2 {
		t.Errorf("%d tasks were started", n)
	}
}

func TestEndToEndAgentLostForGood(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2, func(f *master.Flags) {
		f.AgentPingTimeout, f.MaxAgentPingTimeouts, f.AgentReregisterTimeout = 300*time.Millisecond, 5, time.Second
	})
	s.apply(web(2, `"constraint":{"intersectionItem":[{"unionData":[{"name":"hostname","operate":"MAXPER","type":3,"text":{"value":"2"}}]}]},`, ""))
	s.settled("create", 2)
	lost := s.groups()["web-0"]
	for _, n := range s.cluster.Agents() {
		if n.IP() == lost.Agent {
			n.Kill()
			// Its executor goes on, and is killed when the agent comes back.
			defer func() {
				if err := n.Start(context.Background()); err != nil {
					t.Error(err)
				}
				s.settled("the agent is back", 2)
			}()
		}
	}
	s.eventually("replaced elsewhere", func() (bool, string) {
		g := s.groups()["web-0"]
		return g.State == wire.Running && g.Agent != lost.Agent, fmt.Sprintf("%+v", g)
	})
}

func TestEndToEndFrameworkRemoved(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1, nil)
	s.apply(web(2, "", ""))
	s.settled("create", 2)
	before := s.groups()
	var state struct{ Frameworks []struct{ ID string } }
	resp, err := http.Get(s.cluster.MasterURL() + "/frameworks")
	if err != nil {
		t.Fatal(err)
	}
	err = json.NewDecoder(resp.Body).Decode(&state)
	resp.Body.Close()
	if err != nil || len(state.Frameworks) != 1 {
		t.Fatalf("%+v %v", state, err)
	}
	resp, err = http.PostForm(s.cluster.MasterURL()+"/teardown", url.Values{"frameworkId": {state.Frameworks[0].ID}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("teardown: %s", resp.Status)
	}
	s.eventually("launched again", func() (bool, string) {
		g := s.groups()
		good := true
		for name := range before {
			good = good && g[name].State == wire.Running && g[name].ID != before[name].ID
		}
		return good, fmt.Sprintf("%+v", g)
	})
	s.settled("as a new framework", 2)
}

func TestEndToEndDroppedConnections(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2, nil)
	s.apply(web(1, "", ""))
	s.settled("create", 1)
	for i := range 8 {
		n := 1 + i%4
		if err := s.client.Scale(s.Context(), webRef, n); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*7) * time.Millisecond) // at another step of the work each time
		s.proxy.drop()
		s.settled(fmt.Sprintf("scale to %d with a dropped connection", n), n)
	}
}

// proxy passes TCP connections on until they are dropped.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    []net.Conn
	workers  sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(target, "http://")}
	p.workers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.workers.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); p.drop(); p.workers.Wait() })
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) pass(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	p.mu.Lock()
	p.conns = append(p.conns, in, out)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(out, in); out.Close() }()
	_, _ = io.Copy(in, out)
	in.Close()
	<-done
}

func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
