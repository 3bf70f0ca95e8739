package localmesos

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/agent"
	"tandem/localmesos/fault"
	"tandem/localmesos/master"
)

// startFaulty starts a cluster that may be broken.
func startFaulty(t *testing.T, agents int) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := Start(ctx, Options{Dir: t.TempDir(), Agents: make([]AgentOptions, agents), EnableFaults: true,
		MasterFlags: func(f *master.Flags) { f.AllocationInterval = 50 * time.Millisecond },
		AgentFlags:  func(f *agent.Flags) { f.SwitchUser = false },
	})
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

// TestGroupOverReboot: the tasks of a machine that is started anew are told to
// have ended, and its agent is the same as before.
func TestGroupOverReboot(t *testing.T) {
	t.Parallel()
	c := startFaulty(t, 1)
	f := subscribe(t, c, "")
	o := f.launch("x", "a", "b")
	f.update("a", mesos.TASK_RUNNING)
	f.update("b", mesos.TASK_RUNNING)
	if _, err := c.Fault("agent-1", fault.Fault{Kind: fault.Reboot}); err != nil {
		t.Fatal(err)
	}
	f.next("the end of a task", func(e scheduler.Event) bool {
		s := e.GetUpdate().GetStatus()
		return e.Type == scheduler.Event_UPDATE && s.GetState() == mesos.TASK_LOST
	})
	again := f.next("OFFERS after the reboot", func(e scheduler.Event) bool { return e.Type == scheduler.Event_OFFERS }).Offers.Offers[0]
	if again.AgentID != o.AgentID {
		t.Errorf("the agent was %s and is %s", o.AgentID.Value, again.AgentID.Value)
	}
}

// TestCloseEndsWhatIsBroken: a cluster whose parts are frozen, away or about to
// come back ends all the same.
func TestCloseEndsWhatIsBroken(t *testing.T) {
	t.Parallel()
	c := startFaulty(t, 3)
	for on, f := range map[string]fault.Fault{
		MasterName: {Kind: fault.Freeze, For: fault.Duration(time.Hour)},
		"agent-1":  {Kind: fault.Freeze, For: fault.Duration(time.Hour)},
		"agent-2":  {Kind: fault.Restart, By: fault.Duration(time.Hour)},
		"agent-3":  {Kind: fault.Lose},
	} {
		if _, err := c.Fault(on, f); err != nil {
			t.Error(err)
		}
	}
	began := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestFaultsOverHTTP: /faults of a cluster's parts, and what ends them, works as with processes.
func TestFaultsOverHTTP(t *testing.T) {
	t.Parallel()
	c := startFaulty(t, 1)
	url := c.Agent(0).URL()
	client, err := fault.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	before := c.Agent(0).agent
	if _, err := client.Add(t.Context(), fault.Fault{Kind: fault.Restart}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c.Agent(0).mu.Lock()
		now := c.Agent(0).agent
		c.Agent(0).mu.Unlock()
		if now != nil && now != before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the agent was not started again")
		}
	}
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Agent(0).URL() != url {
		t.Errorf("the agent moved from %s to %s", url, c.Agent(0).URL())
	}
	if _, err := client.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFaultsMustBeEnabled: without that there is neither an endpoint nor a way from Go.
func TestFaultsMustBeEnabled(t *testing.T) {
	t.Parallel()
	c := start(t, 1)
	for _, url := range []string{c.MasterURL(), c.Agent(0).URL()} {
		resp, err := http.Get(url + fault.Path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s%s: %s", url, fault.Path, resp.Status)
		}
	}
	for _, on := range []string{MasterName, "agent-1"} {
		if _, err := c.Fault(on, fault.Fault{Kind: fault.Freeze}); !errors.Is(err, fault.ErrRefused) {
			t.Errorf("%s: %v", on, err)
		}
	}
	if _, err := c.Fault("agent-2", fault.Fault{Kind: fault.Freeze}); !errors.Is(err, fault.ErrUnknown) {
		t.Error(err)
	}
}
