package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tandem/network"
	"tandem/scheduler/client"
	"tandem/scheduler/wire"
)

func statusOf(err error) int {
	var e *client.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestAgentsAsTheMasterTells(t *testing.T) {
	t.Parallel()
	answer := make(chan int, 1)
	answer <- http.StatusOK
	master := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := <-answer
		answer <- status
		w.WriteHeader(status)
		fmt.Fprint(w, `{"slaves":[
			{"id":"agent-0","hostname":"host-0","pid":"slave(1)@10.0.0.5:5051","active":true,"attributes":{"zone":"a","cores":8.0},
			 "resources":{"cpus":16.0,"mem":1024.0,"disk":99.0,"ports":"[31000-31999, 40000-40000]"},"used_resources":{"cpus":5.5,"mem":10.0,"disk":0.0,"ports":"[31001-31001]"}},
			{"id":"idle","hostname":"host-9","pid":"slave(1)@10.0.0.9:5051","active":false,"attributes":{"zone":"b"},"resources":{"cpus":1.0},"used_resources":{}}],
			"recovered_slaves":[{"id":"late","hostname":"host-8","resources":{"cpus":1.0}}]}`)
	}))
	defer master.Close()
	h := connected(t, 2)
	h.apply(web(2, "", ""))
	h.running()
	h.m.connected = false
	h.l.master = master.URL
	c, _ := served(t, h)

	got := map[string]wire.Agent{}
	list, err := c.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		got[a.ID] = a
	}
	if a := got["agent-0"]; a.State != wire.AgentActive || a.Total.CPUs != 16 || a.Used.CPUs != 5.5 || a.Ports != "31000-31999, 40000" && a.Ports != "31000-31999,40000" || a.Taskgroups != 1 {
		t.Errorf("%+v", a)
	}
	if a := got["agent-1"]; a.State != wire.AgentUnreachable || a.Taskgroups != 1 {
		t.Errorf("an agent that the master does not list: %+v", a)
	}
	if a := got["idle"]; a.State != wire.AgentInactive || a.Address != "http://10.0.0.9:5051" || a.Attributes["zone"] != "b" {
		t.Errorf("%+v", a)
	}
	if a := got["late"]; a.State != wire.AgentUnknown {
		t.Errorf("%+v", a)
	}
	// Without the master it is what offers have shown.
	<-answer
	answer <- http.StatusServiceUnavailable
	if list, err = c.Agents(t.Context()); err != nil || len(list) != 2 || list[0].Total.CPUs != 4 {
		t.Errorf("%+v %v", list, err)
	}
}

// A fixed port that another framework holds belongs to the agent's resource, though no offer shows it.
func TestWholePortsResourceIsLearned(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 1)
	asked := 0
	h.l.fetch = func(context.Context, string) ([]slave, error) {
		asked++
		return []slave{{ID: "agent-0", Hostname: "host-0", Active: true, Resources: slaveResources{CPUs: 4, MemMB: 4096, Disk: 9000, Ports: "[31000-31009]"}}}, nil
	}
	h.m.agents["agent-0"].ports = network.Ranges{{Begin: 31000, End: 31004}} // the rest is another's
	h.m.subscribe("")
	h.deliver()
	h.l.workers.Wait()
	h.settle()
	h.apply(web(1, "", `"ports":[{"name":"p","hostPort":31007}],`))
	h.advance(10 * time.Second)
	if g := h.slot(0).Group; g != nil {
		t.Errorf("port 31007 was given out on %s", g.Hostname)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	a := h.l.agents["agent-0"]
	if !a.known || a.total.CPUs != 4000 || a.ports.Len() != 10 {
		t.Errorf("%+v", a)
	}
}
