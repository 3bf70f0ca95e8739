package localmesos

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/agent"
	"tandem/localmesos/internal/wire"
	"tandem/localmesos/master"
)

// executorVariable makes this test binary an executor; main_test.go does.
const executorVariable = "LOCALMESOS_TEST_EXECUTOR"

// framework is a scheduler for these tests.
type framework struct {
	t      *testing.T
	c      *Cluster
	id     string
	stream string
	events chan scheduler.Event
}

func subscribe(t *testing.T, c *Cluster, id string) *framework {
	t.Helper()
	info := mesos.FrameworkInfo{User: "root", Name: "test", Roles: []string{"*"}, Checkpoint: new(bool), FailoverTimeout: new(float64),
		Capabilities: []mesos.FrameworkInfo_Capability{{Type: mesos.FrameworkInfo_Capability_MULTI_ROLE}}}
	*info.Checkpoint, *info.FailoverTimeout = true, 60
	call := &scheduler.Call{Type: scheduler.Call_SUBSCRIBE, Subscribe: &scheduler.Call_Subscribe{FrameworkInfo: &info}}
	if id != "" {
		call.FrameworkID = &mesos.FrameworkID{Value: id}
		info.ID = call.FrameworkID
	}
	f := &framework{t: t, c: c, events: make(chan scheduler.Event, 1000)}
	resp := f.post(call)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("SUBSCRIBE: %d %s", resp.StatusCode, b)
	}
	f.stream = resp.Header.Get("Mesos-Stream-Id")
	t.Cleanup(func() { resp.Body.Close() })
	go func() {
		defer close(f.events)
		in := wire.NewRecordReader(resp.Body)
		for {
			b, err := in.Next()
			if err != nil {
				return
			}
			var e scheduler.Event
			if _, err := wire.Unmarshal(wire.Protobuf, b, &e); err != nil {
				t.Error(err)
				return
			}
			f.events <- e
		}
	}()
	f.id = f.next("SUBSCRIBED", func(e scheduler.Event) bool { return e.Type == scheduler.Event_SUBSCRIBED }).Subscribed.FrameworkID.Value
	return f
}

func (f *framework) post(call *scheduler.Call) *http.Response {
	f.t.Helper()
	b, err := wire.Marshal(wire.Protobuf, call)
	if err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, f.c.MasterURL()+"/api/v1/scheduler", bytes.NewReader(b))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", string(wire.Protobuf))
	req.Header.Set("Accept", string(wire.Protobuf))
	if f.stream != "" {
		req.Header.Set("Mesos-Stream-Id", f.stream)
	}
	resp, err := oneShot.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

// oneShot keeps no connections: those to a master that was killed are of no use to the next.
var oneShot = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (f *framework) call(call *scheduler.Call) {
	f.t.Helper()
	call.FrameworkID = &mesos.FrameworkID{Value: f.id}
	resp := f.post(call)
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		f.t.Fatalf("%s: %d %s", call.Type, resp.StatusCode, b)
	}
}

// next waits for an event, acknowledging updates on the way.
func (f *framework) next(what string, want func(scheduler.Event) bool) scheduler.Event {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-f.events:
			if !ok {
				f.t.Fatalf("%s did not come before the stream ended", what)
			}
			if s := e.GetUpdate().GetStatus(); len(s.UUID) > 0 {
				f.call(&scheduler.Call{Type: scheduler.Call_ACKNOWLEDGE, Acknowledge: &scheduler.Call_Acknowledge{AgentID: *s.AgentID, TaskID: s.TaskID, UUID: s.UUID}})
			}
			if want(e) {
				return e
			}
		case <-deadline:
			f.t.Fatalf("%s did not come", what)
		}
	}
}

func (f *framework) update(task string, state mesos.TaskState) mesos.TaskStatus {
	f.t.Helper()
	return f.next(task+" "+state.String(), func(e scheduler.Event) bool {
		s := e.GetUpdate().GetStatus()
		return s.TaskID.Value == task && s.GetState() == state
	}).Update.Status
}

// launch starts a group of tasks on the test binary as their executor.
func (f *framework) launch(executorID string, tasks ...string) mesos.Offer {
	f.t.Helper()
	o := f.next("OFFERS", func(e scheduler.Event) bool { return e.Type == scheduler.Event_OFFERS }).Offers.Offers[0]
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	kind, one := mesos.SCALAR, "1"
	scalar := func(name string, v float64) mesos.Resource {
		return mesos.Resource{Name: name, Type: &kind, Scalar: &mesos.Value_Scalar{Value: v}}
	}
	group := &mesos.Offer_Operation_LaunchGroup{Executor: mesos.ExecutorInfo{
		Type: mesos.ExecutorInfo_CUSTOM, ExecutorID: mesos.ExecutorID{Value: executorID}, FrameworkID: &mesos.FrameworkID{Value: f.id},
		Resources: []mesos.Resource{scalar("cpus", 0.1), scalar("mem", 32), scalar("disk", 1)},
		Command:   &mesos.CommandInfo{Value: &self, Environment: &mesos.Environment{Variables: []mesos.Environment_Variable{{Name: executorVariable, Value: &one}}}},
	}}
	for _, id := range tasks {
		group.TaskGroup.Tasks = append(group.TaskGroup.Tasks, mesos.TaskInfo{Name: id, TaskID: mesos.TaskID{Value: id}, AgentID: o.AgentID,
			Resources: []mesos.Resource{scalar("cpus", 0.1), scalar("mem", 32)}})
	}
	none := 0.0
	f.call(&scheduler.Call{Type: scheduler.Call_ACCEPT, Accept: &scheduler.Call_Accept{OfferIDs: []mesos.OfferID{o.ID}, Filters: &mesos.Filters{RefuseSeconds: &none},
		Operations: []mesos.Offer_Operation{{Type: mesos.Offer_Operation_LAUNCH_GROUP, LaunchGroup: group}}}})
	return o
}

func start(t *testing.T, agents int) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := Options{
		Dir: t.TempDir(), Agents: make([]AgentOptions, agents),
		MasterFlags: func(f *master.Flags) { f.AllocationInterval = 50 * time.Millisecond },
		AgentFlags: func(f *agent.Flags) {
			f.SwitchUser = false
			f.ExecutorReregistrationTimeout = 2 * time.Second
			f.ExecutorShutdownGracePeriod = 2 * time.Second
		},
	}
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGroupOverRestarts(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	f := subscribe(t, c, "")
	f.launch("x", "a", "b")
	f.update("a", mesos.TASK_RUNNING)
	f.update("b", mesos.TASK_RUNNING)

	if err := c.Agent(0).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.call(&scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: "a"}}})
	f.update("a", mesos.TASK_KILLED)

	url := c.MasterURL()
	c.KillMaster()
	if err := c.StartMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.MasterURL() != url {
		t.Errorf("the master moved from %s to %s", url, c.MasterURL())
	}
	g := subscribe(t, c, f.id)
	g.next("OFFERS after the agent is back", func(e scheduler.Event) bool { return e.Type == scheduler.Event_OFFERS })
	g.call(&scheduler.Call{Type: scheduler.Call_RECONCILE, Reconcile: &scheduler.Call_Reconcile{}})
	if s := g.update("b", mesos.TASK_RUNNING); s.GetReason() != mesos.REASON_RECONCILIATION {
		t.Errorf("%v", s)
	}
	g.call(&scheduler.Call{Type: scheduler.Call_KILL, Kill: &scheduler.Call_Kill{TaskID: mesos.TaskID{Value: "b"}}})
	g.update("b", mesos.TASK_KILLED)
}

func TestSeveralAgents(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	if len(c.Agents()) != 3 {
		t.Fatal(len(c.Agents()))
	}
	resp, err := http.Get(c.MasterURL() + "/slaves")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Slaves []struct {
			Hostname, PID string
			Port          int
			Active        bool
			Resources     map[string]any
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range body.Slaves {
		ports, _ := s.Resources["ports"].(string)
		if !s.Active || seen[ports] || !strings.HasPrefix(s.PID, "slave(1)@"+s.Hostname+":") {
			t.Errorf("%+v", s)
		}
		seen[ports] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d agents", len(seen))
	}
	f := subscribe(t, c, "")
	hosts := map[string]bool{}
	for len(hosts) < 3 {
		for _, o := range f.next("OFFERS", func(e scheduler.Event) bool { return e.Type == scheduler.Event_OFFERS }).Offers.Offers {
			hosts[o.Hostname] = true
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no directory": {}, "a file": {Dir: file}, "too many": {Dir: t.TempDir(), Agents: make([]AgentOptions, MaxAgents+1)},
		"bad resources": {Dir: t.TempDir(), Agents: []AgentOptions{{Resources: "cpus"}}},
	} {
		if c, err := Start(t.Context(), o); err == nil {
			c.Close()
			t.Errorf("%s: was taken", name)
		}
	}
}
