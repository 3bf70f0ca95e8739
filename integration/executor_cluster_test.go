package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/api"
	"tandem/internal/testkit"
	"tandem/localmesos/agent"
	"tandem/localmesos/master"
	session "tandem/scheduler/mesos"
)

// cluster is a master and an agent in this process, and a framework that does
// what a test says. Executors are real processes.
type cluster struct {
	t          *testing.T
	dir        string
	master     *master.Master
	agent      *agent.Agent
	agentFlags agent.Flags
	session    *session.Session
	daemon     *daemon
	log        *lockedBuffer
	// executorEnv is put before the command of new executors, such as "NAME=value".
	executorEnv string

	mu       sync.Mutex
	id       string
	offers   []mesos.Offer
	statuses map[string][]mesos.TaskStatus
	failures []session.Failure
}

// options of a cluster.
type clusterOptions struct {
	checkpoint bool
	// backoff is the limit of the executors' delays before they subscribe again; 0 means 2 s.
	backoff time.Duration
	// noDaemon leaves the process daemon out.
	noDaemon bool
	// agent changes the agent's flags before it starts; may be nil.
	agent func(*agent.Flags)
}

func startCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: testkit.ShortDir(t), log: &lockedBuffer{}, statuses: map[string][]mesos.TaskStatus{}}
	if !o.noDaemon {
		c.daemon = startDaemon(t, c.dir)
	}
	log := slog.New(slog.NewTextHandler(c.log, nil))
	mf := master.DefaultFlags()
	mf.Port, mf.Registry, mf.AllocationInterval, mf.Logger = 0, master.RegistryInMemory, 50*time.Millisecond, log
	var err error
	if c.master, err = master.New(mf); err != nil {
		t.Fatal(err)
	}
	if err := c.master.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.master.Close() })
	c.agentFlags = agent.DefaultFlags()
	c.agentFlags.IP, c.agentFlags.Port, c.agentFlags.Hostname = "127.0.0.1", 0, "127.0.0.1"
	c.agentFlags.Master, c.agentFlags.WorkDir = c.master.URL(), filepath.Join(c.dir, "agent")
	c.agentFlags.Resources = "cpus:8;mem:8192;disk:8192;ports:[31000-32000]"
	c.agentFlags.CommandExecutor = []string{"/bin/false"}
	c.agentFlags.Logger = log
	if o.backoff > 0 {
		c.agentFlags.ExecutorReregistrationTimeout = o.backoff
	}
	if o.agent != nil {
		o.agent(&c.agentFlags)
	}
	c.startAgent()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second*patience)
		defer cancel()
		if err := c.agent.Shutdown(ctx); err != nil {
			t.Errorf("shut the agent down: %v", err)
		}
		c.readSandboxes()
		if t.Failed() {
			t.Log("master and agent:\n" + c.log.String())
		}
	})
	masters, err := session.ParseMasters(c.master.Address())
	if err != nil {
		t.Fatal(err)
	}
	c.subscribe(masters, o, log)
	return c
}

// startAgent starts an agent on the work directory, also again after Kill.
func (c *cluster) startAgent() {
	c.t.Helper()
	a, err := agent.New(c.agentFlags)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := a.Start(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	c.agent = a
	if u, err := url.Parse(a.URL()); err == nil {
		fmt.Sscanf(u.Port(), "%d", &c.agentFlags.Port)
	}
}

func (c *cluster) subscribe(masters []*url.URL, o clusterOptions, log *slog.Logger) {
	c.t.Helper()
	timeout := 60.0
	c.session = session.New(session.Config{
		Masters: masters, Logger: log, MinBackoff: 20 * time.Millisecond,
		Framework: mesos.FrameworkInfo{
			User: "root", Name: "integration", Roles: []string{"*"}, FailoverTimeout: &timeout, Checkpoint: &o.checkpoint,
			Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}, {Type: mesos.FrameworkInfo_Capability_TASK_KILLING_STATE}},
		},
	}, c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.session.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
}

// FrameworkID and Handle make the cluster the session's handler.
func (c *cluster) FrameworkID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *cluster) Handle(_ context.Context, e session.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := e.(type) {
	case session.Subscribed:
		c.id, c.offers = e.FrameworkID, nil
	case session.Offered:
		c.offers = append(c.offers, e.Offers...)
	case session.Rescinded:
		kept := c.offers[:0]
		for _, o := range c.offers {
			if o.ID.Value != e.OfferID {
				kept = append(kept, o)
			}
		}
		c.offers = kept
	case session.Updated:
		id := e.Status.TaskID.Value
		c.statuses[id] = append(c.statuses[id], e.Status)
		if len(e.Status.UUID) > 0 {
			go c.session.Send(session.Acknowledge(&e.Status))
		}
	case session.Failure:
		if e.ExecutorID != "" {
			c.failures = append(c.failures, e)
		}
	}
	return nil
}

// launch starts a taskgroup and returns its id, which is the executor's.
func (c *cluster) launch(specs ...*api.TaskSpec) string {
	c.t.Helper()
	id, offer, executor := c.take()
	var tasks []mesos.TaskInfo
	for i, s := range specs {
		s.Version, s.Position = api.TaskSpecVersion, i
		s.Taskgroup = api.TaskgroupRef{ID: id, Name: "app-0", Application: "app", Namespace: "test", Cluster: "local", Size: len(specs)}
		if s.NodeIP == "" {
			s.NodeIP = "127.0.0.1"
		}
		data, err := json.Marshal(s)
		if err != nil {
			c.t.Fatal(err)
		}
		tasks = append(tasks, mesos.TaskInfo{
			Name: s.Name, TaskID: mesos.TaskID{Value: s.Name + "." + id}, AgentID: offer.AgentID, Data: data, Resources: resources(0.1, 32, 0),
		})
	}
	c.session.Send(session.Accept([]string{offer.ID.Value}, []mesos.Offer_Operation{session.LaunchGroup(executor, tasks)}, 0))
	return id
}

// launchPlain starts a task that knows nothing of Tandem: by LAUNCH_GROUP when
// it has a command, which Mesos does not allow beside an executor otherwise, or by
// LAUNCH when it has a Docker container, which Mesos does not allow in a group.
func (c *cluster) launchPlain(name string, task mesos.TaskInfo) string {
	c.t.Helper()
	id, offer, executor := c.take()
	task.Name, task.TaskID, task.AgentID, task.Resources = name, mesos.TaskID{Value: name + "." + id}, offer.AgentID, resources(0.1, 32, 0)
	operation := session.LaunchGroup(executor, []mesos.TaskInfo{task})
	if task.Container != nil {
		task.Executor = &executor
		operation = mesos.Offer_Operation{Type: mesos.Offer_Operation_LAUNCH, Launch: &mesos.Offer_Operation_Launch{TaskInfos: []mesos.TaskInfo{task}}}
	}
	c.session.Send(session.Accept([]string{offer.ID.Value}, []mesos.Offer_Operation{operation}, 0))
	return id
}

// take returns a new executor's id, an offer, and the executor.
func (c *cluster) take() (string, mesos.Offer, mesos.ExecutorInfo) {
	c.t.Helper()
	// Each is an instance of its own, or they would wait for one another.
	id := fmt.Sprintf("%d.app.test.local.%d", rand.IntN(1<<30), rand.Int64())
	var offer mesos.Offer
	eventually(c.t, 10*time.Second, "an offer", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for len(c.offers) > 0 {
			offer, c.offers = c.offers[0], c.offers[1:]
			if cpusOf(offer) >= 1 {
				return true
			}
			// What an executor that has ended gives back is offered by itself; declined, it comes again with the rest.
			go c.session.Send(session.Decline([]string{offer.ID.Value}, 0))
		}
		return false
	})
	command := fmt.Sprintf("exec %s --data-dir %s --processd-socket %s --publish-address 127.0.0.1 --log-level debug",
		filepath.Join(harness.bin, "tandem-executor"), c.dataDir(), filepath.Join(c.dir, "p.sock"))
	command = strings.TrimSpace(c.executorEnv + " " + command)
	return id, offer, mesos.ExecutorInfo{
		Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: id}, FrameworkID: &mesos.FrameworkID{Value: c.FrameworkID()},
		Command: &mesos.CommandInfo{Value: &command}, Resources: resources(0.1, 32, 16),
	}
}

func cpusOf(o mesos.Offer) float64 {
	for _, r := range o.Resources {
		if r.Name == "cpus" && r.Scalar != nil {
			return r.Scalar.Value
		}
	}
	return 0
}

// resources are scalars of the role "*"; 0 leaves one out.
func resources(cpus, mem, disk float64) []mesos.Resource {
	var list []mesos.Resource
	for name, v := range map[string]float64{"cpus": cpus, "mem": mem, "disk": disk} {
		if v > 0 {
			role := "*"
			list = append(list, mesos.Resource{
				Name: name, Type: mesos.SCALAR.Enum(), Scalar: &mesos.Value_Scalar{Value: v}, Role: &role,
				AllocationInfo: &mesos.Resource_AllocationInfo{Role: &role},
			})
		}
	}
	return list
}

// agentAddress is the agent's host:port.
func (c *cluster) agentAddress() string { return strings.TrimPrefix(c.agent.URL(), "http://") }

// all returns the statuses of a task.
func (c *cluster) all(group, name string) []mesos.TaskStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]mesos.TaskStatus(nil), c.statuses[name+"."+group]...)
}

func (c *cluster) dataDir() string { return filepath.Join(c.dir, "data") }

// states returns the states of a task of a group; equal ones in a row count once.
func (c *cluster) states(group, name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, s := range c.statuses[name+"."+group] {
		state := strings.TrimPrefix(s.GetState().String(), "TASK_")
		if len(list) == 0 || list[len(list)-1] != state {
			list = append(list, state)
		}
	}
	return strings.Join(list, " ")
}

// last returns the latest status of a task.
func (c *cluster) last(group, name string) mesos.TaskStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.statuses[name+"."+group]
	if len(list) == 0 {
		return mesos.TaskStatus{}
	}
	return list[len(list)-1]
}

// report is what the latest status carries.
func (c *cluster) report(group, name string) api.TaskReport {
	c.t.Helper()
	return decodeReport(c.t, c.last(group, name))
}

// decodeReport reads a status; one of the agent's own has no report.
func decodeReport(t *testing.T, s mesos.TaskStatus) api.TaskReport {
	t.Helper()
	var r api.TaskReport
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &r); err != nil {
			t.Errorf("report of %s: %v", s.TaskID.Value, err)
		}
	}
	return r
}

// over tells whether a task has ended, however.
func (c *cluster) over(group, name string) bool {
	s := c.last(group, name)
	switch s.GetState() {
	case mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_ERROR, mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE:
		return true
	default:
		return false
	}
}

// failure is what the framework heard of the end of a group's executor.
func (c *cluster) failure(group string) *session.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.failures {
		if c.failures[i].ExecutorID == group {
			return &c.failures[i]
		}
	}
	return nil
}

// waitState waits until a task is in a state, and fails when it has ended in another.
func (c *cluster) waitState(group, name string, want mesos.TaskState) mesos.TaskStatus {
	c.t.Helper()
	var s mesos.TaskStatus
	eventually(c.t, 30*time.Second, fmt.Sprintf("%s %s", name, want), func() bool {
		s = c.last(group, name)
		switch state := s.GetState(); state {
		case want:
			return len(s.TaskID.Value) > 0
		case mesos.TASK_FINISHED, mesos.TASK_FAILED, mesos.TASK_KILLED, mesos.TASK_ERROR, mesos.TASK_LOST, mesos.TASK_DROPPED, mesos.TASK_GONE:
			c.t.Fatalf("%s is %s, not %s: %s", name, state, want, s.GetMessage())
		default:
		}
		return false
	})
	return s
}

// kill sends KILL for a task.
func (c *cluster) kill(group, name string) {
	c.t.Helper()
	s := c.last(group, name)
	if !c.session.Send(session.Kill(name+"."+group, s.AgentID.GetValue(), 0)) {
		c.t.Error("KILL could not be sent")
	}
}

// waitExecutorGone waits until no executor of the group is left.
func (c *cluster) waitExecutorGone(group string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "the end of the executor", func() bool { return c.executorPid(group) == 0 })
}

// executorPid returns the pid of the group's executor, 0 when it does not run.
func (c *cluster) executorPid(group string) int {
	c.t.Helper()
	for _, pid := range processesWith(c.t, "tandem-executor") {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && strings.Contains(string(env), "MESOS_EXECUTOR_ID="+group+"\x00") {
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if err == nil && filepath.Base(exe) == "tandem-executor" {
				return pid
			}
		}
	}
	return 0
}

// waitAllGone waits for the end of a taskgroup's executor, and checks that neither
// a container of it nor a record of the journal is left.
func (c *cluster) waitAllGone(g string) {
	c.t.Helper()
	c.waitExecutorGone(g)
	if left := containersOf(c.t, g); len(left) > 0 {
		c.t.Errorf("containers left: %v", left)
	}
	c.nothingLeft()
}

// nothingLeft checks that no record of the journal is left.
func (c *cluster) nothingLeft() {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "an empty journal", func() bool {
		empty := true
		filepath.WalkDir(filepath.Join(c.dataDir(), "journal", "records"), func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				empty = false
			}
			return nil
		})
		return empty
	})
}

// readSandboxes looks through what executors wrote for what must never be
// there, and shows all of it when the test has failed.
func (c *cluster) readSandboxes() {
	texts := map[string]string{}
	filepath.WalkDir(filepath.Join(c.dir, "agent"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (d.Name() == "stderr" || d.Name() == "stdout") {
			if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
				texts[path] = string(b)
			}
		}
		return nil
	})
	for path, text := range texts {
		for _, bad := range []string{"DATA RACE", "panic: ", "event that cannot be"} {
			if strings.Contains(text, bad) {
				c.t.Errorf("%s holds %q", path, bad)
			}
		}
	}
	if c.t.Failed() {
		for path, text := range texts {
			c.t.Logf("%s:\n%s", path, text[:min(len(text), 16<<10)])
		}
	}
}
