package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/fetch"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/internal/flags"
)

// launch fetches an executor's URIs and starts it, beside the event loop. The
// time to subscribe counts from now, as in Apache Mesos.
func (a *Agent) launch(e *executor) {
	timeout := a.flags.ExecutorRegistrationTimeout
	e.stopWait = a.after(timeout, func() {
		if e.state == registering {
			a.log.Warn("an executor did not subscribe in time", "executor", e.key(), "timeout", timeout)
			a.destroy(e, &termination{mesos.TASK_FAILED, mesos.REASON_EXECUTOR_REGISTRATION_TIMEOUT,
				"Executor did not register within " + flags.FormatDuration(timeout)})
		}
	})
	u, err := a.userOf(e)
	if err != nil {
		a.launchFailed(e, err)
		return
	}
	token, err := a.tokens.issue(e.fw.id, e.id, e.run.Container)
	if err != nil {
		a.launchFailed(e, err)
		return
	}
	limits, err := limitsOf(e.info.Container)
	if err != nil {
		a.launchFailed(e, err)
		return
	}
	if u != nil {
		a.socket.admit(u.UID)
	}
	ctx, cancel := context.WithCancel(a.ctx)
	e.cancel = cancel
	job := a.jobOf(e, u, token)
	job.spec.Limits = limits
	a.log.Info("starting an executor", "executor", e.key(), "container", e.run.Container)
	a.work.Go(func() {
		defer cancel()
		c, err := job.do(ctx)
		if a.ctx.Err() != nil && c != nil {
			c.Close() // the next agent finds it by its record
			return
		}
		a.loop.post(func() { a.launchEnded(e, c, err) })
	})
}

// job is all that starting an executor needs; it touches nothing of the loop's.
type job struct {
	a     *Agent
	spec  container.Spec
	fetch fetch.Job
	run   store.Run
	// started takes the pid, in the loop.
	started func(pid int)
}

func (a *Agent) jobOf(e *executor, u *container.User, token string) *job {
	cmd := e.info.GetCommand()
	j := &job{a: a, run: e.run,
		spec:  container.Spec{ID: e.run.Container, Dir: e.directory, User: u, Env: a.environment(e, token)},
		fetch: fetch.Job{Dir: e.directory, User: u, StallTimeout: a.flags.FetcherStallTimeout, Cache: a.cache}, started: func(pid int) { e.pid = pid }}
	if cmd == nil || cmd.GetShell() {
		j.spec.Program, j.spec.Args = "/bin/sh", []string{"sh", "-c", cmd.GetValue()}
	} else {
		j.spec.Program, j.spec.Args = cmd.GetValue(), cmd.Arguments
		if len(j.spec.Args) == 0 {
			j.spec.Args = []string{cmd.GetValue()}
		}
	}
	for _, u := range cmd.GetURIs() {
		j.fetch.URIs = append(j.fetch.URIs, fetch.URI{Value: u.Value, Executable: u.GetExecutable(),
			Extract: u.GetExtract(), Cache: u.GetCache(), OutputFile: u.GetOutputFile()})
	}
	return j
}

// do fetches and starts. The container is on record before its first process
// is there, and again with it before that may do anything (where it can be held
// back) or at once after (where its cgroup tells what belongs to it).
func (j *job) do(ctx context.Context) (*container.Container, error) {
	if u := j.spec.User; u != nil && u.Switches() {
		if err := os.Chown(j.spec.Dir, int(u.UID), int(u.GID)); err != nil {
			return nil, fmt.Errorf("Failed to chown '%s' to user '%s': %w", j.spec.Dir, u.Name, err) //nolint:staticcheck // Mesos's wording
		}
	}
	if err := j.doFetch(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rec := store.Container{Run: j.run}
	if err := j.a.store.SaveContainer(rec); err != nil {
		return nil, err
	}
	c, err := j.a.launcher.Start(j.spec)
	if err != nil {
		return nil, err
	}
	// Now, and not when the record is on disk: an executor may be quicker, and
	// its first updates tell the pid.
	pid := c.Identity().Pid
	j.a.loop.post(func() { j.started(pid) })
	rec.Process = c.Identity()
	if err = j.a.store.SaveContainer(rec); err == nil {
		err = c.Release()
	}
	if err != nil {
		j.a.discard(c, j.run.Container)
		return nil, err
	}
	return c, nil
}

// launchEnded takes what a job came to.
func (a *Agent) launchEnded(e *executor, c *container.Container, err error) {
	e.cancel = nil
	switch {
	case err != nil && e.state == terminating:
		// Asked to end before it was started.
		a.exited(e, container.StatusUnknown)
		return
	case err != nil:
		a.launchFailed(e, err)
		return
	}
	e.container, e.pid = c, c.Identity().Pid
	a.watch(e)
	if e.killed {
		a.kill9(e)
	}
}

// launchFailed ends an executor that could not be started.
func (a *Agent) launchFailed(e *executor, err error) {
	a.log.Error("an executor cannot be started", "executor", e.key(), "error", err)
	e.termination = &termination{mesos.TASK_FAILED, mesos.REASON_CONTAINER_LAUNCH_FAILED, "Failed to launch container: " + err.Error()}
	a.exited(e, container.StatusKilled)
}

// reapInterval is how long the end of an executor stays unnoticed. The kernel
// tells it at once, but Apache Mesos's agent finds ended processes by a poll,
// every 100 ms with up to 50 of them (libprocess, src/reap.cpp). Frameworks
// depend on it without knowing: whoever tears down right after the last
// acknowledgement, which is what lets a well-behaved executor exit, gets no
// FAILURE for that executor there, and must get none here.
const reapInterval = 100 * time.Millisecond

// watch waits beside the loop for the end of an executor's process, and then
// ends what it left behind.
func (a *Agent) watch(e *executor) {
	c, id := e.container, e.run.Container
	a.work.Go(func() {
		s, err := c.Wait(a.ctx)
		a.pause(reapInterval)
		if a.ctx.Err() != nil {
			return
		}
		if err != nil {
			a.log.Error("an executor cannot be waited for", "container", id, "error", err)
			s = container.StatusUnknown
		}
		a.discard(c, id)
		a.loop.post(func() {
			e.container = nil
			a.exited(e, s)
		})
	})
}

// discard ends all processes of a container and forgets it.
func (a *Agent) discard(c *container.Container, id string) {
	ctx, cancel := context.WithTimeout(a.ctx, destroyTimeout)
	defer cancel()
	if err := c.Destroy(ctx); err != nil {
		// The record stays: the next agent tries again.
		a.log.Error("processes of a container are left", "container", id, "error", err)
	} else if err := a.store.RemoveContainer(id); err != nil {
		a.log.Error("a container's record is left", "container", id, "error", err)
	}
	c.Close()
}
