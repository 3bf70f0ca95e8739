package scenario

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tandem/localmesos"
	"tandem/localmesos/agent"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/master"
)

// patience is how long a step waits that says nothing else.
const patience = time.Minute

// clusterStep starts master and agents.
type clusterStep struct {
	agents                      int
	resources                   string
	ping, reregister, executors time.Duration
	pings                       int
}

func (p *parser) cluster(l *line) (action, error) {
	if p.agents != 0 {
		return nil, l.errorf("there is a cluster already")
	}
	o, err := l.options("agents", "resources", "ping", "pings", "reregister", "executors")
	s := &clusterStep{agents: 1, ping: 15 * time.Second, pings: 5, reregister: time.Minute, executors: 2 * time.Second, resources: o["resources"]}
	errs := []error{err}
	count := func(name string, to *int, most int) {
		if text := o[name]; text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > most {
				errs = append(errs, l.errorf("%s=%s is not a number between 1 and %d", name, text, most))
				return
			}
			*to = n
		}
	}
	duration := func(name string, to *time.Duration, most time.Duration) {
		if text := o[name]; text != "" {
			d, err := l.duration(name, text)
			if err == nil && d > most {
				err = l.errorf("%s %s is more than %s", name, d, most)
			}
			if err != nil {
				errs = append(errs, err)
				return
			}
			*to = d
		}
	}
	count("agents", &s.agents, localmesos.MaxAgents)
	count("pings", &s.pings, 100)
	duration("ping", &s.ping, maxDuration)
	duration("reregister", &s.reregister, maxDuration)
	duration("executors", &s.executors, agent.MaxReregistrationTimeout)
	if s.resources != "" {
		if _, err := resource.Parse(s.resources, "*"); err != nil {
			errs = append(errs, l.errorf("resources: %w", err))
		}
	}
	p.agents = s.agents
	if err := errors.Join(errs...); err != nil {
		p.agents = localmesos.MaxAgents // later lines need not be wrong, too
		return nil, err
	}
	return s, nil
}

func (s *clusterStep) run(ctx context.Context, r *runner) error {
	o := localmesos.Options{
		Dir: r.dir, Agents: make([]localmesos.AgentOptions, s.agents), EnableFaults: true, Logger: r.log,
		MasterFlags: func(f *master.Flags) {
			f.AllocationInterval, f.AgentPingTimeout, f.MaxAgentPingTimeouts = 50*time.Millisecond, s.ping, s.pings
			f.AgentReregisterTimeout, f.HeartbeatInterval = s.reregister, time.Second
		},
		AgentFlags: func(f *agent.Flags) {
			f.SwitchUser, f.ExecutorReregistrationTimeout, f.ExecutorShutdownGracePeriod = false, s.executors, 2*time.Second
		},
	}
	for i := range o.Agents {
		o.Agents[i].Resources = s.resources
	}
	c, err := localmesos.Start(ctx, o)
	if err != nil {
		return err
	}
	r.cluster = c
	return c.Wait(ctx)
}

// frameworkStep subscribes a framework.
type frameworkStep struct {
	name                       string
	partitionAware, checkpoint bool
	failover                   time.Duration
}

func (p *parser) framework(l *line) (action, error) {
	o, err := l.options("partition-aware", "checkpoint", "failover")
	if err != nil {
		return nil, err
	}
	s := &frameworkStep{name: "framework", partitionAware: true, checkpoint: true, failover: time.Hour}
	if len(l.words) > 0 {
		if s.name, err = l.name("name"); err != nil {
			return nil, err
		}
	}
	var errs []error
	for name, to := range map[string]*bool{"partition-aware": &s.partitionAware, "checkpoint": &s.checkpoint} {
		if text := o[name]; text != "" {
			v, err := strconv.ParseBool(text)
			if err != nil {
				errs = append(errs, l.errorf("%s=%s is neither true nor false", name, text))
			}
			*to = v
		}
	}
	if text := o["failover"]; text != "" {
		if s.failover, err = l.duration("failover", text); err != nil {
			errs = append(errs, err)
		}
	}
	if p.frameworks[s.name] {
		errs = append(errs, l.errorf("there is a framework %q already", s.name))
	}
	p.frameworks[s.name] = true
	if p.first == "" {
		p.first = s.name
	}
	return s, errors.Join(errs...)
}

func (s *frameworkStep) run(ctx context.Context, r *runner) error {
	f := newFramework(r, s)
	r.frameworks[s.name] = f
	r.work.Go(func() { f.run(r.ctx) })
	return r.until(ctx, patience, f.connectedCheck)
}

// launchStep launches tasks, each as soon as an offer has room for it.
type launchStep struct {
	framework string
	tasks     []string
	on        string // agent, or empty
	cpus, mem float64
	command   string
	within    time.Duration
}

// defaultCommand runs until it is killed.
const defaultCommand = "exec sleep 100000"

func (p *parser) launch(l *line) (action, error) {
	s := &launchStep{cpus: 0.1, mem: 32, command: defaultCommand}
	o, err := l.options("cpus", "mem", "command")
	if err != nil {
		return nil, err
	}
	var errs []error
	for name, to := range map[string]*float64{"cpus": &s.cpus, "mem": &s.mem} {
		if text := o[name]; text != "" {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || !(v > 0 && v <= 1e6) {
				errs = append(errs, l.errorf("%s=%s is not a positive number", name, text))
			}
			*to = v
		}
	}
	if o["command"] != "" {
		s.command = o["command"]
	}
	if s.within, err = l.durationAfter("within", patience); err != nil {
		errs = append(errs, err)
	}
	var named bool
	if s.on, named, err = l.after("on"); err == nil && named {
		err = p.agentName(l, s.on)
	}
	errs = append(errs, err)
	if s.framework, err = p.of(l); err != nil {
		errs = append(errs, err)
	}
	if len(l.words) == 0 {
		errs = append(errs, l.errorf("no task is named"))
	}
	for len(l.words) > 0 {
		name, err := l.name("task")
		if err == nil && p.tasks[name] {
			err = l.errorf("task %q is launched already", name)
		}
		errs = append(errs, err)
		p.tasks[name] = true
		s.tasks = append(s.tasks, name)
	}
	return s, errors.Join(errs...)
}

func (s *launchStep) run(ctx context.Context, r *runner) error {
	f := r.frameworks[s.framework]
	host := ""
	if s.on != "" {
		host = r.cluster.Find(s.on).IP()
	}
	for _, name := range s.tasks {
		err := r.until(ctx, s.within, func(ctx context.Context) (string, error) { return f.launch(ctx, name, host, s) })
		if err != nil {
			return err
		}
	}
	return nil
}

// killStep sends KILL.
type killStep struct {
	framework string
	tasks     []string
}

func (p *parser) kill(l *line) (action, error) {
	s := &killStep{}
	var err error
	if s.framework, err = p.of(l); err != nil {
		return nil, err
	}
	if len(l.words) == 0 {
		return nil, l.errorf("no task is named")
	}
	for len(l.words) > 0 {
		name, err := p.task(l)
		if err != nil {
			return nil, err
		}
		s.tasks = append(s.tasks, name)
	}
	return s, nil
}

func (s *killStep) run(ctx context.Context, r *runner) error {
	f := r.frameworks[s.framework]
	for _, name := range s.tasks {
		if err := r.until(ctx, patience, func(ctx context.Context) (string, error) { return f.kill(ctx, name), nil }); err != nil {
			return err
		}
	}
	return nil
}

// reconcileStep asks for the state of all tasks.
type reconcileStep struct{ framework string }

func (p *parser) reconcile(l *line) (action, error) {
	name, err := p.of(l)
	return &reconcileStep{name}, err
}

func (s *reconcileStep) run(ctx context.Context, r *runner) error {
	f := r.frameworks[s.framework]
	return r.until(ctx, patience, func(ctx context.Context) (string, error) { return f.reconcile(ctx), nil })
}

// amount is a number, or a least number.
type amount struct {
	n     int
	least bool
}

func (a amount) String() string {
	if a.least {
		return fmt.Sprintf("%d or more", a.n)
	}
	return strconv.Itoa(a.n)
}

func (a amount) ok(n int) bool { return n == a.n || a.least && n > a.n }

func (l *line) amount(text string) (amount, error) {
	digits, least := strings.CutSuffix(text, "+")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > 1e6 {
		return amount{}, l.errorf("%q is not a number; use such as 3, or 3+ for three or more", text)
	}
	return amount{n, least}, nil
}
