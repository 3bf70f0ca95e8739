package executor

import (
	"context"
	"errors"
	"net/netip"
	"os"

	mesos "github.com/mesos/mesos-go/api/v1/lib"

	"tandem/executor/health"
)

// beginChecks begins with the checks of a task that runs from now on.
func (e *Executor) beginChecks(t *task) {
	checks, err := t.checkList()
	if err != nil {
		// It was good when the task was launched, so it is what variables became.
		e.log.Error("the task is not checked", "task", t.id, "error", err)
		return
	}
	target := health.Target{Addresses: t.checkAddresses()}
	if c, ok := t.runtime.(Checkable); ok {
		id := t.id
		target.Netns = func(ctx context.Context) (*os.File, error) { return c.Netns(ctx, id) }
		target.Exec = func(ctx context.Context, cmd health.Command) (health.CommandResult, error) {
			return c.Exec(ctx, id, cmd)
		}
	}
	e.health.Watch(t.id, checks, target)
}

// endChecks ends the checks of a task that is to end or has ended; what they
// have found stays in its report.
func (e *Executor) endChecks(t *task) {
	if r := e.health.Report(t.id); r != nil {
		t.checks = r
	}
	e.health.Forget(t.id)
}

// checkList are the checks that are made here: those of the specification, or
// of the plain TaskInfo of another framework.
func (t *task) checkList() ([]health.Check, error) {
	switch {
	case t.foreign:
		return foreignChecks(&t.info)
	case t.run != nil:
		return health.FromSpec(t.run.Spec)
	}
	return health.FromSpec(t.spec)
}

// The addresses of the loopback interface.
var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// checkAddresses are where the task's ports are looked for, one after another,
// as seen from its own network namespace: where others reach it, and the loopback
// interface. Mesos promises the loopback interface, so a plain task has it first.
func (t *task) checkAddresses() []netip.Addr {
	var own []netip.Addr
	for _, text := range t.addresses() {
		if a, err := netip.ParseAddr(text); err == nil {
			own = append(own, a)
		}
	}
	switch {
	case t.foreign:
		return append(append([]netip.Addr(nil), loopback...), own...)
	case len(own) > 0 && own[0].IsLoopback() && t.hostNetwork():
		// An agent known by a loopback address is one of several on this machine;
		// at another such address is a task of another agent.
		return own
	}
	return append(own, loopback...)
}

// hostNetwork tells whether the task uses the agent's own network.
func (t *task) hostNetwork() bool {
	return t.spec != nil && !sharesNetwork(t.spec)
}

// checked takes what came of a check.
func (e *Executor) checked(r health.Result) {
	c, news := e.health.Take(r)
	t := e.tasks[c.TaskID]
	if !news || t == nil || t.state != stateRunning {
		return
	}
	t.healthy = e.health.Health(t.id)
	switch {
	case c.Dead:
		e.log.Warn("task is ended because it is not alive", "task", t.id, "check", c.Message)
		t.failure, t.checkFailed = errors.New(c.Message), true
		e.deliver(t, eventKill)
		e.failGroup(t)
	case !t.announced:
		// TASK_RUNNING will tell it.
	case c.Health:
		e.log.Info("health of the task", "task", t.id, "healthy", t.healthy != nil && *t.healthy, "check", c.Message)
		e.tell(t, mesos.TASK_RUNNING, c.Message, new(mesos.REASON_TASK_HEALTH_CHECK_STATUS_UPDATED))
	case c.Observed:
		e.tell(t, mesos.TASK_RUNNING, "", new(mesos.REASON_TASK_CHECK_STATUS_UPDATED))
	}
}

// addHealth puts into a status what the checks have found: the latest while the
// task runs, and in the end only that it was the reason.
func (e *Executor) addHealth(t *task, s *mesos.TaskStatus) {
	switch {
	case !terminal(s.GetState()):
		s.Healthy = t.healthy
		if s.GetState() == mesos.TASK_RUNNING {
			s.CheckStatus = checkStatus(t.info.Check, e.health.Observed(t.id))
		}
	case t.checkFailed:
		s.Healthy = new(false)
	}
}

// aboutChecks tells whether an update was made for what a check has found.
func aboutChecks(s *mesos.TaskStatus) bool {
	return s.Reason != nil && (*s.Reason == mesos.REASON_TASK_HEALTH_CHECK_STATUS_UPDATED || *s.Reason == mesos.REASON_TASK_CHECK_STATUS_UPDATED)
}
