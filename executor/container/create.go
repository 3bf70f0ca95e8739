package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"tandem/executor"
	"tandem/executor/container/internal/engine"
	"tandem/internal/failpoint"
)

// Create records the intent and makes the container, not started, and the files
// that it will see. Calling it again for a task that has been made does nothing.
func (r *Runtime) Create(ctx context.Context, et *executor.Task) error {
	if et.Spec == nil || et.Spec.Container == nil {
		return fmt.Errorf("task %q: it has no container specification", et.ID)
	}
	join, err := r.joined(et)
	if err != nil {
		return err
	}
	c, err := r.compile(et, join)
	if err != nil {
		return err
	}
	r.register(et, c)
	t, err := r.enter(ctx, et.ID)
	if err != nil {
		return err
	}
	if t == nil {
		return fmt.Errorf("task %q was removed before it was created", et.ID)
	}
	defer r.leave(t)
	switch done, stopping := r.progress(t); {
	case done:
		return nil
	case stopping:
		return fmt.Errorf("task %q was stopped before it was created", et.ID)
	}
	if err := r.record(ctx, t, c); err != nil {
		if noRoom(err) {
			return fmt.Errorf("the data directory of this agent is full: %w; free some of its disk", err)
		}
		return err
	}
	if err := failpoint.Inject("container/recorded"); err != nil {
		return err
	}
	if c.filesErr != nil {
		return c.filesErr
	}
	if err := makeDirs(c.dirs); err != nil {
		return err
	}
	if err := writeFiles(t.files, et.Spec.Files); err != nil {
		return err
	}
	id, err := r.make(ctx, t, c)
	if err != nil {
		return err
	}
	r.mu.Lock()
	t.containerID, t.unsure = id, false
	r.mu.Unlock()
	if err := failpoint.Inject("container/created"); err != nil {
		return err
	}
	return r.ownFiles(ctx, id, t.files, et.Spec)
}

// joined returns the id of the container whose network the task shares.
func (r *Runtime) joined(et *executor.Task) (string, error) {
	if et.JoinTask == "" {
		return "", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.tasks[et.JoinTask]; t != nil && t.containerID != "" {
		return t.containerID, nil
	}
	return "", fmt.Errorf("task %q shares the network of task %q, which has no container; create that one first", et.ID, et.JoinTask)
}

// register makes the task known, so that Stop and Remove may come at any time from here on.
func (r *Runtime) register(et *executor.Task, c *compiled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks[et.ID] != nil {
		return
	}
	r.tasks[et.ID] = &task{
		id: et.ID, name: containerName(et.ID), image: c.spec.Image, command: c.spec.Entrypoint,
		sandbox: et.Sandbox, nodeIP: et.Spec.NodeIP, host: c.host, join: et.JoinTask, publish: et.Publish, files: c.filesDir,
		network: c.network, address: c.address, cpus: c.cpus, alone: c.spec.HostConfig.NetworkMode == "none",
		stopSignal: et.Spec.KillPolicy.StopSignal,
	}
}

func (r *Runtime) progress(t *task) (created, stopping bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.containerID != "", t.stopping
}

// make makes the container. When the engine's answer is lost, or an earlier one
// was, the container is found by its name and adopted.
func (r *Runtime) make(ctx context.Context, t *task, c *compiled) (string, error) {
	owner := r.opt.Journal.Name()
	mctx, cancel := linger(ctx)
	defer cancel()
	r.mu.Lock()
	t.unsure = true
	r.mu.Unlock()
	for try := 0; ; try++ {
		id, err := r.engine.Create(mctx, t.name, &c.spec)
		if err == nil {
			return id, nil
		}
		if !engine.IsUnreachable(err) && !engine.IsConflict(err) {
			return "", r.refused(t, err)
		}
		look, cancelLook := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		found, findErr := find(look, r.engine, t.name, owner, t.id)
		cancelLook()
		switch {
		case findErr != nil && engine.IsUnreachable(findErr):
			return "", fmt.Errorf("task %q: %w", t.id, err)
		case findErr != nil:
			return "", fmt.Errorf("task %q: %w", t.id, findErr)
		case found == nil && (try > 0 || engine.IsUnreachable(err)):
			return "", fmt.Errorf("task %q: %w", t.id, err)
		case found != nil && found.State.Status == "created" && found.Config.Labels[labelFence] == "":
			r.log.Info("container adopted after its creation went unanswered", "task", t.id, "container", found.ID)
			return found.ID, nil
		case found != nil && try > 0:
			return "", fmt.Errorf("task %q: container %s is in the way in state %q: %w", t.id, t.name, found.State.Status, err)
		case found != nil:
			// Ours, from an earlier attempt, and beyond its beginning: start afresh.
			if err := r.engine.Remove(mctx, found.ID); err != nil && !engine.IsNotFound(err) {
				return "", fmt.Errorf("task %q: %w", t.id, err)
			}
		}
	}
}

// refused is for an engine that said no: nothing was made, so the record goes.
func (r *Runtime) refused(t *task, err error) error {
	r.mu.Lock()
	t.unsure = false
	r.mu.Unlock()
	derr := removeFiles(t.files)
	if derr == nil {
		derr = r.opt.Journal.Delete(Kind, t.id)
	}
	if derr != nil {
		r.log.Warn("record of a container that was never made stays", "task", t.id, "err", derr)
	}
	if noRoom(err) {
		return t.full(err)
	}
	var e *engine.Error
	if errors.As(err, &e) && t.network != "" && strings.Contains(strings.ToLower(e.Message), "network") {
		return t.networkRefused(err)
	}
	if errors.As(err, &e) && engine.IsNotFound(err) {
		r.forget(t.image)
		return fmt.Errorf("image %q is not on this agent (%s); pull it, or set imagePullPolicy to IfNotPresent or Always: %w", t.image, e.Message, err)
	}
	return fmt.Errorf("task %q: %w", t.id, err)
}

// noRoom tells whether a disk is full. Engines have it in the text only.
func noRoom(err error) bool {
	var e *engine.Error
	return errors.Is(err, syscall.ENOSPC) || errors.As(err, &e) && strings.Contains(strings.ToLower(e.Message), "no space left on device")
}

// full is for an engine whose disk is.
func (t *task) full(err error) error {
	return fmt.Errorf("task %q: there is no room on the disk of the Docker Engine for a container of image %q; free some, for example with docker system prune: %w", t.id, t.image, err)
}
