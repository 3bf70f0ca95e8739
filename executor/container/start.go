package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/internal/failpoint"
	"tandem/internal/procid"
	"tandem/network"
)

// Start starts a created container and begins to watch it and to copy its output.
func (r *Runtime) Start(ctx context.Context, taskID string) (executor.Started, error) {
	t, err := r.enter(ctx, taskID)
	if err != nil {
		return executor.Started{}, err
	}
	if t == nil {
		return executor.Started{}, fmt.Errorf("task %q was not created", taskID)
	}
	defer r.leave(t)
	r.mu.Lock()
	id, stopping, already := t.containerID, t.stopping, t.run != nil
	r.mu.Unlock()
	switch {
	case id == "":
		return executor.Started{}, fmt.Errorf("task %q was not created", taskID)
	case stopping:
		return executor.Started{}, fmt.Errorf("task %q was stopped before it was started", taskID)
	case already:
		return executor.Started{}, fmt.Errorf("task %q was started before", taskID)
	}
	attached := r.attach(ctx, id)
	begun := false
	defer func() {
		if attached != nil && !begun {
			attached.Close()
		}
	}()
	sctx, cancel := linger(ctx)
	defer cancel()
	startErr := r.engine.Start(sctx, id)
	if startErr != nil && !engine.IsUnreachable(startErr) {
		return executor.Started{}, r.startRefused(t, startErr)
	}
	if err := failpoint.Inject("container/started"); err != nil {
		return executor.Started{}, err
	}
	r.mu.Lock()
	img := r.images[taskID]
	r.mu.Unlock()
	started := executor.Started{ContainerID: id, ImageDigest: img.Digest, At: time.Now()}
	b := beginning{id: id, stopSignal: img.StopSignal, attached: attached}
	if startErr != nil || img == (imageFacts{}) || !r.look(t, &b) {
		c, err := r.engine.Inspect(sctx, id)
		if engine.IsUnreachable(err) && sctx.Err() == nil {
			c, err = r.engine.Inspect(sctx, id)
		}
		if err != nil {
			return executor.Started{}, fmt.Errorf("task %q: %w", taskID, err)
		}
		if startErr != nil && c.State.Status == "created" {
			return executor.Started{}, fmt.Errorf("task %q: %w", taskID, startErr)
		}
		b = r.told(t, c)
		b.attached = attached
		started.At, started.Pid = c.State.StartedAt, c.State.Pid
	}
	begun = true
	if b.proc != nil {
		started.Pid = b.proc.Identity().Pid
	}
	started.IPs = r.begin(t, b).ips
	return started, nil
}

// beginning is what is known of a container that has just been started.
type beginning struct {
	id         string
	stopSignal string
	ips        []string
	proc       *procid.Process // nil when the kernel cannot be asked
	attached   io.ReadCloser   // nil when its output is not attached
}

// look asks the kernel about a started container; false means that the engine
// has to be asked, also because it has ended already.
func (r *Runtime) look(t *task, b *beginning) bool {
	p := findInit(b.id)
	if p == nil {
		return false
	}
	ips, known := r.given(t)
	if !known {
		if ips = addressesIn(p); len(ips) == 0 {
			p.Close()
			return false
		}
	}
	b.proc, b.ips = p, ips
	return true
}

// told is what the engine tells about a started container.
func (r *Runtime) told(t *task, c *engine.Container) beginning {
	b := beginning{id: c.ID, ips: r.addresses(t, c), stopSignal: c.Config.StopSignal}
	if c.State.Running {
		b.proc = openInit(c.State.Pid, c.ID)
	}
	return b
}

// begin makes the run of a started container and the goroutines that watch it.
func (r *Runtime) begin(t *task, b beginning) *run {
	n := &run{
		ips: b.ips, stopSignal: b.stopSignal, proc: b.proc, tail: &tail{},
		ended: make(chan struct{}), done: make(chan struct{}), settled: make(chan struct{}), copied: make(chan struct{}),
	}
	if t.stopSignal != "" {
		n.stopSignal = t.stopSignal
	}
	if n.stopSignal == "" {
		n.stopSignal = "SIGTERM"
	}
	r.mu.Lock()
	t.run = n
	r.mu.Unlock()
	out := &copier{tail: n.tail}
	if err := out.open(t.sandbox, &r.opt); err != nil {
		r.log.Error("a container's output is not kept", "task", t.id, "err", err)
	}
	copying, stopCopying := context.WithCancel(r.ctx)
	following, stopFollowing := context.WithCancel(copying)
	n.stopCopying, n.stopFollowing = stopCopying, stopFollowing
	r.wg.Go(func() { r.copyOutput(copying, following, out, b.id, n, b.attached) })
	r.wg.Go(func() { r.watch(t, b.id, n) })
	r.sharing.Do(func() { r.wg.Go(r.share) })
	return n
}

// openInit returns a handle on a container's first process, or nil where the
// kernel cannot be asked: an old kernel, or an engine in another pid namespace,
// whose numbers name other processes here. The process's cgroup carries the
// container's id, whatever cgroup driver and version the engine uses.
func openInit(pid int, containerID string) *procid.Process {
	if pid <= 0 {
		return nil
	}
	p, err := procid.OpenPid(pid)
	if err != nil {
		return nil
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(b), containerID) || !p.Identity().Alive() {
		p.Close()
		return nil
	}
	return p
}

// given are the addresses of a task that come from elsewhere: the agent, the task
// whose network it shares, or nowhere. known is false when the engine gives it one.
func (r *Runtime) given(t *task) (ips []string, known bool) {
	switch {
	case t.host && t.nodeIP != "":
		return []string{t.nodeIP}, true
	case t.host, t.alone:
		return nil, true
	case t.join == "":
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := r.tasks[t.join]; {
	case o == nil:
		return nil, true
	case o.run != nil:
		return o.run.ips, true
	default:
		return o.ips, true
	}
}

// addresses are those of the network namespace that the container is in.
func (r *Runtime) addresses(t *task, c *engine.Container) []string {
	ips, known := r.given(t)
	if known {
		return ips
	}
	for _, e := range c.NetworkSettings.Networks {
		for _, ip := range []string{e.IPAddress, e.GlobalIPv6Address} {
			if ip != "" {
				ips = append(ips, ip)
			}
		}
	}
	slices.Sort(ips)
	return ips
}

// startRefused turns the engine's reasons into what a user can mend.
func (r *Runtime) startRefused(t *task, err error) error {
	var e *engine.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("task %q: %w", t.id, err)
	}
	text := strings.ToLower(e.Message)
	switch {
	case noRoom(err):
		return t.full(err)
	case t.network != "" && strings.Contains(text, "not found") && strings.Contains(text, "network"),
		t.address != "" && !strings.Contains(text, "port"):
		return t.networkRefused(err)
	case strings.Contains(text, "port is already allocated"), strings.Contains(text, "address already in use"):
		if addr, perr := netip.ParseAddr(r.opt.PublishAddress); perr == nil {
			if l, lerr := network.ReadListeners(); lerr == nil {
				if inUse := l.CheckPorts(addr, t.publish); inUse != nil {
					return inUse
				}
			}
		}
		return fmt.Errorf("a host port of task %q is already in use on this agent; choose another or use 0 for a random one: %w", t.id, err)
	case strings.Contains(text, "executable file not found"), strings.Contains(text, "no such file or directory") && strings.Contains(text, "exec"):
		what := "the image's own command"
		if len(t.command) > 0 {
			what = strconv.Quote(t.command[0])
		}
		return fmt.Errorf("command %s does not exist in image %q; check command and args: %w", what, t.image, err)
	case strings.Contains(text, "not a shared"):
		return fmt.Errorf("a volume of task %q has a propagation that its file system on the agent does not share; run mount --make-rshared for it, or leave propagation out: %w", t.id, err)
	case strings.Contains(text, "permission denied") && strings.Contains(text, "exec"):
		return fmt.Errorf("the command of task %q may not be executed in image %q; check its permissions: %w", t.id, t.image, err)
	}
	return fmt.Errorf("task %q: %w", t.id, err)
}

// networkRefused says what may be wrong with a network of the engine.
func (t *task) networkRefused(err error) error {
	if t.address == "" {
		return fmt.Errorf("network %q cannot be used; make it on this agent with docker network create %s, or name another: %w", t.network, t.network, err)
	}
	return fmt.Errorf("network %q does not give the address %s; the network must exist, have a subnet of its own (docker network create --subnet) that holds the address, and nobody else may have it: %w",
		t.network, t.address, err)
}
