package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// counted is a condition about a number of something.
type counted struct {
	what  string
	want  amount
	count func(ctx context.Context, r *runner) (int, error)
}

func (c *counted) check(ctx context.Context, r *runner) (string, error) {
	n, err := c.count(ctx, r)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // it may be so for a while, as while the master is away
	}
	if !c.want.ok(n) {
		return fmt.Sprintf("%s: %d, not %s", c.what, n, c.want), nil
	}
	return "", nil
}

func (l *line) lastAmount() (amount, error) {
	text, err := l.next("a number")
	if err != nil {
		return amount{}, err
	}
	return l.amount(text)
}

// countFramework: offers 2; rescinded 1; failures 1+
func (p *parser) countFramework(l *line) (condition, error) {
	_, what, _ := strings.Cut(l.verb, " ")
	name, err := p.of(l)
	if err != nil {
		return nil, err
	}
	c := &counted{what: what + " of framework " + name}
	c.want, err = l.lastAmount()
	c.count = func(_ context.Context, r *runner) (int, error) {
		f := r.frameworks[name]
		f.mu.Lock()
		defer f.mu.Unlock()
		return map[string]int{"offers": len(f.offers), "rescinded": f.rescinded, "failures": f.failures}[what], nil
	}
	return c, err
}

// countTask: starts t1 1; processes t1 1
func (p *parser) countTask(l *line) (condition, error) {
	_, what, _ := strings.Cut(l.verb, " ")
	name, err := p.task(l)
	if err != nil {
		return nil, err
	}
	c := &counted{what: what + " of task " + name}
	c.want, err = l.lastAmount()
	c.count = func(_ context.Context, r *runner) (int, error) {
		if what == "processes" {
			return processes(r.mark(name))
		}
		b, err := os.ReadFile(r.startsFile(name))
		if os.IsNotExist(err) {
			return 0, nil
		}
		return bytes.Count(b, []byte{'\n'}), err
	}
	return c, err
}

// processes counts those that carry a task's mark in their environment.
func processes(mark string) (n int, err error) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0, err
	}
	want := []byte(startVariable + "=" + mark)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		// A process that is just ending has none, and those of others are not ours.
		if err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return bytes.Equal(v, want) }) {
			n++
		}
	}
	return n, nil
}

// frameworkCondition: framework connected
type frameworkIs struct {
	name      string
	connected bool
}

func (p *parser) frameworkCondition(l *line) (condition, error) {
	name, err := p.of(l)
	if err != nil {
		return nil, err
	}
	word, err := l.next("connected or disconnected")
	if err == nil && word != "connected" && word != "disconnected" {
		err = fmt.Errorf("%s: %w", l.verb, unknown("state", word, []string{"connected", "disconnected"}))
	}
	return &frameworkIs{name, word == "connected"}, err
}

func (c *frameworkIs) check(_ context.Context, r *runner) (string, error) {
	f := r.frameworks[c.name]
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case c.connected && f.stream == "":
		return "framework " + c.name + " is not subscribed: " + f.last, nil
	case !c.connected && f.stream != "":
		return "framework " + c.name + " is subscribed", nil
	}
	return "", nil
}

// agentStates are those that the master lets be seen.
var agentStates = []string{"connected", "disconnected", "absent"}

// agentsCondition: agents 2 counts those that are connected.
func (p *parser) agentsCondition(l *line) (condition, error) {
	want, err := l.lastAmount()
	return &counted{what: "connected agents", want: want, count: func(ctx context.Context, r *runner) (n int, err error) {
		states, err := r.agentStates(ctx)
		for _, s := range states {
			if s == "connected" {
				n++
			}
		}
		return n, err
	}}, err
}

// agentCondition: agent agent-1 disconnected
type agentIs struct{ name, state string }

func (p *parser) agentCondition(l *line) (condition, error) {
	c := &agentIs{}
	var err error
	if c.name, err = l.next("agent"); err == nil {
		err = p.agentName(l, c.name)
	}
	if err == nil {
		c.state, err = l.next("state")
	}
	if err == nil && !slices.Contains(agentStates, c.state) {
		err = fmt.Errorf("%s: %w", l.verb, unknown("state", c.state, agentStates))
	}
	return c, err
}

func (c *agentIs) check(ctx context.Context, r *runner) (string, error) {
	states, err := r.agentStates(ctx)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // it may be so for a while, as while the master is away
	}
	have := states[r.cluster.Find(c.name).IP()]
	if have == "" {
		have = "absent"
	}
	if have != c.state {
		return fmt.Sprintf("the master takes %s for %s, not for %s", c.name, have, c.state), nil
	}
	return "", nil
}

// askTimeout bounds a question to the master.
const askTimeout = 2 * time.Second

// agentStates asks the master for its agents' states, by host name.
func (r *runner) agentStates(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.cluster.MasterURL()+"/slaves", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the master does not tell its agents: %w", err)
	}
	defer resp.Body.Close()
	var body struct {
		Slaves []struct {
			Hostname string
			Active   bool
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("the master does not tell its agents: it answered %s", resp.Status)
	}
	out := map[string]string{}
	for _, s := range body.Slaves {
		// Of an agent that was replaced both are there for a while; the living one counts.
		if out[s.Hostname] = "disconnected"; s.Active {
			out[s.Hostname] = "connected"
		}
	}
	return out, nil
}
