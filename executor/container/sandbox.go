package container

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"tandem/api"
	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/executor/container/internal/pause"
	"tandem/internal/procid"
)

var _ executor.Sandboxer = (*Runtime)(nil)

// CreateSandbox makes and starts a sandbox container, which does nothing but hold
// a network namespace. Of t it takes ID, which
// tasks then name as JoinTask, Owner, Publish, and of the specification Network,
// Taskgroup, and the container's Hostname and parameters. It is recorded like any
// container, so the process daemon removes it after its executor has died; Remove
// removes it, when those who joined it are gone. The image is made of a program
// that this package carries, and imported when it is missing.
func (r *Runtime) CreateSandbox(ctx context.Context, t *executor.Task) (*executor.NetSandbox, error) {
	name, layer, err := pause.Image()
	if err != nil {
		return nil, err
	}
	if err := r.importSandbox(ctx, name, layer); err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", t.ID, err)
	}
	like := *t
	spec := *t.Spec
	spec.Container = &api.ContainerTask{}
	if c := t.Spec.Container; c != nil {
		spec.Container.Hostname, spec.Container.Parameters = c.Hostname, c.Parameters
	}
	spec.Files, spec.Requests, spec.Limits, like.Env = nil, api.TaskResources{}, api.TaskResources{}, nil
	like.Spec = &spec
	c, err := r.compile(&like, "")
	if err != nil {
		return nil, err
	}
	c.spec.Image, c.spec.Entrypoint, c.spec.User = name, []string{pause.Path}, "65534:65534"
	c.spec.AttachStdout, c.spec.AttachStderr = false, false
	hc := &c.spec.HostConfig
	hc.CapAdd, hc.CapDrop, hc.ReadonlyRootfs, hc.PidsLimit = nil, []string{api.CapabilityAll}, true, 8
	hc.LogConfig = engine.LogConfig{Type: "none"}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.register(&like, c)
	entry, err := r.enter(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		return nil, fmt.Errorf("sandbox %q was removed before it was made", t.ID)
	}
	defer r.leave(entry)
	if done, stopping := r.progress(entry); done || stopping {
		return nil, fmt.Errorf("sandbox %q was made or removed before", t.ID)
	}
	var id string
	for try := 0; ; try++ {
		if err := r.record(ctx, entry, c); err != nil {
			return nil, err
		}
		if id, err = r.make(ctx, entry, c); err == nil {
			break
		}
		if try > 0 || !engine.IsNotFound(err) {
			return nil, err
		}
		// Whoever tidies up images has been quicker than its first container.
		if err := r.importSandbox(ctx, name, layer); err != nil {
			return nil, fmt.Errorf("sandbox %q: %w", t.ID, err)
		}
	}
	r.mu.Lock()
	entry.containerID, entry.unsure, entry.sandboxed = id, false, true
	r.mu.Unlock()
	sctx, cancel := linger(ctx)
	defer cancel()
	if err := r.engine.Start(sctx, id); err != nil {
		return nil, r.startRefused(entry, err)
	}
	got, err := r.engine.Inspect(sctx, id)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", t.ID, err)
	}
	if !got.State.Running || got.State.Pid <= 0 {
		return nil, fmt.Errorf("sandbox %q ended at once with code %d; see whether the engine runs programs of this machine's architecture", t.ID, got.State.ExitCode)
	}
	box := &executor.NetSandbox{ContainerID: id, Pid: got.State.Pid, Netns: fmt.Sprintf("/proc/%d/ns/net", got.State.Pid), IPs: r.addresses(entry, got)}
	if st, err := os.Stat(box.Netns); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			box.NetnsID = sys.Ino
		}
	}
	proc := openInit(got.State.Pid, id)
	r.mu.Lock()
	entry.ips, entry.pause = box.IPs, proc
	r.mu.Unlock()
	return box, nil
}

// AwaitSandbox returns when a sandbox container has ended, whoever ended it. An
// error means that nobody can tell.
func (r *Runtime) AwaitSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	t := r.tasks[id]
	var proc *procid.Process
	var containerID string
	if t != nil {
		proc, containerID = t.pause, t.containerID
	}
	r.mu.Unlock()
	switch {
	case containerID == "":
		return nil
	case proc != nil:
		return proc.Wait(ctx)
	}
	for {
		_, err := r.engine.Wait(ctx, containerID, time.Hour)
		if err == nil || engine.IsNotFound(err) {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// importSandbox makes the image when it is missing, once for all executors that
// miss it at the same time.
func (r *Runtime) importSandbox(ctx context.Context, name string, layer []byte) error {
	_, err := r.engine.Image(ctx, name)
	if !engine.IsNotFound(err) {
		return err
	}
	return r.opt.Journal.Exclusive(ctx, "sandbox-image", func(time.Time) error {
		if _, err := r.engine.Image(ctx, name); !engine.IsNotFound(err) {
			return err
		}
		return r.engine.Import(ctx, name, bytes.NewReader(layer))
	})
}
