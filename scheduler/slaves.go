package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tandem/network"
	"tandem/scheduler/placement"
)

// Offers show only what is free. What an agent has at all is told by the
// master's /slaves, which is asked outside of the loop: for people who list the
// agents, and for the agents' whole ports resource, without which a fixed port
// that another framework holds looks like one that is no resource.

// slavesTimeout bounds the question, and maxSlaves its answer in bytes: an agent has some 2 KiB in it.
const (
	slavesTimeout = 5 * time.Second
	maxSlaves     = 128 << 20
)

// slave is an agent as the master's /slaves shows it.
type slave struct {
	ID         string         `json:"id"`
	Hostname   string         `json:"hostname"`
	PID        string         `json:"pid"`
	Active     bool           `json:"active"`
	Attributes map[string]any `json:"attributes"`
	Resources  slaveResources `json:"resources"`
	Used       slaveResources `json:"used_resources"`
	// recovering tells that the master, restarted, still waits for it.
	recovering bool
}

type slaveResources struct {
	CPUs  float64 `json:"cpus"`
	MemMB float64 `json:"mem"`
	Disk  float64 `json:"disk"`
	Ports string  `json:"ports"`
}

func (r slaveResources) amounts() placement.Resources {
	return placement.Resources{CPUs: placement.ToMilli(r.CPUs), MemMB: placement.ToMilli(r.MemMB), DiskMB: placement.ToMilli(r.Disk)}
}

// ports reads "[31000-31999, 32500-32500]".
func (r slaveResources) ports() network.Ranges {
	var out network.Ranges
	for part := range strings.SplitSeq(strings.Trim(r.Ports, "[]"), ",") {
		begin, end, ok := strings.Cut(strings.TrimSpace(part), "-")
		b, err1 := strconv.Atoi(begin)
		e, err2 := strconv.Atoi(end)
		if ok && err1 == nil && err2 == nil {
			out = append(out, network.Range{Begin: b, End: e})
		}
	}
	return out.Normalize()
}

// url is the agent's base URL, of a pid such as slave(1)@10.0.0.5:5051.
func (s *slave) url() string {
	_, address, ok := strings.Cut(s.PID, "@")
	if _, _, err := net.SplitHostPort(address); !ok || err != nil {
		return ""
	}
	return "http://" + address
}

// fetchSlaves asks the leading master.
func (s *Scheduler) fetchSlaves(ctx context.Context, master string) ([]slave, error) {
	ctx, cancel := context.WithTimeout(ctx, slavesTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(master, "/")+"/slaves", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("master address %q: %w", master, err)
	}
	if s.o.Principal != "" {
		req.SetBasicAuth(s.o.Principal, s.o.Secret)
	}
	resp, err := clientOr(s.http).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for the agents: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for the agents: master %s answers %s", master, resp.Status)
	}
	var answer struct {
		Slaves    []slave `json:"slaves"`
		Recovered []slave `json:"recovered_slaves"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSlaves)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask for the agents: answer of master %s: %w", master, err)
	}
	for i := range answer.Recovered {
		answer.Recovered[i].recovering = true
	}
	return append(append([]slave{}, answer.Slaves...), answer.Recovered...), nil
}

// learnAgents asks in the background when an agent is not known; one question at a time.
func (l *loop) learnAgents(ctx context.Context) {
	if l.fetch == nil || !l.connected || !l.agentsUnknown || l.asking {
		return
	}
	l.agentsUnknown, l.asking = false, true
	master := l.master
	l.workers.Go(func() {
		list, err := l.fetch(ctx, master)
		l.post(input{do: func() error {
			l.asking = false
			if err != nil {
				l.log.Warn("the agents' whole resources are not known", "error", err)
			} else {
				l.learned(list)
			}
			return nil // nobody waits for an answer
		}})
	})
}

func (l *loop) learned(list []slave) {
	for i := range list {
		if a := l.agents[list[i].ID]; a != nil {
			a.know(&list[i])
		} else {
			l.slaves[list[i].ID] = list[i]
		}
	}
}

// know takes the whole resources of an agent.
func (a *agent) know(s *slave) {
	a.known = true
	a.total = s.Resources.amounts()
	a.ports = s.Resources.ports()
}
