package agent

import (
	"errors"
	"fmt"
	"os"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/internal/flags"
	"tandem/localmesos/internal/resource"
)

// recover takes up what an earlier agent left in the work directory. It runs
// before the event loop does, and queues there what is to happen then.
func (a *Agent) recover() error {
	boot, err := a.bootID()
	if err != nil {
		return err
	}
	before, err := a.store.BootID()
	if err != nil && !errors.Is(err, store.ErrMissing) {
		return err
	}
	if err := a.recoverIdentity(); err != nil {
		return err
	}
	if before != "" && before != boot {
		a.log.Info("the machine was started anew: all earlier executors are gone")
		if err := a.forgetRuns(); err != nil {
			return err
		}
	}
	if before != boot {
		if err := a.store.SaveBootID(boot); err != nil {
			return err
		}
	}
	containers, err := a.store.Containers()
	if err != nil {
		return err
	}
	byID := map[string]store.Container{}
	for _, c := range containers {
		byID[c.Run.Container] = c
	}
	if a.info.ID != nil {
		if err := a.recoverFrameworks(byID); err != nil {
			return err
		}
	}
	// What is left belongs to executors that nobody knows any more.
	for _, c := range byID {
		a.endOrphan(c)
	}
	a.recoverGarbage()
	a.loop.post(a.afterRecovery)
	return nil
}

// recoverIdentity makes this agent the one that was, if there was one.
func (a *Agent) recoverIdentity() error {
	old, err := a.store.Agent()
	if errors.Is(err, store.ErrMissing) {
		return nil
	}
	if err != nil {
		return err
	}
	var wrong []error
	if old.Hostname != a.info.Hostname {
		wrong = append(wrong, fmt.Errorf("hostname was %q and is %q", old.Hostname, a.info.Hostname))
	}
	was, is := resource.Of(old.Resources), resource.Of(a.info.Resources)
	if !was.Equal(is) {
		wrong = append(wrong, fmt.Errorf("resources were %q and are %q", was, is))
	}
	if !sameAttributes(old.Attributes, a.info.Attributes) {
		wrong = append(wrong, errors.New("attributes are other ones"))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the agent in %s was started with other flags: %w; start it as before, or remove %s/meta/slaves/latest to make it a new agent",
			a.store.Work(), errors.Join(wrong...), a.store.Work())
	}
	a.info.ID = old.ID
	// The port may be another one: it was drawn.
	return a.store.SaveAgent(&a.info)
}

func sameAttributes(x, y []mesos.Attribute) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !x[i].Equal(y[i]) {
			return false
		}
	}
	return true
}

// forgetRuns drops all that was recorded of frameworks and containers.
func (a *Agent) forgetRuns() error {
	containers, err := a.store.Containers()
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := a.store.RemoveContainer(c.Run.Container); err != nil {
			return err
		}
	}
	if a.info.ID == nil {
		return nil
	}
	return a.store.RemoveFrameworks(a.id())
}

// recoverFrameworks takes up the recorded frameworks. What is missing or
// damaged is passed over; the master then finds tasks missing and says so.
func (a *Agent) recoverFrameworks(containers map[string]store.Container) error {
	ids, err := a.store.Frameworks(a.id())
	if err != nil {
		return err
	}
	for _, id := range ids {
		info, err := a.store.Framework(a.id(), id)
		if errors.Is(err, store.ErrMissing) {
			a.log.Warn("a framework without checkpoint is forgotten", "framework", id)
			if err := a.store.RemoveFramework(a.id(), id); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		fw := &framework{id: id, info: *info, executors: map[string]*executor{}}
		a.frameworks[id] = fw
		executors, err := a.store.Executors(a.id(), id)
		if err != nil {
			return err
		}
		for _, x := range executors {
			if err := a.recoverExecutor(fw, x, containers); err != nil {
				return err
			}
		}
		a.tidy(fw)
	}
	return nil
}

func (a *Agent) recoverExecutor(fw *framework, id string, containers map[string]store.Container) error {
	rec, err := a.store.Executor(a.id(), fw.id, id)
	if errors.Is(err, store.ErrMissing) {
		a.log.Warn("an executor without checkpoint is forgotten", "framework", fw.id, "executor", id)
		return a.store.RemoveExecutor(store.Run{Agent: a.id(), Framework: fw.id, Executor: id})
	}
	if err != nil {
		return err
	}
	e := &executor{fw: fw, id: id, info: *rec.Info, generated: rec.Generated, subscribed: rec.Subscribed,
		state: registering, awaited: true, tasks: map[string]*task{},
		run: store.Run{Agent: a.id(), Framework: fw.id, Executor: id, Container: rec.Container}}
	e.directory = a.store.Sandbox(e.run)
	if e.subscribed {
		e.state = running
	}
	fw.executors[id] = e
	if err := a.recoverTasks(e); err != nil {
		return err
	}
	c, recorded := containers[rec.Container]
	delete(containers, rec.Container)
	e.container, err = a.launcher.Find(rec.Container, c.Process)
	if err != nil {
		return err
	}
	e.pid = c.Process.Pid
	if !e.container.Identity().IsZero() {
		a.loop.post(func() { a.watch(e) })
		return nil
	}
	if recorded {
		a.log.Info("an executor ended while the agent was away", "executor", e.key(), "container", rec.Container)
	}
	// Apache Mesos tells the tasks' fate, but sends no FAILURE for these.
	e.vanished = true
	gone := e.container
	e.container = nil
	a.discardBeside(gone, rec.Container)
	a.loop.post(func() { a.exited(e, container.StatusUnknown) })
	return nil
}

func (a *Agent) recoverTasks(e *executor) error {
	tasks, err := a.updates.Recover(e.fw.id, a.store.TaskLog(e.run))
	if err != nil {
		return err
	}
	for _, past := range tasks {
		t := &task{info: past.Info, group: past.Group, state: mesos.TASK_STAGING, phase: launched, inherited: true}
		e.addTask(t)
		for _, ts := range past.Statuses {
			a.note(t, ts)
		}
		if past.Ended {
			t.step(acknowledged)
		}
	}
	return nil
}

// endOrphan ends what runs in a container that belongs to no executor.
func (a *Agent) endOrphan(rec store.Container) {
	c, err := a.launcher.Find(rec.Run.Container, rec.Process)
	if err != nil {
		a.log.Error("an orphaned container cannot be found", "container", rec.Run.Container, "error", err)
		return
	}
	a.log.Info("an orphaned container is ended", "container", rec.Run.Container, "executor", rec.Run.Executor)
	a.discardBeside(c, rec.Run.Container)
	// Its sandbox is garbage from now on, see recoverGarbage.
	now := a.clock.Now()
	_ = os.Chtimes(a.store.Sandbox(rec.Run), now, now) // it may be gone
}

// discardBeside ends a container of the past beside the start; an orderly end
// of the agent waits for it.
func (a *Agent) discardBeside(c *container.Container, id string) {
	a.orphans.Add(1)
	a.work.Go(func() {
		defer a.orphans.Done()
		a.discard(c, id)
	})
}

// afterRecovery waits for the executors that may be alive, for the whole time
// even if all are back sooner, and then goes to the master.
func (a *Agent) afterRecovery() {
	if a.flags.Recover == RecoverCleanup {
		a.cleanUp()
		return
	}
	waiting := false
	for _, fw := range a.frameworks {
		for _, e := range fw.executors {
			waiting = waiting || e.state != terminated
		}
	}
	join := func() {
		a.master.recovered = true
		a.work.Go(a.connect)
	}
	if !waiting {
		join()
		return
	}
	timeout := a.flags.ExecutorReregistrationTimeout
	a.after(timeout, func() {
		for _, fw := range a.sortedFrameworks() {
			for _, e := range sortedExecutors(fw) {
				a.giveUpOn(e)
			}
		}
		join()
	})
	a.log.Info("waiting for executors to subscribe again", "timeout", flags.FormatDuration(timeout))
}

// errCleanedUp is the cause of an end after --recover=cleanup.
var errCleanedUp = errors.New("all executors of the earlier agent are gone")

// cleanUp ends the executors of the earlier agent, within the grace period, and
// then this one, whose id nobody gets again. They are asked when they subscribe;
// the master hears nothing of it.
func (a *Agent) cleanUp() {
	a.log.Info("cleaning up: the executors of the earlier agent are ended, and then this agent")
	a.master.recovered = true
	a.work.Go(func() {
		a.stopExecutors(true)
		if err := a.store.ForgetAgent(); err != nil {
			a.end(err)
			return
		}
		a.end(errCleanedUp)
	})
}

// giveUpOn kills an executor that has not subscribed again.
func (a *Agent) giveUpOn(e *executor) {
	if !e.awaited || e.state == terminated || e.state == terminating {
		return
	}
	timeout := flags.FormatDuration(a.flags.ExecutorReregistrationTimeout)
	a.log.Warn("an executor did not subscribe again and is killed", "executor", e.key(), "timeout", timeout)
	t := &termination{mesos.TASK_LOST, mesos.REASON_EXECUTOR_REREGISTRATION_TIMEOUT, "Executor did not reregister within " + timeout}
	if e.fw.partitionAware() {
		t.state = mesos.TASK_GONE
	}
	a.destroy(e, t)
}
