package master

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	"github.com/mesos/mesos-go/api/v1/lib/scheduler"

	"tandem/localmesos/fault"
	"tandem/localmesos/link"
)

// Faults are those that the master has to suffer; nil unless Flags.EnableFaults.
func (m *Master) Faults() *fault.Set { return m.faults }

func (m *Master) newFaults() *fault.Set {
	if !m.flags.EnableFaults {
		return nil
	}
	return fault.New(fault.Options{Role: fault.OnMaster, Name: "master", IP: m.flags.IP, Logger: m.log, Freeze: m.freeze, Rescind: m.rescindFor, Process: m.flags.Supervise})
}

// withFaults puts the faults before the routes.
func (m *Master) withFaults(routes http.Handler) http.Handler {
	return m.faults.Wrap(routes, func(r *http.Request) fault.Part {
		path := strings.TrimPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/master")
		switch {
		case path == "/api/v1/scheduler":
			return fault.Scheduler
		case strings.HasPrefix(path, link.Path+"/"):
			return fault.Agent
		}
		return fault.Operator
	})
}

// freeze holds the loop. What it would have done meanwhile it does afterwards.
func (m *Master) freeze(thawed <-chan struct{}) {
	m.loop.post(func() {
		select {
		case <-thawed:
		case <-m.loop.quit:
		}
	})
}

// rescindFor takes offers back: the one that is named, or the first that match, one unless more are asked for.
func (m *Master) rescindFor(f fault.Fault) (n int, err error) {
	most := max(f.Times, 1)
	ok := m.loop.do(func() {
		for _, a := range m.sortedAgents() {
			for _, o := range a.offers {
				named := f.Offer == "" || f.Offer == o.id
				if n < most && named && matches(f.Framework, frameworkNames(o.framework)) && matches(f.Agent, agentNames(a)) {
					m.rescind(o)
					n++
				}
			}
		}
	})
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: the master is ending", fault.ErrRefused)
	case n == 0 && f.Offer != "":
		return 0, fmt.Errorf("offer %q: %w: no framework holds it", f.Offer, fault.ErrUnknown)
	case n == 0:
		return 0, fmt.Errorf("%w: no framework holds such an offer now", fault.ErrUnknown)
	}
	return n, nil
}

func matches(want string, names []string) bool { return want == "" || contains(names, want) }

func frameworkNames(f *framework) []string { return []string{f.id, f.info.Name} }

func agentNames(a *agent) []string {
	port := strconv.Itoa(int(a.info.GetPort()))
	return []string{a.id, a.info.Hostname, net.JoinHostPort(a.info.Hostname, port), net.JoinHostPort(a.ip, port)}
}

// copies is how often a message about a task is passed on; only the loop calls it.
func (m *Master) copies(kind fault.Message, f *framework, s mesos.TaskStatus) int {
	if m.faults == nil {
		return 1
	}
	x := fault.Subject{Framework: frameworkNames(f), Task: s.TaskID.Value, State: s.GetState(), Executor: []string{s.GetExecutorID().GetValue()}}
	if s.AgentID != nil {
		x.Agent = []string{s.AgentID.Value}
		if a := m.agents[s.AgentID.Value]; a != nil {
			x.Agent = agentNames(a)
		}
	}
	return m.faults.Copies(kind, x)
}

// acknowledged is what is known of the status that an acknowledgement is about;
// its state is TASK_UNKNOWN when it is not the last that was sent.
func acknowledged(f *framework, c *scheduler.Call_Acknowledge) mesos.TaskStatus {
	state := mesos.TASK_UNKNOWN
	if t := f.tasks[c.TaskID.Value]; t != nil && t.sent != nil && bytes.Equal(t.sentUUID, c.UUID) {
		state = *t.sent
	}
	return mesos.TaskStatus{TaskID: c.TaskID, AgentID: &c.AgentID, State: &state}
}

// identifyScheduler tells the faults who makes a call.
func (m *Master) identifyScheduler(ctx context.Context, c *scheduler.Call) {
	if m.faults == nil {
		return
	}
	names := []string{c.GetFrameworkID().GetValue(), c.GetSubscribe().GetFrameworkInfo().GetName()}
	m.loop.do(func() {
		if f := m.frameworks[names[0]]; f != nil {
			names = append(names, f.info.Name)
		}
	})
	fault.Identify(ctx, fault.Subject{Framework: names})
}

// identifyFramework adds the id that a new framework got.
func (m *Master) identifyFramework(ctx context.Context, id string) {
	if m.faults == nil {
		return
	}
	names := []string{id}
	m.loop.do(func() {
		if f := m.frameworks[id]; f != nil {
			names = frameworkNames(f)
		}
	})
	fault.Identify(ctx, fault.Subject{Framework: names})
}

// identifyAgent tells the faults which agent registers, or makes a call on a stream.
func (m *Master) identifyAgent(ctx context.Context, info *mesos.AgentInfo, streamID string) {
	if m.faults == nil {
		return
	}
	var names []string
	if info != nil {
		names = agentNames(&agent{id: info.GetID().GetValue(), info: *info, ip: info.Hostname})
	} else {
		m.loop.do(func() {
			for _, a := range m.agents {
				if a.streamID == streamID {
					names = agentNames(a)
				}
			}
		})
	}
	fault.Identify(ctx, fault.Subject{Agent: names})
}
