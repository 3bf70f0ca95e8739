package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xexec "github.com/mesos/mesos-go/api/v1/lib/executor"

	"tandem/localmesos/agent/internal/container"
	"tandem/localmesos/agent/internal/store"
	"tandem/localmesos/internal/resource"
	"tandem/localmesos/link"
)

// run takes tasks for an executor, which is started if it is not there.
func (a *Agent) run(r *link.Run) {
	fw, err := a.framework(r.Framework)
	if err != nil {
		a.log.Error("tasks refused", "framework", r.Framework.GetID().GetValue(), "error", err)
		return
	}
	if fw.ending {
		a.log.Warn("tasks of a framework that is shut down are ignored", "framework", fw.id)
		return
	}
	group := ""
	if r.Group {
		group = newUUIDText()
	}
	id := r.Executor.ExecutorID.Value
	tasks := make([]*task, 0, len(r.Tasks))
	for _, info := range r.Tasks {
		err = errors.Join(err, store.CheckID("task", info.TaskID.Value))
		tasks = append(tasks, &task{info: info, group: group, state: mesos.TASK_STAGING, phase: queued})
	}
	if err := errors.Join(err, store.CheckID("executor", id), store.CheckID("framework", fw.id)); err != nil {
		a.refuse(fw, id, tasks, status{mesos.TASK_ERROR, mesos.REASON_TASK_INVALID, err.Error()})
		return
	}
	e := fw.executors[id]
	if e != nil && (e.state == terminating || e.state == terminated) {
		s := status{mesos.TASK_LOST, mesos.REASON_EXECUTOR_TERMINATED, "Executor terminating"}
		if e.state == terminated {
			s.message = "Executor terminated"
		}
		if fw.partitionAware() {
			s.state = mesos.TASK_DROPPED
		}
		a.refuse(fw, id, tasks, s)
		return
	}
	fresh := e == nil
	if fresh {
		e = a.newExecutor(fw, r)
	}
	if err := a.saveTasks(e, tasks, fresh); err != nil {
		a.log.Error("tasks cannot be recorded", "executor", e.key(), "error", err)
		if fresh {
			delete(fw.executors, id)
		}
		a.refuse(fw, id, tasks, status{mesos.TASK_FAILED, mesos.REASON_CONTAINER_LAUNCH_FAILED, "Failed to launch container: " + err.Error()})
		a.tidy(fw)
		return
	}
	for _, t := range tasks {
		e.addTask(t)
	}
	switch {
	case fresh:
		a.launch(e)
	case e.state == running:
		a.deliver(e)
	}
}

// framework returns the framework of a Run, made if it is new here.
func (a *Agent) framework(info mesos.FrameworkInfo) (*framework, error) {
	id := info.GetID().GetValue()
	if fw := a.frameworks[id]; fw != nil {
		return fw, nil
	}
	if err := store.CheckID("framework", id); err != nil {
		return nil, err
	}
	fw := &framework{id: id, info: info, executors: map[string]*executor{}}
	if fw.checkpoint() {
		if err := a.store.SaveFramework(a.id(), &fw.info); err != nil {
			return nil, err
		}
	}
	a.frameworks[id] = fw
	return fw, nil
}

func (a *Agent) id() string { return a.info.GetID().GetValue() }

func (a *Agent) newExecutor(fw *framework, r *link.Run) *executor {
	id := r.Executor.ExecutorID.Value
	e := &executor{fw: fw, id: id, info: r.Executor, generated: r.Generated, state: registering, tasks: map[string]*task{},
		run: store.Run{Agent: a.id(), Framework: fw.id, Executor: id, Container: newUUIDText()}}
	if e.generated {
		a.completeCommandExecutor(e, &r.Tasks[0])
	}
	e.directory = a.store.Sandbox(e.run)
	fw.executors[id] = e
	return e
}

// The charge of an executor that the agent provides for a command task.
const (
	commandExecutorCPUs = 0.1
	commandExecutorMem  = 32
)

// completeCommandExecutor makes the agent's own program the executor of a
// command task. What the task fetches, whom it runs as and its limits are the
// executor's too.
func (a *Agent) completeCommandExecutor(e *executor, t *mesos.TaskInfo) {
	no := false
	argv := a.flags.CommandExecutor
	cmd := &mesos.CommandInfo{Shell: &no, Value: &argv[0], Arguments: argv}
	if t.Command != nil {
		cmd.URIs, cmd.User = t.Command.URIs, t.Command.User
	}
	e.info.Command = cmd
	// Its limits, too; the rest of a container is not made here.
	if l := t.GetContainer().GetRlimitInfo(); l != nil && e.info.Container == nil {
		e.info.Container = &mesos.ContainerInfo{Type: t.Container.Type, RlimitInfo: l}
	}
	if len(e.info.Resources) == 0 {
		role := "*"
		for _, r := range t.Resources {
			if r.AllocationInfo != nil {
				role = r.AllocationInfo.GetRole()
			}
		}
		scalar := mesos.SCALAR
		for _, c := range []struct {
			name  string
			value float64
		}{{"cpus", commandExecutorCPUs}, {"mem", commandExecutorMem}} {
			e.info.Resources = append(e.info.Resources, resource.List{{Name: c.name, Type: &scalar,
				Scalar: &mesos.Value_Scalar{Value: c.value}}}.Allocate(role).Downgraded()...)
		}
	}
}

// saveTasks records tasks, and their executor if it is new, before anything is
// done with them.
func (a *Agent) saveTasks(e *executor, tasks []*task, fresh bool) error {
	if fresh {
		if err := a.makeSandbox(e); err != nil {
			return err
		}
	}
	if !e.fw.checkpoint() {
		return nil
	}
	if fresh {
		if err := errors.Join(a.saveExecutor(e), a.store.MakeRun(e.run)); err != nil {
			return err
		}
	}
	for _, t := range tasks {
		if err := a.updates.Take(&t.info, t.group, a.store.TaskLog(e.run)); err != nil {
			return err
		}
	}
	if fresh {
		// Before its executor is started, which does not wait for the loop.
		a.commit()
	}
	return nil
}

func (a *Agent) saveExecutor(e *executor) error {
	if !e.fw.checkpoint() {
		return nil
	}
	return a.store.SaveExecutor(e.run, store.Executor{Info: &e.info, Container: e.run.Container,
		Generated: e.generated, Subscribed: e.subscribed})
}

// makeSandbox makes the sandbox and points "latest" at it.
func (a *Agent) makeSandbox(e *executor) error {
	if err := os.MkdirAll(filepath.Dir(e.directory), 0o755); err != nil {
		return fmt.Errorf("making the sandbox: %w", err)
	}
	if err := os.Mkdir(e.directory, 0o755); err != nil {
		return fmt.Errorf("making the sandbox: %w", err)
	}
	latest := a.store.SandboxLatest(e.run)
	os.Remove(latest)
	if err := os.Symlink(e.directory, latest); err != nil {
		return fmt.Errorf("making the sandbox: %w", err)
	}
	return nil
}

// deliver hands the queued tasks to a connected executor, those of a group
// together.
func (a *Agent) deliver(e *executor) {
	if e.stream == nil {
		return
	}
	for i, t := range e.order {
		if t.phase != queued {
			continue
		}
		t.step(delivered)
		if t.group == "" {
			a.send(e, &xexec.Event{Type: xexec.Event_LAUNCH, Launch: &xexec.Event_Launch{Task: t.info}})
			continue
		}
		group := []mesos.TaskInfo{t.info}
		for _, other := range e.order[i+1:] {
			if other.group == t.group && other.step(delivered) {
				group = append(group, other.info)
			}
		}
		a.send(e, &xexec.Event{Type: xexec.Event_LAUNCH_GROUP,
			LaunchGroup: &xexec.Event_LaunchGroup{TaskGroup: mesos.TaskGroupInfo{Tasks: group}}})
	}
}

// newUUID returns a random uuid (RFC 9562, version 4), raw.
func newUUID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return b
}

func newUUIDText() string {
	b := newUUID()
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// userOf is whom an executor runs as. An unknown user is an error.
func (a *Agent) userOf(e *executor) (*container.User, error) {
	name := e.info.GetCommand().GetUser()
	if name == "" {
		name = e.fw.info.User
	}
	if name == "" {
		return nil, nil //nolint:nilnil // no user is an answer: the agent's own
	}
	u, err := container.LookupUser(name)
	if err != nil {
		return nil, fmt.Errorf("Failed to chown '%s/stdout' to user '%s' : %w", e.directory, name, err) //nolint:staticcheck // Mesos's wording
	}
	if !a.flags.SwitchUser {
		return nil, nil //nolint:nilnil // as above
	}
	if u.Switches() && os.Geteuid() != 0 {
		return nil, fmt.Errorf("cannot run as user %q without being root; run the agent as root, or with --no-switch_user", name)
	}
	return u, nil
}
