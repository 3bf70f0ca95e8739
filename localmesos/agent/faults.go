package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/internal/procid"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/agent/internal/updates"
	"tandem/localmesos/fault"
	"tandem/localmesos/link"
)

// Faults are those that the agent has to suffer; nil unless Flags.EnableFaults,
// and before Start.
func (a *Agent) Faults() *fault.Set { return a.faults }

// startFaults makes the set; the address is known now.
func (a *Agent) startFaults() {
	if !a.flags.EnableFaults {
		return
	}
	a.faults = fault.New(fault.Options{Role: fault.OnAgent, Name: a.address(), IP: a.ip, Logger: a.log, Freeze: a.freeze, Process: a.flags.Supervise})
}

// withFaults puts the faults before the routes.
func (a *Agent) withFaults(routes http.Handler) http.Handler {
	return a.faults.Wrap(routes, func(r *http.Request) fault.Part {
		if strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/api/v1/executor") {
			return fault.Executor
		}
		return fault.Operator
	})
}

// freeze holds the loop. What it would have done meanwhile it does afterwards.
func (a *Agent) freeze(thawed <-chan struct{}) {
	a.loop.post(func() {
		select {
		case <-thawed:
		case <-a.ctx.Done():
		}
	})
}

// identifyExecutor tells the faults who makes a call.
func (a *Agent) identifyExecutor(ctx context.Context, framework, executor string) {
	if a.faults == nil {
		return
	}
	names := []string{framework}
	a.loop.do(ctx, func() {
		if fw := a.frameworks[framework]; fw != nil {
			names = append(names, fw.info.Name)
		}
	})
	fault.Identify(ctx, fault.Subject{Framework: names, Executor: []string{executor}, Agent: a.names()})
}

// names are those that people may call the agent by.
func (a *Agent) names() []string {
	port := strconv.Itoa(int(a.info.GetPort()))
	return []string{a.info.GetID().GetValue(), a.info.Hostname, net.JoinHostPort(a.info.Hostname, port), a.address()}
}

func (a *Agent) copies(kind fault.Message, framework string, x fault.Subject) int {
	if a.faults == nil {
		return 1
	}
	x.Framework, x.Agent = []string{framework}, a.names()
	if fw := a.frameworks[framework]; fw != nil {
		x.Framework = append(x.Framework, fw.info.Name)
	}
	return a.faults.Copies(kind, x)
}

// copiesOf is how often a message is sent to the master; only the loop calls it.
func (a *Agent) copiesOf(c *link.Call) int {
	u := c.Update
	if u == nil {
		return 1
	}
	return a.copies(fault.Update, u.FrameworkID.Value, fault.Subject{Executor: []string{u.ExecutorID}, Task: u.Status.TaskID.Value, State: u.Status.GetState()})
}

// losesAck tells that an acknowledgement is to be taken for lost on its way; only the loop calls it.
func (a *Agent) losesAck(k *link.Acknowledge) bool {
	state := mesos.TASK_UNKNOWN
	if u, ok := a.updates.Front(updates.Key{Framework: k.FrameworkID.Value, Task: k.TaskID}); ok && bytes.Equal(u.Status.UUID, k.UUID) {
		state = u.Status.GetState()
	}
	return a.copies(fault.Acknowledgement, k.FrameworkID.Value, fault.Subject{Task: k.TaskID, State: state}) == 0
}

// bootID is that of the machine, or of its simulated boot; the store must be open.
func (a *Agent) bootID() (string, error) {
	boot, err := procid.BootID()
	if err != nil {
		return "", err
	}
	n, err := a.store.SimulatedBoots()
	if err != nil || n == 0 {
		return boot, err
	}
	return fmt.Sprintf("%s+%d", boot, n), nil
}

// PowerOff ends the agent as the loss of its machine's power would: nothing is
// said any more, and all that it ran is gone. The next agent in its work
// directory finds another boot id. It returns an error when something may still
// run; calling it again then has no effect, and the next agent ends the rest.
func (a *Agent) PowerOff() error {
	if a.ctx == nil {
		return errors.New("the agent was not started")
	}
	a.end(errClosed)
	s, err := store.Open(a.flags.WorkDir, a.log)
	if err != nil {
		return err
	}
	defer s.Close()
	containers, err := s.Containers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyTimeout)
	defer cancel()
	for _, rec := range containers {
		c, findErr := a.launcher.Find(rec.Run.Container, rec.Process)
		if findErr != nil {
			err = errors.Join(err, findErr)
			continue
		}
		err = errors.Join(err, c.Destroy(ctx))
		c.Wait(ctx) //nolint:errcheck // it is gone; this collects it where it is this process's child
		c.Close()
	}
	if err != nil {
		return fmt.Errorf("a simulated loss of power: %w", err)
	}
	// Not before all is gone: the next agent believes the boot id, and looks for nothing.
	return s.CountSimulatedBoot()
}
